"""The promise: a copy, or a rebuilding, that is killed at any step is no harm: nothing half is taken for whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from protocol.kill_harness import Steps, forked
from support.copying import STEP, copies, copy_now, job, result, step, whole_result
from support.toyrun import ProgramEngine, history, toy_job

from unbroken.copies import transfer
from unbroken.copies.restore import restore
from unbroken.copies.transfer import drafts
from unbroken.runs import lease
from unbroken.runs.outcome import Outcome
from unbroken.runs.select import verify
from unbroken.runs.store import Store
from unbroken.segment.lifecycle import run_segment
from unbroken.system import host

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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill is no power loss
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 1000.0)
    monkeypatch.setattr(transfer, "_CHUNK_BYTES", 60)
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
        assert not drafts(store.root) and not drafts(store.archive), where
        shutil.rmtree(base / "results")
        restore("demo", base / "backup", base, lambda line: None)
        assert result(base) == whole_result(4), where


@in_parts
def test_a_rebuilding_that_is_killed_at_any_step_leaves_no_run_or_a_whole_one(
    tmp_path: Path, template: Path, part: int
) -> None:
    copy_now(template, template / "backup")
    shutil.rmtree(template / "results")

    def rebuild(base: Path) -> None:
        restore("demo", base / "backup", base, lambda line: None)

    for where, base in killed_everywhere(tmp_path, template, "results", rebuild, part):
        places = job(base).places
        if not places.root.exists():
            rebuild(base)
        everything_visible_is_whole(Store(places.checkpoints))
        assert result(base) == whole_result(4), where
        assert len([one for one in history(job(base)) if one.outcome is Outcome.PAUSED]) == 4, where
        assert not list((base / "results").glob(".*")), where
