"""A chain runs to its goal, and what it leaves is what the pages promise."""

import json
import os

from support.workdir import WorkDir, one_step_segments

from unbroken.store.history import EndKind


def test_a_chain_runs_to_its_goal_and_the_same_command_then_does_nothing(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=4, goal=4)})

    first, second = work.snakemake(), work.snakemake()

    assert (first.code, first.planned, second.code) == (0, 4, 0)
    assert "Nothing to be done (all requested files are present and up to date)." in second.text.splitlines()
    assert [attempt.progress_to for attempt in work.history("demo")] == [1, 2, 3, 4]
    assert work.final("demo") == whole(4)


def test_every_segment_leaves_a_record_of_its_checkpoint(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=3, keep=3)})

    work.snakemake()

    records = work.records("demo")
    assert [(record.segment, record.kind, record.progress.done) for record in records] == [
        (1, EndKind.PAUSED, 1),
        (2, EndKind.PAUSED, 2),
        (3, EndKind.FINISHED, 3),
    ]
    assert [record.checkpoint for record in records] == [
        path.name for path in sorted(work.places("demo").checkpoints.glob("0*"))
    ]


def test_the_links_and_the_summary_name_the_last_checkpoint(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=2)})

    work.snakemake()

    places = work.places("demo")
    last = work.records("demo")[-1].checkpoint
    assert os.readlink(places.checkpoints / "latest") == last
    assert json.loads((places.final / "summary.json").read_text())["checkpoint"] == last


def test_a_run_that_ends_early_passes_its_finish_on_and_leaves_the_plan(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=2)})

    done = work.snakemake()

    assert done.code == 0
    assert [record.has_worked for record in work.records("demo")] == [True, True, False, False, False]
    assert len(work.history("demo")) == 2
    assert work.plan() == 0


def test_a_dry_run_counts_the_segments_that_are_still_to_do(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=5)})

    before = work.plan()
    work.snakemake("results/demo/segments/002.json")
    middle = work.plan()
    work.snakemake()

    assert (before, middle, work.plan()) == (5, 3, 0)


def test_a_dry_run_leaves_nothing_behind(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=5, goal=5)})

    work.plan()

    assert not (work.root / "results").exists()
    assert not (work.root / "logs").exists()


def test_several_runs_go_forward_in_one_call(work: WorkDir, whole) -> None:
    runs = {f"seed_{seed}": one_step_segments(segments=2, goal=2) for seed in (0, 1, 2)}
    for seed in (1, 2):
        runs[f"seed_{seed}"]["settings"]["seed"] = seed
    work.configure(runs)

    done = work.snakemake()

    assert (done.code, done.planned) == (0, 6)
    assert [work.final(f"seed_{seed}") for seed in (0, 1, 2)] == [whole(2, seed) for seed in (0, 1, 2)]


def test_a_chain_of_twelve_segments_loses_and_doubles_nothing(work: WorkDir, whole) -> None:
    work.configure({"long": one_step_segments(segments=12, goal=12)})

    done = work.snakemake()

    assert (done.code, done.planned) == (0, 12)
    assert [attempt.progress_to for attempt in work.history("long")] == list(range(1, 13))
    assert work.final("long") == whole(12)
