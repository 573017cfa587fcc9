"""The promise: a copy, or a restore, that is killed at any step is no harm: nothing half is taken for complete."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from protocol.kill_harness import Steps, forked
from support.command_jobs import command_job, command_segment
from support.copying import STEP, copies, copy_now, copy_of, job, result, step, whole_result
from support.toyrun import ProgramEngine, history, toy_job

from unbroken.copies import outputs, transfer
from unbroken.copies.outputs import OutputPlace
from unbroken.copies.restore import restore
from unbroken.copies.transfer import Transfer
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.found import outputs_of
from unbroken.job.lifecycle import run_segment
from unbroken.store import lease
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.select import verify
from unbroken.system import host

pytestmark = pytest.mark.process

Work = Callable[[Path], object]


def steps_of(work: Work, base: Path, root: str) -> list[str]:
    """The names of the steps below `root` that change the disk."""

    def count() -> None:
        steps = Steps(base / root)
        work(base)
        (base / "steps").write_text(json.dumps(steps.names))

    assert forked(count, base / "screen")[1] == 0, (base / "screen").read_text()
    return json.loads((base / "steps").read_text())  # type: ignore[no-any-return]


# A third of the steps each.
in_parts = pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])


def killed_everywhere(tmp_path: Path, template: Path, root: str, work: Work, part: int) -> Iterator[tuple[str, Path]]:
    """A folder made like the template for each step of `work` below `root`, after a kill there, or within a write."""
    names = steps_of(work, Path(shutil.copytree(template, tmp_path / "counted", symlinks=True)), root)
    assert len(names) > 40, names  # it sees the steps
    cases = [(at, "after") for at in range(1, len(names) + 1)]
    # Flushing changes nothing; after one step is before the next.
    cases = [(at, mode) for at, mode in cases if names[at - 1] != "fsync"]
    cases += [(at, "half") for at, name in enumerate(names, 1) if name == "write"]
    for at, mode in cases[part::3]:
        base = Path(shutil.copytree(template, tmp_path / f"{mode}{at}", symlinks=True))

        def attempt(base: Path = base, at: int = at, mode: str = mode) -> None:
            Steps(base / root, at, mode)
            work(base)

        _, status = forked(attempt, base / "screen")
        if status != 0:  # else the step raised, so there was no moment after it
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (base / "screen").read_text()
            yield f"{mode} {at} {names[at - 1]}", base
        shutil.rmtree(base)


def everything_visible_is_whole(store: Store) -> None:
    for name in store.names():
        verify(store.root / name, "demo")


def brought_back(base: Path) -> None:
    restore("demo", base / "backup", base, outputs_of)


# Appends to a table, begins its log again in each call, writes a snapshot, and saves by a rename.
WRITER = """
import os, sys
n = int(open("state").read()) if os.path.exists("state") else 0
with open("table", "a") as table, open("log", "w") as log:
    for n in range(n + 1, n + 11):
        print(n, file=table)
        print("step", n, file=log)
open(f"snap_{n:02}", "w").write(f"snapshot {n}\\n" * 5)
open("new", "w").write(str(n))
os.replace("new", "state")
sys.exit(0 if n >= 40 else 85)
"""


def written(base: Path, segment: int, **keys: object) -> None:
    """One segment of the writer; the program stands in the folder because its path belongs to the run's identity."""
    (base.parent / "writer.py").write_text(WRITER)
    command_segment(
        base, WRITER_SETTINGS | {"start": [sys.executable, str(base.parent / "writer.py")]}, segment, **keys
    )


WRITER_SETTINGS = {"files": ["state"], "progress_file": "state", "progress_pattern": "([0-9]+)", "goal": 40}
WRITER_SETTINGS |= {"exit_paused": [85]}


