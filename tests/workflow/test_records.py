"""Records are cheap: whatever is lost of them is made anew from the store, and no work is done again."""

import os
import shutil
import time

import pytest
from support.workdir import WorkDir, one_step_segments


@pytest.mark.parametrize("goal", [3, 9], ids=["finished", "unfinished"])
@pytest.mark.parametrize("lost", [[1, 2, 3], [2], [3]], ids=["all", "in the middle", "the last"])
def test_lost_records_are_made_anew_without_work(work: WorkDir, whole, lost: list[int], goal: int) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=goal)})
    work.snakemake()
    for segment in lost:
        work.places("demo").record(segment).unlink()

    done = work.snakemake()

    assert done.code == 0
    assert len(work.history("demo")) == 3
    assert work.records("demo")[-1].progress.done == 3
    if goal == 3:
        assert work.final("demo") == whole(3)
    else:
        assert [record.segment for record in work.records("demo")] == [1, 2, 3]
    assert work.plan() == 0


def test_lost_records_do_not_hide_the_segments_that_are_new(work: WorkDir) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=9)})
    work.snakemake()
    shutil.rmtree(work.places("demo").segments)
    work.configure({"demo": one_step_segments(segments=5, goal=9)})

    work.snakemake()

    assert [attempt.progress_to for attempt in work.history("demo")] == [1, 2, 3, 4, 5]
    assert [attempt.segment for attempt in work.history("demo")] == [1, 2, 3, 4, 5]


def test_a_record_from_the_future_holds_no_run_up(work: WorkDir, whole) -> None:
    """A clock was set back, or the files were restored: Snakemake fails a job whose input is newer than its output."""
    work.configure({"demo": one_step_segments(segments=1, goal=3)})
    work.snakemake()
    tomorrow = time.time() + 86400
    (claim,) = work.places("demo").lease.glob("*.json")
    for path in (work.places("demo").record(1), claim):
        os.utime(path, (tomorrow, tomorrow))
    work.configure({"demo": one_step_segments(segments=3, goal=3)})

    done = work.snakemake()

    assert (done.code, work.final("demo")) == (0, whole(3)), done.text
    assert len(work.history("demo")) == 3
    assert work.plan() == 0


def test_forcing_every_rule_computes_nothing_again(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=3, goal=3)})
    work.snakemake("results/demo/segments/002.json")

    done = work.snakemake("--forceall")

    assert (done.code, done.planned) == (0, 3)
    assert [attempt.progress_to for attempt in work.history("demo")] == [1, 2, 3]
    assert work.final("demo") == whole(3)


def test_a_spoilt_record_does_not_stop_the_run(work: WorkDir, whole) -> None:
    work.configure({"demo": one_step_segments(segments=2, goal=4)})
    work.snakemake()
    work.places("demo").record(2).write_text("{")
    work.configure({"demo": one_step_segments(segments=4, goal=4)})

    done = work.snakemake()

    assert done.code == 0
    assert [attempt.progress_to for attempt in work.history("demo")] == [1, 2, 3, 4]
    assert work.final("demo") == whole(4)
