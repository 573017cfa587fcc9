"""What `--keep` means, and what of it is put back: the store, links, odd names, pipes and sockets."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.exec_calls import PYTHONPATH, Called
from support.file_programs import (
    IN_PLACE,
    KILLS,
    LATEST,
    PLACES,
    SPECIAL,
    kill_all,
    killed_at,
    made,
    tear,
    wait_for,
    wait_for_kept,
)

from unbroken.store.checkpoint import verify_files
from unbroken.store.checkpoints import Store

pytestmark = pytest.mark.process

kills = pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
OPTIONS = ("--outputs", "result.txt", "--save-minutes", "0")


def kept(called: Called) -> set[str]:
    """The names of all kept files in all checkpoints, each of which is complete."""
    found = set()
    for checkpoint in Store(called.store() / "checkpoints").readable():
        verify_files(checkpoint)
        found |= {name.removeprefix("kept/") for name in checkpoint.passport.files if name.startswith("kept/")}
    return found


@pytest.mark.parametrize("glob", ["*", ".", "**/*.pt", "**", "./**"])
def test_a_glob_that_means_everything_swallows_neither_the_store_nor_results_and_logs(called, glob):
    more = made(called, PLACES, "model/w.pt", "results/w.pt", "logs/w.pt", ".git/w.pt", goal=12)
    killed_at(called, 6, kill_all, (*OPTIONS, "--keep", glob), more, kept=("model/w.pt", "6"))

    done = called.call(*OPTIONS, "--keep", glob, **more)

    assert done.returncode == 0, done.stderr
    assert "model/w.pt" in kept(called)
    assert not {name for name in kept(called) if name.split("/")[0] in (".unbroken", "results", "logs", ".git")}


@pytest.mark.parametrize("glob", ["results/x*", "logs/*"])
def test_results_and_logs_are_kept_if_a_glob_names_their_folder(called, glob):
    name = glob.replace("*", "1")
    more = made(called, PLACES, name, goal=12)
    killed_at(called, 6, kill_all, (*OPTIONS, "--keep", glob), more, kept=(name, "6"))
    (called.folder / name).unlink()

    done = called.call(*OPTIONS, "--keep", glob, **more)

    assert done.returncode == 0, done.stderr
    assert called.starts() == [0, 6]


@kills
def test_a_link_to_the_latest_state_is_kept_and_put_back_as_a_link(called, kill):
    more = made(called, LATEST, goal=9)
    options = (*OPTIONS, "--keep", "ckpt/**")
    killed_at(called, 5, kill, options, more, kept=("ckpt/step-5/n", "5"))
    (called.folder / "ckpt/latest").unlink()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 5]), done.stderr
    assert os.readlink(called.folder / "ckpt/latest") == "step-9"


def test_a_link_that_leads_to_a_newer_state_than_the_saved_one_leads_back(called):
    more = made(called, LATEST, goal=9)
    options = (*OPTIONS, "--keep", "ckpt/**")
    killed_at(called, 5, kill_all, options, more, kept=("ckpt/step-5/n", "5"))
    (called.folder / "ckpt/step-6").mkdir()
    (called.folder / "ckpt/latest").unlink()
    (called.folder / "ckpt/latest").symlink_to("step-6")

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 5]), done.stderr


@kills
def test_names_with_an_at_sign_and_folders_above_are_put_back_where_they_were(called, kill):
    above = f"../{called.folder.name}-above/c"
    places = ("@/a", "@x/@", "@@", "@save/b.ready", "@stdout", above, "@./d")
    more = made(called, PLACES, *places, goal=9)
    options = (*OPTIONS, "--keep", "@/*", "@x/@", "@@", "@save/b.ready", "@stdout", above, "@./d")
    killed_at(called, 5, kill, options, more, kept=("@@/a", "5"))
    for place in places:
        (called.folder / place).unlink()

    done = called.call(*options, **more)

    assert (done.returncode, called.starts()) == (0, [0, 5]), done.stderr
    assert {(called.folder / place).read_text() for place in places} == {"9"}


def test_a_pipe_a_socket_and_a_broken_link_hold_nothing_up(called):
    more = made(called, SPECIAL, goal=9)
    options = ("--outputs", "out", "--save-minutes", "0", "--keep", "out/**")
    called.rest_at(5)
    process = called.start(*options, **more)
    wait_for_kept(called, "out/state", "5")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 85
    called.go_on()

    done = called.call(*options, **more)
    (called.folder / "out/broken").unlink()
    (called.folder / "out/broken").symlink_to("elsewhere")
    (called.folder / "out/data").unlink()
    again = called.call(*options, **more)

    assert (done.returncode, again.returncode, called.starts()) == (0, 0, [0, 5]), done.stderr + again.stderr
    assert "out/pipe is a pipe, a socket or a device" in done.stderr
    assert os.readlink(called.folder / "out/broken") == "nowhere"
    assert (called.folder / "out/data").read_text() == "9"


def test_an_edited_result_of_a_finished_run_is_in_replaced_before_it_is_put_back(called):
    more = made(called, IN_PLACE, goal=3)
    options = (*OPTIONS, "--keep", "state.chk", "--stdout", "printed.txt")
    assert called.call(*options, **more).returncode == 0
    (called.folder / "result.txt").write_text("mine")
    (called.folder / "printed.txt").write_text("mine too")

    assert called.call(*options, **more).returncode == 0
    assert (called.folder / "result.txt").read_text() == "3"
    texts = {path.name: path.read_text() for path in called.store().rglob("replaced/**/*") if path.is_file()}
    assert texts == {"result.txt": "mine", "printed.txt": "mine too"}


# --- torn states ---

DIES_IN_A_COPY = """
import os, runpy, signal
from unbroken.system import copying

