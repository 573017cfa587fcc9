"""Two drivers in one folder: one writer at a time, and the same result."""

import os
import signal
import time

import pytest
from support.workdir import Driver, WorkDir, one_long_segment, one_step_segments, overlaps, until


def both_end(work: WorkDir, delay_seconds: float) -> tuple[Driver, Driver]:
    """Two drivers, started so soon one after the other, at their ends."""
    first = work.start()
    time.sleep(delay_seconds)
    second = work.start()
    first.wait()
    second.wait()
    return first, second


@pytest.mark.parametrize("delay_seconds", [0, 1.5], ids=["together", "the second in the middle"])
def test_two_drivers_compute_nothing_twice(work: WorkDir, whole, delay_seconds: float) -> None:
    run = one_long_segment(goal=300, segments=9, segment_minutes=0.02, keep=1000)
    work.configure({"demo": run, "short": one_step_segments(segments=6, goal=6)})

    first, second = both_end(work, delay_seconds)

    assert (first.process.returncode, second.process.returncode) == (0, 0), first.text + second.text
    for name, goal in (("demo", 300), ("short", 6)):
        attempts = work.history(name)
        assert list(overlaps(attempts)) == []
        assert sum(attempt.progress_to - attempt.progress_from for attempt in attempts) == goal
        assert work.final(name) == whole(goal)


def test_with_snakemakes_own_lock_the_second_driver_says_so_and_harms_nothing(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=300)})
    words = ("--workflow-profile", "none", "--cores", "1", "--rerun-triggers", "mtime")

    first, second = work.start(*words), work.start(*words)
    until(lambda: work.processes("longhaul.toy"))
    (program,) = work.processes("longhaul.toy")
    os.kill(program, signal.SIGSTOP)  # the lock is held until the other one has met it
    until(lambda: first.process.poll() is not None or second.process.poll() is not None)
    os.kill(program, signal.SIGCONT)
    first.wait()
    second.wait()

    assert sorted((first.process.returncode, second.process.returncode)) == [0, 1]
    refused = first if first.process.returncode else second
    assert "LockException" in refused.text
    assert work.final("demo") == whole(300)
    assert len(work.history("demo")) == 1
