"""Segments that take less than their length where the queue has no more (`segment_minutes: {at_least, at_most}`)."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from support.toyrun import history, start_segment, toy_job, toy_run

from unbroken.job.deadline import NEARLY_ALL
from unbroken.job.policy import Next, Rules, Situation, next_action
from unbroken.plan.slurm_jobs import unused_least_minutes
from unbroken.slurm import client, sbatch
from unbroken.store.history import EndKind

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


@pytest.mark.process
def test_a_job_that_got_less_than_a_segment_leaves_it_to_be_done_until_it_has_had_its_length(tmp_path: Path) -> None:
    """The jobs get half of a segment: 3 s of 6, more where a busy machine needs as long to start the job's programs.

    There a job has no time to step at all, and fails.
    """
    for given in (3, 12, 48):
        base = tmp_path / str(given)
        base.mkdir()
        slow = {**SLOW, "segment_minutes": 2 * given / 60}
        job = toy_job(base, **slow)
        ends = []
        while not job.places.record(1).exists() and len(ends) < 8:
            ends.append(start_segment(base, environment=in_slurm(given, str(len(ends))), **slow).end())
        if len(history(job)) > 1 and all(attempt.kind is not EndKind.FAILED for attempt in history(job)):
            break

    *partial, last = attempts = history(job)
    had = [sum(attempt.work_seconds for attempt in attempts[:count]) for count in range(1, 1 + len(attempts))]
    assert len(partial) >= 1 and {attempt.kind for attempt in partial} == {EndKind.INTERRUPTED}
    assert last.kind is EndKind.PAUSED
    assert had[-2] < NEARLY_ALL * 2 * given <= had[-1]
    assert [attempt.segment for attempt in attempts] == [1] * len(attempts)
    assert all(after.progress_from == before.progress_to > 0 for before, after in pairwise(attempts))
    assert f"of {2 * given / 60:g} minutes and goes on in the next job" in partial[0].message
    assert ends[0].error.startswith("PartialSegment: ")
    assert "Slurm gives this job" in ends[0].screen


@pytest.mark.process
def test_a_segment_of_one_length_is_over_with_a_job_that_got_less(tmp_path: Path) -> None:
    start_segment(tmp_path, environment=in_slurm(8), **{**SLOW, "least_minutes": None}).end()

    assert [attempt.kind for attempt in history(toy_job(tmp_path))] == [EndKind.PAUSED]


@pytest.mark.process
def test_a_program_that_leaves_long_before_its_time_is_over_ends_the_segment(tmp_path: Path) -> None:
    """Else one that pauses after each step would make jobs for ever."""
    once = [sys.executable, "-c", PAUSES_AT_ONCE]
    start_segment(tmp_path, command=once, environment=in_slurm(60), **{**SLOW, "segment_minutes": 10}).end()

    assert [attempt.kind for attempt in history(toy_job(tmp_path))] == [EndKind.PAUSED]


@pytest.mark.parametrize(
    ("said", "gives_all"),
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
def test_a_job_gets_all_the_time_that_is_free_from_25_05_3_on(
    said: str | None, gives_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: said)

    assert sbatch.gives_all_time() is gives_all


def test_sbatch_gets_whole_minutes() -> None:
    assert sbatch.time_min_words(59.5) == ["--time-min=60"]


@pytest.mark.process
def test_the_same_segment_goes_on_after_a_job_that_used_its_time(tmp_path: Path) -> None:
    start_segment(tmp_path, environment=in_slurm(8), **{**SLOW, "segment_minutes": 0.5}).end()

    found = next_action(history(toy_job(tmp_path)), Rules(2), Situation(1))

    assert found.kind is Next.RESUME


RUNS = [toy_run(least_minutes=60, segment_minutes=480), toy_run()]


def test_a_driver_that_cannot_give_less_time_says_that_at_most_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: "SLURM_VERSION = 22.05.8\n")
    where, needs = (
        "runs.demo.segment_minutes",
        "at_least needs executor: unbroken, and Slurm 25.05.3 or later; to say so, type segment_minutes: 480",
    )

    for executor in ("slurm", "unbroken"):
        assert unused_least_minutes(RUNS, executor) == [f"{where}: at_most alone counts; {needs}"]
    assert unused_least_minutes(RUNS[:1] * 3, "slurm") == [f"{where} (and 2 more runs): at_most alone counts; {needs}"]


def test_nothing_is_said_where_less_time_is_given_or_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: "SLURM_VERSION = 25.05.3\n")

    assert unused_least_minutes(RUNS, "unbroken") == unused_least_minutes(RUNS, "local") == []
    assert unused_least_minutes(RUNS[1:], "slurm") == []
