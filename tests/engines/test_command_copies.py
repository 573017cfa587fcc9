"""What a program writes besides its state is copied too, and comes back from there."""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_jobs import command_segment, start_command_segment
from support.disks import mount_small, unmount
from support.toyrun import until

from unbroken.copies.outputs import OutputPlace
from unbroken.copies.restore import restore
from unbroken.engines.found import outputs_of
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.record import Record
from unbroken.system import disk, fs
from unbroken.system.log import lines_to

pytestmark = pytest.mark.process

GOAL = 30
# Saves at every fifth step, by a rename.  Keeps a table and a trajectory open, begins `segment.log` again in each call,
# writes `status.txt` again and again, and one snapshot a save; `latest` leads to the last one.  It leaves after `more`
# steps, and waits after step N as long as there is a file `rest-at-N`.
PROGRAM = """
import json, os, struct, sys, time
goal, more, rests = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
n = json.load(open("state.json"))["n"] if os.path.exists("state.json") else 0
first = n
table, trajectory, log = open("table.csv", "a"), open("traj.bin", "ab"), open("segment.log", "w")
while n < goal and n - first < more:
    n += 1
    print(n, n * n % 7919, file=table, flush=True)
    print("step", n, file=log, flush=True)
    if n % 5 == 0:
        trajectory.write(struct.pack("<qq", n, n * n) * 20000)
        trajectory.flush()
        os.makedirs("snaps", exist_ok=True)
        with open(f"snaps/snap_{n:03}.txt", "w") as snap:
            snap.write(f"snapshot {n}\\n" * 100)
        with open("status.txt", "w") as status:
            status.write(f"done {n} of {goal}\\n")
        with open("sparse.bin", "ab") as sparse:
            sparse.truncate(n * 10_000_000)
            sparse.seek(0, 2)
            sparse.write(struct.pack("<q", n))
        if os.path.lexists("latest"):
            os.unlink("latest")
        os.symlink(f"snaps/snap_{n:03}.txt", "latest")
        with open("state.new", "w") as state:
            json.dump({"n": n}, state)
        os.replace("state.new", "state.json")
        time.sleep(0.3)
    while os.path.exists(f"{rests}/rest-at-{n}"):
        open(f"{rests}/rests-at-{n}", "w").close()
        time.sleep(0.01)
sys.exit(0 if n >= goal else 85)
"""


def settings(base: Path, more: int = 10, **others: object) -> dict[str, object]:
    program = base / "program.py"
    program.write_text(PROGRAM)
    return {
        "start": [sys.executable, "-I", "-S", str(program), "{goal}", str(more), str(base)],
        "files": ["state.json"],
        "progress_file": "state.json",
        "progress_pattern": r'"n": (\d+)',
        "goal": GOAL,
        "exit_paused": [85],
        **others,
    }


def segment(base: Path, number: int, backup: Path | None = None, **others: object) -> Record:
    keys = {"copies": {"folder": str(backup)}} if backup else {}
    return command_segment(base, settings(base, **others), number, **keys)


def to_the_end(base: Path, number: int, backup: Path | None = None, **others: object) -> None:
    while segment(base, number, backup, **others).kind is not EndKind.FINISHED:
        number += 1


def final(base: Path) -> dict[str, object]:
    """The result: contents, or where links lead to; pieces joined, because a loss makes more of them.

    Whether `status.txt` was begun again or is written again and again depends on what was seen of it: the last counts.
    """
    folder = base / "results/demo/final"
    found: dict[str, object] = {}
    for name in fs.tree_files(folder):
        is_piece = name.parts[0] == "segments"
        key, content = name.name if is_piece else str(name), _content(folder / name)
        before = found.get(key) if is_piece and key != "status.txt" else None
        found[key] = before + content if isinstance(before, bytes) and isinstance(content, bytes) else content
    del found["summary.json"]
    return found


