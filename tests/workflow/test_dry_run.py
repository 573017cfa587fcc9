"""A dry run, and whatever else only asks, changes nothing and lists exactly what a start would do."""

import re
import shutil
from collections.abc import Callable

import pytest
from support.snapshots import Snapshot, snapshot
from support.workdir import Done, WorkDir, one_step_segments


def finished(work: WorkDir) -> None:
    """Four segments, of which the last two had nothing left to do, and one run beside that is not over."""
    work.configure({"demo": one_step_segments(segments=4, goal=2), "other": one_step_segments(segments=1, goal=3)})
    done = work.snakemake("-c1")
    assert done.code == 0, done.text


def raise_goal(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=4), "other": one_step_segments(segments=1, goal=3)})


def lose_final(work: WorkDir) -> None:
    shutil.rmtree(work.places("demo").final)


# What makes work, the segments that are listed, and how many of them need a job.
CHANGES: dict[str, tuple[Callable[[WorkDir], None], list[str], int]] = {
    "goal raised": (raise_goal, ["003", "004", "005"], 2),
    "final lost": (lose_final, ["004"], 1),
    "nothing": (lambda work: None, [], 0),
}


def jobs(done: Done) -> list[str]:
    """The segments that are listed, or were started, in order."""
    assert done.code == 0, done.text
    return re.findall(r"output: results/demo/segments/(\d+)\.json", done.text)


def ours(work: WorkDir) -> dict[str, Snapshot]:
    folders = ("results", "logs", ".snakemake/unbroken", "config")
    return {name: snapshot(work.root / name) for name in folders if (work.root / name).exists()}


@pytest.mark.parametrize("change", CHANGES)
def test_a_dry_run_changes_nothing_and_lists_what_the_start_then_does(work: WorkDir, whole, change: str) -> None:
    finished(work)
    make, expected, needed = CHANGES[change]
    make(work)
    before = ours(work)

    listed = [jobs(work.snakemake("-n")) for _ in range(2)]
    untouched = ours(work) == before
    started = work.snakemake("-c1")

    assert listed == [expected, expected]
    assert untouched
    assert jobs(started) == expected[:needed]
    assert "were not present when the DAG was created" not in started.text
    goal = 4 if change == "goal raised" else 2
    assert [attempt.progress_to for attempt in work.history("demo")] == list(range(1, goal + 1))
    assert work.final("demo") == whole(goal)
    assert jobs(work.snakemake("-n")) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--summary",), "results/demo/segments/002.json"),
        (("--lint",), "Lints for rule"),
        (("--report", "report.html"), "Report created."),
        (("--list-rules",), "toy_segment"),
    ],
)
def test_whoever_only_asks_changes_nothing(work: WorkDir, words: tuple[str, ...], says: str) -> None:
    finished(work)
    raise_goal(work)
    before = ours(work)

    done = work.snakemake(*words)

    assert says in done.text
    assert ours(work) == before


def test_where_snakemake_runs_no_hooks_the_same_jobs_are_done(work: WorkDir, whole) -> None:
    """As where unbroken is a module of another workflow."""
    finished(work)
    raise_goal(work)

    done = work.snakemake("-c1", "--no-hooks")

    assert jobs(done) == ["003", "004", "005"]
    assert work.final("demo") == whole(4)
