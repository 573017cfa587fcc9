"""Whatever is killed, at whatever moment: the same command goes on, one writer at a time, the result unchanged."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.workdir import Driver, WorkDir, one_long_segment, overlaps, until

from unbroken.store.history import EndKind


def outcomes(work: WorkDir) -> list[EndKind]:
    return [attempt.kind for attempt in work.history("demo")]


def test_a_driver_restarted_beside_its_orphan_waits_and_takes_its_work_over(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=300)})
    first = work.start()
    until(lambda: work.saved("demo") >= 20)
    first.kill()
    (program,) = work.processes("unbroken.engines.toy.program")
    os.kill(program, signal.SIGSTOP)

    second = work.start()
    until(lambda: "demo segment 1: waiting" in second.text)
    os.kill(program, signal.SIGCONT)
    done = second.wait()

    assert done.code == 0
    assert "demo segment 1: waiting: the run is held, segment 1 by process " in done.text
    assert outcomes(work) == [EndKind.FINISHED]  # the orphan's; nobody computed it twice
    assert work.final("demo") == whole(300)


def test_a_driver_restarted_after_its_orphan_has_ended_computes_nothing_again(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=100)})
    first = work.start()
    until(lambda: work.saved("demo") >= 20)
    first.kill()
    until(lambda: not work.processes())

    done = work.snakemake()

    assert done.code == 0
    assert outcomes(work) == [EndKind.FINISHED]
    assert work.final("demo") == whole(100)


def test_after_everything_is_killed_the_same_segment_goes_on_from_its_last_checkpoint(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=200)})
    work.start()
    until(lambda: work.saved("demo") >= 60)
    work.kill_everything()
    saved = work.saved("demo")

    done = work.snakemake()

    died, finished = work.history("demo")
    assert done.code == 0
    assert (died.kind, died.segment) == (EndKind.DIED, 1)
    assert died.progress_to >= saved  # more if a state was handed over that nobody had published yet
    assert (finished.kind, finished.segment, finished.progress_from) == (EndKind.FINISHED, 1, died.progress_to)
    assert work.final("demo") == whole(200)


def test_a_killed_segment_is_tried_again_by_the_same_driver(work: WorkDir, whole) -> None:
    work.configure({"demo": one_long_segment(goal=200)})
    driver = work.start()
    until(lambda: work.saved("demo") >= 40)
    os.kill(work.holder("demo"), signal.SIGKILL)

    done = driver.wait()

    assert done.code == 0
    assert outcomes(work) == [EndKind.DIED, EndKind.FINISHED]
    assert work.final("demo") == whole(200)


def test_a_program_dies_with_the_segment_that_watches_it(work: WorkDir) -> None:
    work.configure({"demo": one_long_segment(goal=10_000)})
    driver = work.start()
    until(lambda: work.saved("demo") >= 20)
    driver.kill()
    os.kill(work.holder("demo"), signal.SIGKILL)

    until(lambda: not work.processes("unbroken.engines.toy.program"), seconds=60)  # by itself it would count for 100


def test_ten_kills_at_random_moments_change_no_byte(work: WorkDir, whole) -> None:
    """Driver, segment, program, or all at once; then the same command, and nobody types --unlock."""
    goal = 1300
    work.configure({"demo": one_long_segment(goal, keep=1000)})
    dice = random.Random(20261121)
    for victim in dice.sample(["driver", "segment", "program", "all"] * 3, 10):
        driver = work.start()
        until(dice.choice(moments_of(work, driver)))
        time.sleep(dice.uniform(0, 0.2))
        if victim == "driver":
            driver.kill()
        elif victim == "all":
            work.kill_everything()
        else:
            needle = "unbroken.engines.toy.program" if victim == "program" else ".segment.py"
            for pid in work.processes(needle):
                with suppress(ProcessLookupError):  # its segment has just come to its end
                    os.kill(pid, signal.SIGKILL)
            driver.kill()
    assert 0 < work.saved("demo") < goal  # else the kills came too late to prove anything

    done = work.snakemake()

    chain = work.passports("demo")
    assert done.code == 0
    assert not any("--unlock" in driver.text for driver in work.drivers)
    assert [passport.parent_digest for passport in chain] == [None, *(passport.digest for passport in chain[:-1])]
    assert list(overlaps(work.history("demo"))) == []
    assert work.final("demo") == whole(goal)


def moments_of(work: WorkDir, driver: Driver) -> list[Callable[[], object]]:
    """What the run comes to next: it starts, or is further by so many steps, which an orphan may count as well."""
    saved = work.saved("demo")
    starts = [
        lambda: driver.text,
        lambda: work.processes(".segment.py"),
        lambda: work.processes("unbroken.engines.toy.program"),
    ]
    return [*starts, *(lambda further=further: work.saved("demo") >= saved + further for further in (1, 20, 60))]


@pytest.mark.parametrize("word", ["-n", "--summary", "--list-rules"])
def test_looking_at_a_killed_run_changes_nothing(work: WorkDir, word: str) -> None:
    work.configure({"demo": one_long_segment(goal=100)})
    work.start()
    until(lambda: work.saved("demo") >= 20)
    work.kill_everything()
    before = sorted(path for path in (work.root / "results").rglob("*"))

    work.snakemake(word)

    assert sorted(path for path in (work.root / "results").rglob("*")) == before
