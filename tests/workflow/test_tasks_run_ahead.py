"""A real Snakemake whose tasks on Slurm run ahead of it: no record is removed, made twice, or waited for."""

from pathlib import Path

import pytest
from support.slurm_at_hand import SlurmAtHand
from support.workdir import WorkDir, one_step_segments, until

from unbroken.store.history import EndKind


@pytest.fixture
def slurm(work: WorkDir, tmp_path: Path) -> SlurmAtHand:
    slurm = SlurmAtHand(work, tmp_path / "slurm")
    slurm.does_the_tasks()
    return slurm


def states(work: WorkDir, run: str) -> list[tuple[str, int, int]]:
    """Which record is which file, and when it was written."""
    paths = sorted(work.places(run).segments.glob("*.json"))
    return [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in paths]


def keeping_records(slurm: SlurmAtHand, work: WorkDir, most: int = 100) -> None:
    """Let sbatch keep a second name of each record: a file that is made again is another one."""
    folder = work.places("a").segments
    slurm.does_the_tasks(f'mkdir "$AT_HAND/kept"; ln {folder}/*.json "$AT_HAND/kept"; echo $n', most)


def is_untouched(slurm: SlurmAtHand, work: WorkDir) -> bool:
    kept = {path.name: path.stat().st_ino for path in (slurm.folder / "kept").iterdir()}
    return kept.items() <= {name: inode for name, inode, _ in states(work, "a")}.items()


def test_tasks_that_have_done_all_segments_before_snakemake_asks_are_taken_by_their_records(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    slurm.configure({"a": one_step_segments(4, goal=4)})
    keeping_records(slurm, work)

    done = work.snakemake()

    assert done.code == 0, done.text
    assert slurm.arrays == {"a": "1-6%1"}
    assert len(slurm.told) == 1
    assert [record.kind for record in work.records("a")] == [EndKind.PAUSED] * 3 + [EndKind.FINISHED]
    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3, 4]
    assert is_untouched(slurm, work)
    assert "SLURM run ID" not in done.text  # the Slurm plugin has no job of its own to submit
    assert work.plan() == 0


def test_a_target_in_mid_chain_is_all_that_its_tasks_do(work: WorkDir, slurm: SlurmAtHand) -> None:
    slurm.configure({"a": one_step_segments(6, goal=6)})

    done = work.snakemake("results/a/segments/003.json")

    assert done.code == 0, done.text
    assert slurm.arrays == {"a": "1-5%1"}
    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3]


def test_a_record_that_a_killed_driver_has_marked_as_incomplete_is_taken_as_it_is(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    """The driver marks it when it hears of the submission; the task had unmarked it before."""
    slurm.configure({"a": one_step_segments(4, goal=9)})
    keeping_records(slurm, work, most=2)
    driver = work.start("--unbroken-record-seconds", "600")
    until(lambda: list((work.root / ".snakemake" / "incomplete").glob("*")))
    driver.kill()
    slurm.does_the_tasks()

    done = work.snakemake()

    assert done.code == 0, done.text
    assert done.lines("unbroken: a segment 1") == ["unbroken: a segment 1: its work is done, no job needed"]
    assert slurm.arrays == {"a": "1-4%1"}  # of the two segments that were left
    assert is_untouched(slurm, work)
    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3, 4]


def test_a_record_that_appears_while_its_job_is_refused_is_taken_and_not_removed(
    work: WorkDir, slurm: SlurmAtHand
) -> None:
    """Snakemake removes the output of a job that it calls failed."""
    slurm.configure({"a": one_step_segments(3, goal=3)})
    slurm.does_the_tasks("echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1")

    done = work.snakemake()

    assert done.code == 0, done.text
    assert len(slurm.told) == 1
    assert [record.segment for record in work.records("a")] == [1, 2, 3]
    assert [attempt.segment for attempt in work.history("a")] == [1, 2, 3]
