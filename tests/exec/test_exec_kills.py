import os
import signal
import sys

import pytest
from support.exec_calls import KEEP, Called, expected
from support.stages import RESULT, STAGES

from unbroken.system import fs

pytestmark = pytest.mark.process


def kill_at(called: Called, number: int, *options: str) -> None:
    """exec itself is killed when the program is there and that is saved."""
    called.rest_at(number)
    process = called.start(*KEEP, *options)
    called.wait_for_checkpoint(number)
    process.kill()
    process.wait()
    called.wait_until(lambda: not _pids("program.py", str(called.folder)))  # it dies a moment later
    called.go_on()


def test_kills_at_ten_places_change_no_byte(called):
    for number in range(1, 20, 2):
        kill_at(called, number)

    assert called.call(*KEEP).returncode == 0
    assert called.result() == expected()
    assert called.starts() == [0, *range(1, 20, 2)]


def test_a_program_that_is_killed_goes_on_from_what_was_saved(called):
    called.rest_at(6)
    process = called.start(*KEEP)
    called.wait_for_checkpoint(6)
    for pid in _pids("program.py", str(called.folder)):
        _kill(pid)

    assert process.wait(600) not in (0, 85)
    called.go_on()
    assert called.call(*KEEP).returncode == 0
    assert called.starts() == [0, 6]


def test_a_program_of_stages_that_is_killed_resumes_from_the_end_of_one(called):
    (called.folder / "stages.sh").write_text(STAGES)
    keep = (
        "--keep",
        "out/**",
        "!out/log",
        "--saved-by",
        "stage",
        "--marker",
        "out/stage_*",
        "--save-minutes",
        "0.0001",
    )
    stages = {"program": ("sh", "stages.sh"), "name": "stages"}

    for number in (1, 3):
        process = called.start(*keep, "--outputs", "result", **stages)
        kept = f"checkpoints/0*/kept/out/stage_{number}"
        called.wait_until(lambda: any(called.store("stages").glob(kept)))  # noqa: B023
        process.kill()
        process.wait()
        called.wait_until(lambda: not _pids("stages.sh", str(called.folder)))

    assert called.call(*keep, "--outputs", "result", **stages).returncode == 0
    assert (called.folder / "result").read_text() == RESULT


@pytest.mark.parametrize("keep", [(), ("--keep", "ckpt/*")], ids=["results alone", "kept files"])
def test_what_was_being_published_is_published_by_the_next_call(called, keep):
    """The program is done, and is not started again for its results."""
    options = (*keep, "--save-minutes", "60", "--outputs", "sum.txt")
    called.killed_while_publishing(*options)

    done = called.call(*options)

    assert (done.returncode, called.starts()) == (0, [0]), done.stderr
    assert called.result() == expected()
    assert "saved from the killed attempt 1" in done.stderr


def test_a_torn_file_gives_way_to_the_checkpoint_and_is_not_deleted(called):
    kill_at(called, 6)
    torn = called.folder / "ckpt/state.json"
    torn.write_text('{"n": 7, "s')

    done = called.call(*KEEP)

    assert (done.returncode, called.result(), called.starts()) == (0, expected(), [0, 6])
    assert "put back from the checkpoint: ckpt/state.json" in done.stderr
    assert [path.read_text() for path in called.store().rglob("replaced/**/state.json")] == ['{"n": 7, "s']


def test_what_a_killed_job_was_putting_back_is_no_kept_file_and_goes(called):
    kill_at(called, 6)
    (called.folder / "ckpt/state.json").write_text("torn")
    draft = called.folder / "ckpt" / fs.unique_name("restored")
    draft.write_text("half")
    os.utime(draft, (1, 1))

    assert called.call(*KEEP).returncode == 0
    assert not draft.exists()
    assert called.replaced() == ["state.json"]


def test_a_file_that_matches_and_is_not_the_program_s_is_not_touched(called):
    (called.folder / "ckpt").mkdir()
    mine = called.folder / "ckpt/mine.txt"
    mine.write_text("mine")
    inode = mine.stat().st_ino
    kill_at(called, 6)
    (called.folder / "ckpt/state.json").write_text("torn")

    assert called.call(*KEEP).returncode == 0
    assert (mine.read_text(), mine.stat().st_ino) == ("mine", inode)
    assert "mine.txt" not in called.replaced()


def test_a_link_among_the_kept_files_is_not_followed(called):
    kill_at(called, 6)
    elsewhere = called.folder / "elsewhere.json"
    elsewhere.write_text("of somebody else")
    state = called.folder / "ckpt/state.json"
    state.unlink()
    state.symlink_to(elsewhere)

    assert called.call(*KEEP).returncode == 0
    assert elsewhere.read_text() == "of somebody else"
    assert called.result() == expected()