def or_die(source, descriptor, target):
    if str(target).endswith("state.chk"):
        target.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

copying.copy_open_file = or_die
runpy.run_module("unbroken", run_name="__main__")
"""


def test_what_was_there_before_is_the_start_after_a_first_take_over_that_was_killed_in_the_copy(called):
    more = made(called, IN_PLACE, goal=12)
    (called.folder / "state.chk").write_text('{"n": 7}')
    options = (*OPTIONS, "--keep", "state.chk")
    words = [sys.executable, "-c", DIES_IN_A_COPY, *called.words(*options, **more)[3:]]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    for _ in range(2):
        killed = subprocess.run(words, cwd=called.folder, env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

    assert called.call(*options, **more).returncode == 0
    assert called.starts() == [7]


@kills
def test_a_state_that_the_kill_has_torn_is_never_published_and_gives_way_to_the_one_before(called, kill):
    more = made(called, IN_PLACE, goal=9)
    options = (*OPTIONS, "--keep", "state.chk")
    kill(called, tear(called, 4, "state.chk", "4}", options, more))
    (called.folder / "tear-at-5").unlink()

    assert called.call(*options, **more).returncode == 0
    assert called.starts() == [0, 4]
    assert called.replaced() == ["state.chk"]
    texts = [path.read_text() for path in called.store().glob("checkpoints/0*/kept/state.chk")]
    assert [text for text in texts if not text.endswith("}")] == []


def stopped_and_killed(called: Called, process, number: int) -> None:
    """Exec is stopped; the program goes on into the middle of its next state; then both are killed."""
    process.send_signal(signal.SIGSTOP)
    (called.folder / f"rest-at-{number}").unlink()
    wait_for(called, f"tears-at-{number + 1}")
    kill_all(called, process)
    (called.folder / f"tear-at-{number + 1}").unlink()


def test_a_state_that_was_torn_while_exec_was_stopped_gives_way_to_the_one_before(called):
    more = made(called, IN_PLACE, goal=9)
    options = (*OPTIONS, "--keep", "state.chk")
    called.rest_at(4)
    (called.folder / "tear-at-5").touch()
    process = called.start(*options, **more)
    wait_for_kept(called, "state.chk", "4}")
    stopped_and_killed(called, process, 4)

    assert called.call(*options, **more).returncode == 0
    assert called.starts() == [0, 4]


@pytest.mark.parametrize("hours", [0, 2])
def test_a_first_state_that_was_torn_while_exec_was_stopped_is_not_taken_for_the_user_s_own(called, hours):
    more = made(called, "rest(0)" + IN_PLACE, goal=5)
    options = (*OPTIONS, "--keep", "state.chk")
    called.rest_at(0)
    (called.folder / "tear-at-1").touch()
    process = called.start(*options, **more)
    wait_for(called, "rests-at-0")
    stopped_and_killed(called, process, 0)
    note: Path = called.store() / "before.json"
    os.utime(note, (note.stat().st_atime, note.stat().st_mtime - hours * 3600))  # when it last gave a sign

    calls = [called.call(*options, **more) for _ in range(3)]

    assert calls[-1].returncode == 0, [each.stderr for each in calls]
    assert (called.folder / "result.txt").read_text() == "5"
    assert called.replaced() == ["state.chk"]
