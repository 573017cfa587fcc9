"""Whatever a program writes, and however it saves: a run with kills leaves the files of one uninterrupted run.

Nothing but the names of the state files is said in the settings (`saved_by` is left at its default).
"""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.disks import as_root, mount_small, unmount
from support.saver_runs import FILES, SAVERS, SaverRun, files_below

from unbroken.engines.files.outputs import LIST

pytestmark = pytest.mark.process

# A kill about every 25 steps.
QUICK, MANY = 4, 200
STATES = {"latest": "save_*/*", "times": "*/?"}


def bare(folder: Path, way: str, goal: int) -> dict[str, bytes]:
    """What one uninterrupted run of the program leaves."""
    folder.mkdir()
    words = [sys.executable, "-I", "-S", str(SAVERS), way, str(goal), "0", "no-stop-file"]
    subprocess.run(words, cwd=folder, check=True)
    return files_below(folder)


def steps_of(data: bytes) -> bytes:
    """The content of a database, whose bytes also say how often it was changed."""
    with closing(sqlite3.connect(":memory:")) as book:
        book.deserialize(data[:18] + b"\1\1" + data[20:])  # none in memory has a write-ahead log
        return "\n".join(book.iterdump()).encode()


def newest_state(found: dict[str, bytes], way: str) -> dict[str, bytes]:
    """The same files, of numbered states the newest alone: older ones are pruned."""
    if "book.db" in found:
        found = {**found, "book.db": steps_of(found["book.db"])}
    if way == "alternating":  # the other one is older
        chks = {name: int(data.split()[1]) for name, data in found.items() if name.endswith(".chk")}
        return {name: data for name, data in found.items() if chks.get(name, 0) in (0, max(chks.values()))}
    states = [name for name in found if Path(name).match(STATES[way])] if way in STATES else []
    newest = max(
        (Path(name).parent.name for name in states), key=lambda name: int(name.removeprefix("save_")), default=""
    )
    return {name: data for name, data in found.items() if name not in states or Path(name).parent.name == newest}


def run_with_kills(tmp_path: Path, way: str, goal: int, kills: int) -> SaverRun:
    (tmp_path / "run").mkdir()
    run = SaverRun(tmp_path / "run", way, goal)
    met = run.run_with_kills(kills, seed=way)
    print(way, dict(met))
    assert met.total() == kills
    return run


def log_of(files: dict[str, bytes]) -> str:
    """The pieces of run.log one behind the other."""
    return b"".join(files[name] for name in sorted(files) if name.endswith("run.log")).decode()


def doubts_of(run: SaverRun) -> list[str]:
    newest = run.root / "checkpoints" / run.newest()
    return list(json.loads((newest / LIST).read_text())["doubts"])


def confirm_kills_change_nothing(tmp_path: Path, way: str, goal: int, kills: int) -> None:
    run = run_with_kills(tmp_path, way, goal, kills)
    found, whole = newest_state(run.files(), way), newest_state(bare(tmp_path / "bare", way, goal), way)
    if way == "log":
        lines = log_of(found).splitlines()
        assert [line for line in lines if not line.startswith("resumed")] == [f"step {n}" for n in range(1, goal + 1)]
        found = {name: data for name, data in found.items() if not name.endswith("run.log")}
        whole.pop("run.log")
    if way == "buffered":
        assert found.pop("table.csv") == whole.pop("table.csv") or "table.csv" in doubts_of(run)[0]
    else:
        assert doubts_of(run) == []
    assert sorted(found) == sorted(whole)
    assert found == whole


@pytest.mark.parametrize("way", FILES)
def test_a_few_kills_leave_the_files_of_one_run(tmp_path, way):
    confirm_kills_change_nothing(tmp_path, way, 1000, QUICK)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("way", FILES)
def test_two_hundred_kills_leave_the_files_of_one_run(tmp_path, way):
    confirm_kills_change_nothing(tmp_path, way, 60_000 if way != "snapshots" else 20_000, MANY)


@pytest.mark.parametrize("way", FILES)
def test_pieces_leave_the_files_of_one_run(tmp_path, way):
    (tmp_path / "run").mkdir()
    run = SaverRun(tmp_path / "run", way, 200, keys={"segment_minutes": 0.03, "first_margin_seconds": 0.3})

    run.run_on()

    found, whole = newest_state(run.files(), way), newest_state(bare(tmp_path / "bare", way, 200), way)
    if way == "log":
        lines = log_of(found).splitlines()
        assert [line for line in lines if not line.startswith("resumed")] == [f"step {n}" for n in range(1, 201)]
        assert (run.root / "final" / "segments" / "002" / "run.log").is_file()
        found = {name: data for name, data in found.items() if not name.endswith("run.log")}
        whole.pop("run.log")
    assert run.segment > 1
    assert found == whole
    assert doubts_of(run) == []


@pytest.mark.parametrize("options", ["size=3m", "size=64m,nr_inodes=400"], ids=["full", "no inodes"])
def test_a_disk_that_fills_up_is_one_line_and_what_was_saved_goes_on_once_there_is_room(tmp_path, options):
    place = tmp_path / "run"
    place.mkdir()
    mount_small(place, options)
    try:
        run = SaverRun(place, "snapshots", 1500, step_seconds=0)
        code = run.start().wait(120)
        said = [line for line in run.said().splitlines() if line.startswith("error: ")]
        before = len(list(run.root.glob("checkpoints/0*")))
        as_root("mount", "-o", "remount,size=256m,nr_inodes=100000", str(place))

        run.run_on()

        assert code == 1
        assert len(said) == 1
        assert "No space left on device" in said[0] or "001.log" in said[0]
        assert run.files() == bare(tmp_path / "bare", "snapshots", 1500)
        assert before or "starting from the beginning" in run.said()
    finally:
        unmount(place)