def _content(path: Path) -> object:
    return os.readlink(path) if path.is_symlink() else path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The result of the same segments without any loss."""
    base = tmp_path_factory.mktemp("whole")
    to_the_end(base, 1)
    found = final(base)
    assert {"latest", "sparse.bin", "status.txt", "table.csv", "traj.bin", "segment.log"} <= set(found)
    assert (base / "results/demo/final/segments/003/segment.log").is_file()
    assert len([name for name in found if name.startswith("snaps/")]) == 6
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    return tmp_path / "base"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    (tmp_path / "backup").mkdir()
    return tmp_path / "backup"


def quiet(line: object) -> None:
    pass


def log(base: Path, number: int) -> list[str]:
    lines = (base / f"logs/demo/{number:03d}.log").read_text().splitlines()
    return [line for line in lines if ": copies: " in line and "written again before they were copied" not in line]


def lacking(backup: Path) -> dict[str, list[str]]:
    """What the copies lack of the outputs of their checkpoints."""
    root = backup / "demo"
    lacks = OutputPlace(root).lacking
    found = {each.name: lacks(outputs_of(each)) for each in Store(root / "checkpoints").readable()}
    # The program may write its status again before that of the checkpoint is copied.
    return {name: [each for each in names if each != "status.txt"] for name, names in found.items()}


def restored(base: Path, backup: Path) -> list[str]:
    told: list[str] = []
    shutil.rmtree(base / "results")
    with lines_to(told.append):
        restore("demo", backup, base, outputs_of)
    return told


def test_outputs_are_copied_once_and_come_back_to_the_result_of_an_uninterrupted_run(
    base: Path, backup: Path, whole: dict[str, object]
) -> None:
    copied = backup / "demo"
    for number in (1, 2):
        segment(base, number, backup)
        assert lacking(backup) and not any(lacking(backup).values())
        assert (copied / "output/sparse.bin").stat().st_blocks * 512 < 1_000_000
        assert restored(base, backup)[-1].startswith("demo: restored in ")
    # The number is that of the checkpoint from which the second segment resumed.
    output, piece = sorted(path.relative_to(copied).as_posix() for path in copied.rglob("*.log"))
    assert output == "output/segment.log" and re.fullmatch(r"pieces/00000[12]/segment\.log", piece)

    to_the_end(base, 3, backup)
    assert final(base) == whole

    restored(base, backup)
    to_the_end(base, 4, backup)
    assert final(base) == whole
    assert (base / "results/demo/final/sparse.bin").stat().st_blocks * 512 < 1_000_000
    assert len(list(copied.rglob("table.csv"))) == 1


def test_a_run_that_is_killed_and_lost_while_it_works_resumes_from_its_copies(
    base: Path, backup: Path, whole: dict[str, object]
) -> None:
    (base / "rest-at-17").touch()
    killed = start_command_segment(base, settings(base, more=100), copies={"folder": str(backup)})
    try:
        until(lambda: (base / "rests-at-17").exists(), 30)
        names = Store(backup / "demo/checkpoints").names
        until(lambda: any("15-steps" in name for name in names()), 30)
    finally:
        killed.kill(signal.SIGKILL)
        killed.end()
    (base / "rest-at-17").unlink()
    time.sleep(1)  # the guard ends the program

    assert not any(lacking(backup).values())
    restored(base, backup)
    to_the_end(base, 1, backup, more=100)

    assert final(base) == whole


def test_a_checkpoint_without_all_of_its_outputs_is_left_out_and_they_are_named(
    base: Path, backup: Path, whole: dict[str, object]
) -> None:
    segment(base, 1, backup)
    segment(base, 2, backup)
    newest = Store(backup / "demo/checkpoints").names()[-1]
    (backup / "demo/output/snaps/snap_020.txt").unlink()

    told = restored(base, backup)

    assert told[0] == f"demo: the copy of {newest} lacks outputs, and is left out: snaps/snap_020.txt"
    assert "10 of 30 steps" in told[-1] or "15 of 30 steps" in told[-1]
    to_the_end(base, 2, backup)
    assert final(base) == whole
    assert not any(lacking(backup).values())


def test_where_no_copy_has_all_of_its_outputs_the_newest_is_restored_and_the_result_has_doubts(
    base: Path, backup: Path
) -> None:
    segment(base, 1, backup)
    segment(base, 2, backup)
    newest = Store(backup / "demo/checkpoints").names()[-1]
    (backup / "demo/output/traj.bin").unlink()

    told = restored(base, backup)

    doubts = "lacks outputs, and a run that resumes from it may end with doubts: traj.bin"
    assert told[0] == f"demo: the copy of {newest} {doubts}"
    assert "20 of 30 steps" in told[-1]


@pytest.fixture
def small_backup(backup: Path) -> Iterator[Path]:
    mount_small(backup, "size=1m")
    yield backup
    unmount(backup)


def test_outputs_that_do_not_fit_cost_one_line_and_the_location_is_not_filled_up(
    base: Path, small_backup: Path, whole: dict[str, object]
) -> None:
    segment(base, 1, small_backup)
    copied = Store(small_backup / "demo/checkpoints").names()
    segment(base, 2, small_backup)

    (line,) = [line for line in log(base, 2) if not re.search(r" copied to \S+ in ", line)]
    assert ": No space left on device; the run continues" in line and str(small_backup / "demo") in line
    if len(log(base, 2)) == 1:  # on a busy machine a state between the two may have fitted
        assert disk.free_bytes(small_backup) > 200_000
        assert Store(small_backup / "demo/checkpoints").names() == copied
    assert not list(small_backup.rglob("snap_020.txt"))
    assert not any(lacking(small_backup).values())
    to_the_end(base, 3, small_backup)
    assert final(base) == whole