def outputs_now(base: Path) -> dict[str, bytes]:
    """What the run's newest checkpoint has, after its outputs were looked for; a piece by the end of its name."""
    folder = base / "results/demo"
    newest = Store(folder / "checkpoints").readable()[-1]
    assert OutputPlace(folder).lacking(outputs_of(newest)) == []
    return {one.place: (folder / one.place).read_bytes()[: one.size_bytes] for one in outputs_of(newest)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill is no power loss
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 1000.0)
    monkeypatch.delattr(os, "copy_file_range", raising=False)  # so that what is copied is written, by steps
    monkeypatch.setattr(outputs, "EDGE_BYTES", 20)
    for module in (outputs, transfer):
        monkeypatch.setattr(module, "STEP_BYTES", 40)
        monkeypatch.setattr(module, "FLUSH_BYTES", 80)
    host.this_host()


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A run with copies of its first two checkpoints, whose third and fourth are not copied yet."""
    base = tmp_path / "template"
    base.mkdir()
    (base / "backup").mkdir()
    for segment in (1, 2):
        step(base, base / "backup", segment, keep=2)
    for segment in (3, 4):
        run_segment(toy_job(base, segment, goal=6, keep=2), ProgramEngine(STEP))
    return base


@in_parts
def test_a_copy_that_is_killed_at_any_step_shows_nothing_half_and_is_completed_by_the_next(
    tmp_path: Path, template: Path, part: int
) -> None:
    def copy(base: Path) -> None:
        copy_now(base, base / "backup")

    for where, base in killed_everywhere(tmp_path, template, "backup", copy, part):
        store = copies(base / "backup").store
        everything_visible_is_whole(store)
        assert store.names(), where

        copy_now(base, base / "backup")

        assert store.names()[-1] == Store(job(base).places.checkpoints).names()[-1], where
        everything_visible_is_whole(store)
        assert not Transfer(store.root).unfinished() and not Transfer(store.archive).unfinished(), where
        shutil.rmtree(base / "results")
        brought_back(base)
        assert result(base) == whole_result(4), where


@pytest.fixture
def written_template(tmp_path: Path) -> Path:
    """A run of a program with outputs; its first checkpoint is copied, its second and third are not."""
    base = tmp_path / "template"
    (base / "backup").mkdir(parents=True)
    written(base, 1, copies={"folder": str(base / "backup")})
    written(base, 2)
    written(base, 3)
    return base


def copy_written(base: Path) -> None:
    there = command_job(base, WRITER_SETTINGS | {"start": ["true"]}, 1, copies={"folder": str(base / "backup")})
    copy_of(there, CommandEngine(base))


@in_parts
def test_a_copy_of_outputs_that_is_killed_at_any_step_keeps_those_that_are_there_and_is_completed_by_the_next(
    tmp_path: Path, written_template: Path, part: int
) -> None:
    expected = outputs_now(written_template)
    assert len([name for name in expected if name.startswith("pieces/")]) == 2

    for where, base in killed_everywhere(tmp_path, written_template, "backup", copy_written, part):
        root = base / "backup/demo"
        shown = Store(root / "checkpoints").readable()
        assert shown, where
        assert not any(OutputPlace(root).lacking(outputs_of(each)) for each in shown), where

        copy_written(base)

        assert len(Store(root / "checkpoints").names()) == 2, where
        assert sorted(f"{path.relative_to(root)}" for path in root.rglob("log")) == [
            "output/log",
            "pieces/000001/log",
            "pieces/000002/log",
        ], where
        shutil.rmtree(base / "results")
        brought_back(base)
        assert outputs_now(base) == expected, where


@in_parts
def test_a_restore_that_is_killed_at_any_step_leaves_no_run_or_a_whole_one(
    tmp_path: Path, template: Path, part: int
) -> None:
    copy_now(template, template / "backup")
    shutil.rmtree(template / "results")

    for where, base in killed_everywhere(tmp_path, template, "results", brought_back, part):
        places = job(base).places
        if not places.root.exists():
            brought_back(base)
        everything_visible_is_whole(Store(places.checkpoints))
        assert result(base) == whole_result(4), where
        assert len([one for one in history(job(base)) if one.kind is EndKind.PAUSED]) == 4, where
        assert not list((base / "results").glob(".*")), where
