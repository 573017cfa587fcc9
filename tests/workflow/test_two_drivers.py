"""Two drivers in one folder: one writer at a time, and the same result."""

import itertools
import os
import signal

import pytest
from support.workdir import Driver, WorkDir, one_long_segment, one_step_segments, overlaps, until


def both_end(work: WorkDir, is_at_work: bool) -> tuple[Driver, Driver]:
    """Two drivers at their ends, started together, or the second when the first has saved something."""
    before = work.saved("demo")
    first = work.start()
    until(lambda: not is_at_work or work.saved("demo") > before or first.process.poll() is not None)
    second = work.start()
    first.wait()
    second.wait()
    return first, second


@pytest.mark.parametrize("is_at_work", [False, True], ids=["together", "the second in the middle"])
def test_two_drivers_compute_nothing_twice(work: WorkDir, whole, is_at_work: bool) -> None:
    # On a busy machine a segment comes less far, so more of them are needed.
    for segments in itertools.count(9, 9):
        run = one_long_segment(goal=300, segments=segments, segment_minutes=0.02, keep=1000)
        work.configure({"demo": run, "short": one_step_segments(segments=6, goal=6)})
        first, second = both_end(work, is_at_work)
        assert (first.process.returncode, second.process.returncode) == (0, 0), first.text + second.text
        if work.places("demo").final.exists():
            break

    for name, goal in (("demo", 300), ("short", 6)):
        attempts = work.history(name)
        assert list(overlaps(attempts)) == []
        assert sum(attempt.progress_to - attempt.progress_from for attempt in attempts) == goal
        assert work.final(name) == whole(goal)


def test_with_snakemakes_own_lock_the_second_driver_says_so_and_harms_nothing(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=300)})
    words = ("--workflow-profile", "none", "--cores", "1", "--rerun-triggers", "mtime")

    first = work.start(*words)
    until(lambda: work.processes("unbroken.engines.toy.program"))
    (program,) = work.processes("unbroken.engines.toy.program")
    os.kill(program, signal.SIGSTOP)  # the lock is held until the other one has met it
    # Not both at once: Snakemake looks for a lock before it makes its own, so that both may find none.
    refused = work.start(*words).wait()
    os.kill(program, signal.SIGCONT)
    done = first.wait()

    assert (done.code, refused.code) == (0, 1)
    assert "LockException" in refused.text
    assert work.final("demo") == whole(300)
    assert len(work.history("demo")) == 1
