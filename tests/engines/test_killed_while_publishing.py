"""A job that is killed after its program has left: what that left is published by the next job, and not made again."""

import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from engines.conformance import Case
from support.command_jobs import command_job, command_segment, walker_settings
from support.disks import mount_small, unmount
from support.killed_publishing import killed_while_publishing
from support.toyrun import checkpoints, history, program, run_program, toy_job

from unbroken.engines.base import Task, When
from unbroken.engines.command.engine import CommandEngine
from unbroken.errors import StorageError
from unbroken.program import contract
from unbroken.program.contract import HandedOver
from unbroken.store.history import EndKind
from unbroken.store.record import Record

pytestmark = pytest.mark.process

COUNTER = Path(__file__).parents[1] / "support" / "counter.py"
START = [sys.executable, "-I", "-S", str(COUNTER), "--goal", "300", "--steps"]
SAYS = {"progress_file": "state.txt", "progress_pattern": r"^step (\d+)$", "goal": 300}


def counter(steps: int, step_seconds: float = 0, **settings: object) -> dict[str, object]:
    """Saves only as it leaves."""
    start = [*START, str(steps), "--step-seconds", str(step_seconds)]
    return {"start": start, "files": ["state.txt"], "saved_by": "exit", "exit_paused": [85], **settings}


# For `make soak`: a killed piece is made again, one that was handed over is not, and every piece has the same rows.
CASE = Case(
    engine="command",
    settings=counter(60, **SAYS, outputs={"table.csv": "rows"}, step_seconds=0.02),
    whole_settings=counter(60, **SAYS, outputs={"table.csv": "rows"}),
    segments=8,
    segment_minutes=0.5,
    save_minutes=1,
    final_files=("table.csv",),
    other_settings={},
    further_goal=400,
)


def test_of_a_program_that_saves_as_it_leaves(tmp_path: Path) -> None:
    settings = counter(200, **SAYS, outputs={"table.csv": "rows"})
    killed_while_publishing(tmp_path, settings=settings)

    record = command_segment(tmp_path, settings, attempt=2)

    job = command_job(tmp_path, settings)
    assert [(one.kind, one.progress_from, one.progress_to) for one in history(job)] == [
        (EndKind.DIED, 0, 200),
        (EndKind.FINISHED, 200, 300),
    ]
    saved = checkpoints(job)[0].passport
    assert (saved.token, saved.progress.done, saved.progress.goal, saved.progress.unit) == (1, 200, 300, "steps")
    assert record.kind is EndKind.FINISHED
    rows = (job.places.final / "table.csv").read_text().splitlines()[2:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(10, 301, 10))
    assert not list(job.places.work.iterdir())


@pytest.mark.parametrize("says", [SAYS, {}], ids=["says how far", "counted"])
def test_of_a_program_that_is_done(tmp_path: Path, says: Mapping[str, object]) -> None:
    """It is not started again, and its results are there."""
    settings = counter(300, **says)
    killed_while_publishing(tmp_path, settings=settings)

    record = command_segment(tmp_path, settings, attempt=2)

    job = command_job(tmp_path, settings)
    assert record.kind is EndKind.FINISHED
    assert [one.kind for one in history(job)] == [EndKind.DIED, EndKind.FINISHED]
    assert (job.places.final / "table.csv").read_text().splitlines()[-1] == "300,90000"


def test_of_a_program_that_says_nothing_of_its_progress(tmp_path: Path) -> None:
    settings = counter(200)
    killed_while_publishing(tmp_path, settings=settings)

    record = command_segment(tmp_path, settings, attempt=2)

    job = command_job(tmp_path, settings)
    assert [(one.kind, one.progress_to) for one in history(job)] == [(EndKind.DIED, 1), (EndKind.FINISHED, 2)]
    assert [each.passport.progress.unit for each in checkpoints(job)] == ["checkpoints", "checkpoints"]
    assert record.kind is EndKind.FINISHED


