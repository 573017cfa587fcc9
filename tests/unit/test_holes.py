"""Segments that take less than their length where the queue has no more (`segment_minutes: {at_least, at_most}`)."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from support.toyrun import history, start_segment, toy_job, toy_run

from snakemake_executor_plugin_unbroken.holes import Holes
from snakemake_executor_plugin_unbroken.job_outcome import Evidence, Follows, verdict
from snakemake_executor_plugin_unbroken.segments import Out, Segment
from unbroken.plan.slurm_jobs import unused_holes
from unbroken.runs.outcome import Outcome
from unbroken.segment.classify import NEARLY_ALL
from unbroken.slurm import time_min

SLOW = {"goal": 10**9, "step_seconds": 0.01, "save_steps": 0, "least_minutes": 0.01, "segment_minutes": 0.1}


PAUSES_AT_ONCE = """
import os, pathlib
save = pathlib.Path(os.environ["UNBROKEN_SAVE"])
(save / "state").write_text("1")
(save / "progress.json").write_text('{"done": 1, "goal": 9, "unit": "steps"}')
raise SystemExit(85)
"""


def in_slurm(seconds: float, job: str = "17") -> dict[str, str]:
    """A job of Slurm that says its end; where squeue is not to be had, its variable counts."""
    return {"SLURM_JOB_ID": job, "SLURM_JOB_END_TIME": f"{time.time() + seconds:.0f}", "PATH": "/usr/bin:/bin"}


def test_a_job_that_got_less_than_a_segment_leaves_it_to_be_done_until_it_has_had_its_length(tmp_path: Path) -> None:
    """The jobs get half of a segment: 3 s of 6, more where a busy machine needs as long to start the job's programs.

    There a job has no time to step at all, and fails.
    """
    for given in (3, 12, 48):
        base = tmp_path / str(given)
        slow = {**SLOW, "segment_minutes": 2 * given / 60}
        job = toy_job(base, **slow)
        ends = []
        while not job.places.record(1).exists() and len(ends) < 8:
            ends.append(start_segment(base, environment=in_slurm(given, str(len(ends))), **slow).end())
        if len(history(job)) > 1 and all(attempt.outcome is not Outcome.FAILED for attempt in history(job)):
            break

    *partial, last = attempts = history(job)
    had = [sum(attempt.work_seconds for attempt in attempts[:count]) for count in range(1, 1 + len(attempts))]
    assert len(partial) >= 1 and {attempt.outcome for attempt in partial} == {Outcome.INTERRUPTED}
    assert last.outcome is Outcome.PAUSED
    assert had[-2] < NEARLY_ALL * 2 * given <= had[-1]
    assert [attempt.segment for attempt in attempts] == [1] * len(attempts)
    assert all(after.progress_from == before.progress_to > 0 for before, after in pairwise(attempts))
    assert f"of {2 * given / 60:g} minutes and goes on in the next job" in partial[0].message
    assert ends[0].error.startswith("PartialSegment: ")
    assert "Slurm gives this job" in ends[0].screen


def test_a_segment_of_one_length_is_over_with_a_job_that_got_less(tmp_path: Path) -> None:
    start_segment(tmp_path, environment=in_slurm(8), **{**SLOW, "least_minutes": None}).end()

    assert [attempt.outcome for attempt in history(toy_job(tmp_path))] == [Outcome.PAUSED]


def test_a_program_that_leaves_long_before_its_hole_is_over_ends_the_segment(tmp_path: Path) -> None:
    """Else one that pauses after each step would make jobs for ever."""
    once = [sys.executable, "-c", PAUSES_AT_ONCE]
    start_segment(tmp_path, command=once, environment=in_slurm(60), **{**SLOW, "segment_minutes": 10}).end()

    assert [attempt.outcome for attempt in history(toy_job(tmp_path))] == [Outcome.PAUSED]


def test_a_hole_is_shorter_by_the_same_factor_with_each_offer() -> None:
    """And in the end there is none any more."""
    assert time_min.offers(60, 480) == [240, 120, 60, time_min.NOTHING_LESS]
    assert time_min.offers(1, 8) == [4, 2, 1, time_min.NOTHING_LESS]
    assert time_min.offers(50.5, 60.2) == [58, 55, 51, time_min.NOTHING_LESS]
    assert time_min.offers(1, 2) == [1, time_min.NOTHING_LESS]  # no whole minute lies between
    assert time_min.offers(9, 9) == []


def test_an_offer_stands_for_a_twentieth_of_the_least_length_and_none_for_longer() -> None:
    assert (time_min.offered_seconds(60, 240), time_min.offered_seconds(1, 4)) == (180, time_min.LEAST_SECONDS)
    assert time_min.offered_seconds(60, time_min.NOTHING_LESS) == 900


@pytest.mark.parametrize(
    ("said", "is_whole"),
    [
        ("SLURM_VERSION           = 22.05.8\n", False),
        ("SLURM_VERSION           = 25.05.2\n", False),
        ("SLURM_VERSION           = 25.05.3\n", True),
        ("SLURM_VERSION           = 25.11.0-0rc1\n", True),
        ("SLURM_VERSION           = 26.05.3\n", True),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller\n", False),
        (None, False),
    ],
)
def test_holes_are_given_whole_from_25_05_3_on(
    said: str | None, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_min, "ask", lambda *words: said)

    assert time_min.gives_whole_holes() is is_whole


def test_what_jobs_accept_is_lowered_step_by_step_and_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call is not answered, and made again."""
    said: list[tuple[list[str], int]] = []
    clock = [1000.0]
    monkeypatch.setattr("snakemake_executor_plugin_unbroken.holes.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(time_min, "gives_whole_holes", lambda: False)
    monkeypatch.setattr(time_min, "accept", lambda jobs, minutes: said.append((list(jobs), minutes)) or len(said) != 2)
    run, plain = toy_run(least_minutes=60, segment_minutes=480), toy_run(segment_minutes=480)
    first, second, other = (
        Out(Segment(made, number, "toy_segment", ("demo", f"{number:03d}")), str(number))
        for number, made in enumerate((run, run, plain), 1)
    )
    holes = Holes()

    holes.look([first, second, other])  # nothing is due at once
    for _ in range(2):
        clock[0] += 181
        holes.look([first, second, other])
    second.first_heard = clock[0]  # it has begun
    for _ in range(8):
        clock[0] += 181
        holes.look([first, second, other])

    assert said == [(["1", "2"], 240), (["1", "2"], 120), (["1"], 120), (["1"], 60), (["1"], 0), (["1"], 240)]
    assert holes.words(run) == []


def test_where_holes_are_given_whole_sbatch_is_told_and_nothing_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_min, "gives_whole_holes", lambda: True)
    monkeypatch.setattr(time_min, "accept", lambda *_: pytest.fail("lowered"))
    run = toy_run(least_minutes=59.5, segment_minutes=480)
    holes = Holes()

    holes.look([Out(Segment(run, 1, "toy_segment", ("demo", "001")), "1")])

    assert holes.words(run) == ["--time-min=60"]
    assert holes.words(toy_run()) == []


def test_the_same_segment_goes_on_after_a_job_that_used_its_hole(tmp_path: Path) -> None:
    start_segment(tmp_path, environment=in_slurm(8), **{**SLOW, "segment_minutes": 0.5}).end()
    (attempt,) = history(toy_job(tmp_path))
    segment = Segment(toy_run(), 1, "toy_segment", ("demo", "001"))

    found = verdict(segment, "17", Evidence("COMPLETED", attempt))

    assert (found.follows, found.line) == (Follows.AGAIN, f"demo segment 1: job 17: {attempt.message}")


def test_an_executor_that_uses_no_holes_is_told_of() -> None:
    runs = [toy_run(least_minutes=60, segment_minutes=480), toy_run()]

    (line,) = unused_holes(runs, "slurm")
    assert line.startswith("runs.demo.segment_minutes: under executor: slurm only at_most counts")
    assert unused_holes([runs[0]] * 3, "slurm")[0].startswith("runs.demo.segment_minutes (and 2 more runs): ")
    assert unused_holes(runs, "unbroken") == unused_holes([toy_run()], "slurm") == []