def test_the_second_of_two_calls_waits_and_computes_nothing(called):
    called.rest_at(5)
    first = called.start(*KEEP)
    called.wait_for_state(5)
    second = called.start(*KEEP)
    line = second.stderr.readline()
    called.go_on()

    assert "count segment 1: waiting: the run is held, segment 1 by process" in line
    assert (first.wait(600), second.wait(600)) == (0, 0)
    assert called.starts() == [0]


def test_what_was_there_before_is_not_lost_by_a_kill_at_once(called):
    (called.folder / "ckpt").mkdir()
    (called.folder / "ckpt/state.json").write_text('{"n": 10, "sum": 385}')
    (called.folder / "torn").touch()
    # The first start is in the middle of writing the file when exec is killed, which may have published nothing yet.
    program = (
        "sh",
        "-c",
        "[ -e torn ] && rm torn && exec 3> ckpt/state.json && echo torn >&3 && sleep 600; "
        f"{sys.executable} program.py 20 sum.txt",
    )
    process = called.start(*KEEP, program=program)
    called.wait_until(lambda: (called.folder / "ckpt/state.json").read_text() == "torn\n")
    process.kill()
    process.wait()

    assert called.call(*KEEP, program=program).returncode == 0
    assert (called.starts()[-1], called.result()) == (10, expected())


def test_a_folder_that_matches_stands_for_all_in_it(called):
    program = ("sh", "-c", "mkdir -p out/step-1 && date +%N > out/step-1/a && exit 85")
    assert called.call("--keep", "out/*", "--save-minutes", "0", program=program).returncode == 85
    saved = (called.folder / "out/step-1/a").read_text()
    (called.folder / "out/step-1/a").write_text("torn")

    assert called.call("--keep", "out/*", "--save-minutes", "0", program=program).returncode == 85
    kept = [path.read_text() for path in sorted(called.store().glob("checkpoints/0*/kept/out/step-1/a"))]
    assert (kept[0], len(kept)) == (saved, 2)


WRITER = """
import os, sys, time
os.makedirs("ckpt", exist_ok=True)
open("starts", "a").write("%d\\n" % len(os.listdir("ckpt")))
for number in range(len([n for n in os.listdir("ckpt") if n.endswith(".chk")]) + 1, 5):
    with open(f"ckpt/{number}.chk", "w") as file:
        file.write("half"); file.flush()
        while number == 4 and os.path.exists("rest"):
            time.sleep(0.02)
        file.write(" whole")
    open("ckpt.done", "w").close()
    while number == 3 and os.path.exists("rest-at-3"):
        time.sleep(0.02)
open("sum.txt", "w").write("done")
"""
WAYS = {
    "next": ("--keep", "ckpt/{progress}.chk", "--saved-by", "next"),
    "observed": ("--keep", "ckpt/*.chk"),
    "marker": ("--keep", "ckpt/*.chk", "--saved-by", "marker", "--marker", "ckpt.done"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_half_written_is_in_no_checkpoint(called, way):
    (called.folder / "writer.py").write_text(WRITER)
    program, options = (sys.executable, "writer.py"), (*WAYS[way], "--save-minutes", "0", "--outputs", "sum.txt")
    (called.folder / "rest-at-3").touch()
    (called.folder / "rest").touch()
    process = called.start(*options, program=program)
    called.wait_until(lambda: ("2.chk" if way == "next" else "3.chk") in _checkpointed(called))
    called.go_on()
    called.wait_until(lambda: (called.folder / "ckpt/4.chk").exists())
    called.wait_until(lambda: "3.chk" in _checkpointed(called))
    process.kill()
    process.wait()
    called.wait_until(lambda: not _pids("writer.py", str(called.folder)))  # it dies a moment later
    (called.folder / "rest").unlink()

    assert all(text == "half whole" for text in _checkpointed(called).values())
    assert called.call(*options, program=program).returncode == 0
    assert [(called.folder / f"ckpt/{number}.chk").read_text() for number in (1, 2, 3, 4)] == ["half whole"] * 4
    assert called.starts() == [0, 3]


def _checkpointed(called: Called) -> dict[str, str]:
    """The kept files of the newest checkpoint."""
    newest = sorted(called.store().glob("checkpoints/0*/kept"))[-1:]
    return {path.name: path.read_text() for folder in newest for path in folder.rglob("*") if path.is_file()}


def _pids(*words: str) -> list[int]:
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().decode().split("\0")
            if line[1:2] == [words[0]] and os.readlink(f"/proc/{pid}/cwd") == words[1]:
                found.append(int(pid))
        except OSError:
            continue
    return found


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_spoilt_note_of_the_files_before_ends_nothing(called):
    kill_at(called, 6)
    (called.store() / "before.json").write_text("[1,2")
    (called.folder / "ckpt/state.json").write_text("torn")

    assert called.call(*KEEP).returncode == 0
    assert (called.starts(), called.result()) == ([0, 6], expected())