def test_of_the_last_state_of_a_program_that_saves_again_and_again(tmp_path: Path) -> None:
    """It waits for the results, which the program writes after it; so a running program's is never taken."""
    settings = walker_settings(step_seconds=0, style="rename")
    killed_while_publishing(tmp_path, settings=settings)

    record = command_segment(tmp_path, settings, attempt=2)

    job = command_job(tmp_path, settings)
    assert (record.kind, record.progress.done) == (EndKind.FINISHED, 200)
    assert [one.kind for one in history(job)] == [EndKind.DIED, EndKind.FINISHED]
    rows = (job.places.final / "trace.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(201))


@pytest.mark.parametrize("style", ["numbered", "rename", "marker"])
def test_of_a_program_that_is_at_work_no_row_of_its_outputs_is_there_twice(tmp_path: Path, style: str) -> None:
    """By now its folder may have more than what was being published; a quick program may have come to its end."""
    settings = walker_settings(step_seconds=0.02, style=style)
    killed_while_publishing(tmp_path, settings=settings)

    record = command_segment(tmp_path, settings, attempt=2)

    job = command_job(tmp_path, settings)
    died, *after = history(job)
    assert died.kind is EndKind.DIED
    assert died.progress_to > 0
    assert all(each.progress_from == died.progress_to for each in after)
    assert record.kind is EndKind.FINISHED
    rows = (job.places.final / "trace.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(201))


def test_a_second_job_that_is_killed_at_the_same_step_spoils_nothing(tmp_path: Path) -> None:
    settings = counter(200, **SAYS)
    killed_while_publishing(tmp_path, settings=settings)
    killed_while_publishing(tmp_path, settings=settings, attempt=2)

    command_segment(tmp_path, settings, attempt=3)

    job = command_job(tmp_path, settings)
    assert [each.passport.token for each in checkpoints(job)] == [1, 3]
    assert [each.passport.progress.done for each in checkpoints(job)] == [200, 300]


def test_on_a_disk_that_is_full_it_waits_for_the_job_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has no hard links, so that the copy needs room."""
    monkeypatch.setattr(contract, "link_or_copy", shutil.copy2)
    mount_small(tmp_path, "size=6m")
    try:
        settings = counter(100, **SAYS)
        command_segment(tmp_path, settings)
        killed_while_publishing(tmp_path, 2, settings=settings)
        filler = tmp_path / "filler"

        def full(engine: CommandEngine, task: Task, when: When) -> list[HandedOver]:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            return []

        with monkeypatch.context() as disk, pytest.raises(StorageError, match=r"No space left on device|no room left"):
            disk.setattr(CommandEngine, "states", full)
            command_segment(tmp_path, settings, 2, 2)
        filler.unlink()

        command_segment(tmp_path, settings, 2, 3)

        saved = [each.passport for each in checkpoints(command_job(tmp_path, settings))]
        assert (2, 200) in [(each.token, each.progress.done) for each in saved]
    finally:
        unmount(tmp_path)


def _of_the_contract(tmp_path: Path, *words: object, then: str = "one_step") -> Callable[[], Record]:
    killed_while_publishing(tmp_path, command=program(*words), goal=100)
    return lambda: run_program(tmp_path, program(then), attempt=2, goal=100)


def test_of_files_straight_in_the_save_folder(tmp_path: Path) -> None:
    record = _of_the_contract(tmp_path, "loose", 85)()

    job = toy_job(tmp_path, goal=100)
    assert [one.passport.token for one in checkpoints(job)] == [1, 2]
    assert [one.passport.progress.done for one in checkpoints(job)] == [1, 2]
    assert record.kind is EndKind.PAUSED


def test_of_files_straight_in_the_save_folder_of_a_program_that_is_done(tmp_path: Path) -> None:
    record = _of_the_contract(tmp_path, "loose", 0)()

    job = toy_job(tmp_path, goal=100)
    assert [one.passport.token for one in checkpoints(job)] == [1]
    assert record.kind is EndKind.FINISHED
    assert [one.kind for one in history(job)] == [EndKind.DIED, EndKind.FINISHED]
