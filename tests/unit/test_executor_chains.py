"""How `executor: unbroken` submits, finds and follows the job array of a run; Slurm's commands are scripts."""

import asyncio
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from support.driver import START, Driver, attempt, ended, ends_as, segment, shows
from support.newer import newer_spec
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_outages import age, slurm, submission

from snakemake_executor_plugin_unbroken.chain_specs import PATIENT_SHELL
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.job import submissions
from unbroken.job.end_note import exit_code_for
from unbroken.job.next_attempt import note_stop
from unbroken.job.spec import path_of, read
from unbroken.slurm.job import chain_comment
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.lease import take
from unbroken.store.record import read_record

pytestmark = pytest.mark.process

__all__ = ["slurm"]  # a fixture
SPEC = path_of("demo")


@pytest.fixture
def driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch, slurm)


def segments(last: int, **changes: object) -> list[Segment]:
    return [segment(number, **changes) for number in range(1, last + 1)]


def look(driver: Driver, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
    """One round of the thread that looks after jobs, in which Slurm is asked."""

    async def active() -> list[SubmittedJobInfo]:
        return [info async for info in driver.executor.check_active_jobs(infos)]

    driver.executor._queue._due = 0.0
    return asyncio.run(active())


def handed_over(driver: Driver) -> list[object]:
    """Let the threads that submit end, and return what Slurm was told by them."""
    driver.postponed()
    return driver.slurm.told


# --- one array, one spec ---


def test_a_run_is_one_array_of_its_segments_and_a_reserve_that_begins_to_age_at_once(driver: Driver) -> None:
    jobs = driver.plan(*segments(5))

    driver.executor.run_job(jobs[0])

    (told,) = driver.slurm.told
    assert told == [
        "-p",
        "short",
        f"--comment={chain_comment('demo')}",
        "--output=logs/demo/slurm-%A_%a.log",
        "--parsable",
        "--array=1-7%1",
        "--begin=now+2",
        f"--wrap={PATIENT_SHELL}{sys.executable} -m unbroken.job {SPEC}",
    ]
    assert driver.lines() == ["demo: submitted array of 7 tasks 101"]


def test_several_segments_of_a_run_that_are_asked_for_are_one_submission_and_one_spec(driver: Driver) -> None:
    jobs = driver.plan(*segments(5))

    driver.executor.run_job(jobs[0])
    shows(driver.slurm, "101_1 RUNNING", "101_[2-7%1] PENDING")
    written = SPEC.stat()
    for job in jobs[1:]:
        driver.executor.run_job(job)

    assert driver.submitted == jobs
    assert len(driver.slurm.told) == 1
    assert (SPEC.stat().st_ino, SPEC.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert driver.lines() == ["demo: submitted array of 7 tasks 101"]


def test_an_array_whose_note_was_removed_is_found_by_what_squeue_says_now(driver: Driver) -> None:
    """`rm -rf .snakemake` is a habit."""
    jobs = driver.plan(*segments(5))

    driver.executor.run_job(jobs[0])
    shows(driver.slurm, "101_1 RUNNING", "101_[2-7%1] PENDING")
    shutil.rmtree(".snakemake")
    driver.executor.run_job(jobs[1])

    assert len(driver.slurm.told) == 1
    assert driver.lines() == ["demo: submitted array of 7 tasks 101"]


def test_each_start_writes_the_spec_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.executor.run_job(driver.plan(*segments(2))[0])
    shows(driver.slurm, "101_1 RUNNING", "101_[2-4%1] PENDING")
    before = read(SPEC)

    again = Driver(monkeypatch, driver.slurm)
    again.executor.run_job(again.plan(*segments(5))[0])

    assert (before.last_segment, read(SPEC).last_segment) == (2, 5)
    assert len(driver.slurm.told) == 1


def test_the_spec_says_all_that_a_job_needs(driver: Driver) -> None:
    driver.executor.run_job(driver.plan(*segments(5))[0])

    spec = read(SPEC)

    assert (spec.key, spec.run, spec.last_segment, spec.retries, spec.start) == ("demo", segment().run, 5, 2, START)
    assert Path(spec.rule_job.script).name == "segment.py"
    assert spec.rule_job.command == ()
    assert spec.submission.refills


def test_a_corrupt_spec_is_written_again_and_one_of_a_newer_unbroken_stops_its_run_only(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    SPEC.parent.mkdir(parents=True)
    SPEC.write_text("{")
    driver.executor.run_job(driver.job(segment()))
    assert read(SPEC).key == "demo"

    newer_spec(read(SPEC), Path())
    again = Driver(monkeypatch, driver.slurm)
    job, other = again.job(segment()), again.job(segment(name="other"))
    again.executor.run_job(job)
    again.executor.run_job(other)

    assert (again.failed, job.attempt, again.submitted) == ([job], 3, [other])
    assert str(SPEC) in again.lines()[0]


def test_two_runs_are_two_arrays(driver: Driver) -> None:
    for name in ("demo", "demo2"):
        driver.executor.run_job(driver.job(segment(name=name)))

    assert driver.slurm.said("--comment") == [chain_comment("demo"), chain_comment("demo2")]


def test_without_a_driver_each_run_is_submitted_once_and_snakemake_goes_on(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch, slurm, is_detached=True)
    jobs = driver.plan(*segments(3), *segments(2, name="other"))

    for job in jobs:
        driver.executor.run_job(job)
    driver.executor.shutdown()

    assert driver.submitted == jobs
    assert slurm.said("--array") == ["1-5%1", "1-4%1"]
    assert driver.lines()[-1] == "jobs of 2 runs are in the queue, and you may log out; see: unbroken status"


# --- single jobs ---


def test_single_jobs_are_submitted_when_snakemake_asks_for_each_and_one_line_says_why(driver: Driver) -> None:
    jobs = driver.plan(*segments(3), is_single=True)

    driver.executor.run_job(jobs[0])
    first = read(SPEC)
    shows(driver.slurm, "101 COMPLETED")
    age()
    driver.executor.run_job(jobs[1])

    assert driver.slurm.said("--array") == []
    assert len(driver.slurm.told) == 2
    assert (first.submission.most_tasks, first.submission.refills) == (1, False)
    why = "its rule needs more of Snakemake than to start a script (conda:, container:, shadow: ...)"
    assert driver.lines() == [
        f"demo: single jobs instead of one array: {why}",
        "demo: submitted job 101",
        "demo: submitted job 102",
    ]


def test_the_next_single_job_waits_in_the_queue_while_the_one_before_is_about_to_leave(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is there, so Snakemake asks for the next segment; squeue still shows it at work."""
    jobs = driver.plan(*segments(3, goal=10**6), is_single=True)
    driver.executor.run_job(jobs[0])
    toy(Path(), goal=10**6, segment_minutes=0.001)
    _written_by("101")
    shows(driver.slurm, "101 RUNNING")

    driver.executor.run_job(jobs[1])

    assert len(driver.slurm.told) == 2
    assert driver.slurm.said("--dependency") == ["afterany:101"]
    assert driver.submitted == jobs[:2]


def _written_by(job_id: str) -> None:
    """Let the attempts of the run be those of a job."""
    path = RunFolder("demo").history
    attempts = History(path).attempts()
    path.unlink()
    for found in attempts:
        History(path).append(attempt(found.kind, segment=found.segment, token=found.token, slurm_job=job_id))


def test_a_single_job_that_does_the_segment_is_taken_over_and_not_submitted_again(driver: Driver) -> None:
    submission("17")
    shows(driver.slurm, "17 RUNNING")
    (job,) = driver.plan(segment(), is_single=True)

    driver.executor.run_job(job)

    assert (driver.submitted, driver.slurm.told) == ([job], [])


# --- a segment that needs no job ---


def state_of(path: Path) -> tuple[int, int, str]:
    return path.stat().st_ino, path.stat().st_mtime_ns, path.read_text()


@pytest.mark.parametrize("is_held", [False, True], ids=["", "while the task behind it works"])
def test_the_record_of_a_task_that_ran_ahead_is_taken_at_once_without_a_job(driver: Driver, is_held: bool) -> None:
    toy(Path(), 1, goal=10**6, segment_minutes=0.001)
    toy(Path(), 2, goal=10**6, segment_minutes=0.001)
    places, job = RunFolder("demo"), driver.job(segment(2, goal=10**6))
    before = state_of(places.record(2))

    with take(places.lease, 3, 0.0) if is_held else nullcontext():
        driver.executor.run_job(job)

    assert (driver.done, driver.submitted, driver.failed, driver.slurm.told) == ([job], [], [], [])
    assert state_of(places.record(2)) == before
    assert driver.lines() == ["demo segment 2: its work is done, no job needed"]


def test_a_segment_at_work_before_snakemake_asks_for_it_is_waited_for_by_its_record(driver: Driver) -> None:
    toy(Path(), 1, goal=10**6, segment_minutes=0.001)
    places, second = RunFolder("demo"), segment(2, goal=10**6)
    submission("17")
    shows(driver.slurm, "17_2 RUNNING", "17_[3-7%1] PENDING")
    job = driver.job(second)
    with take(places.lease, 2, 0.0):
        driver.executor.run_job(job)
    (info,) = driver.active()
    assert look(driver, [info]) == [info]

    toy(Path(), 2, goal=10**6, segment_minutes=0.001)
    before = state_of(places.record(2))

    assert look(driver, [info]) == []
    assert (driver.done, driver.slurm.told) == ([job], [])
    assert state_of(places.record(2)) == before


def test_a_record_that_appears_while_the_run_is_submitted_stays_and_no_job_is_made(driver: Driver) -> None:
    """The last task of another start ends between the look at the store and that at the queue."""
    toy(Path(), goal=5)
    places, aside = RunFolder("demo"), Path("aside")
    before = state_of(places.record(1))
    places.root.rename(aside)
    driver.slurm.answer("squeue", f"[ -d {aside} ] && mv {aside} {places.root}; cat {driver.slurm.folder}/queue")
    job = driver.job(segment(goal=5))

    driver.executor.run_job(job)
    again = driver.postponed()
    driver.executor.run_job(job)

    assert again == [job]
    assert (driver.done, driver.failed, driver.slurm.told) == ([job], [], [])
    assert state_of(places.record(1)) == before


def test_a_record_of_an_earlier_goal_is_made_again_for_the_one_that_is_set_now(driver: Driver) -> None:
    toy(Path(), goal=5)
    job = driver.job(segment(goal=9))

    driver.executor.run_job(job)

    record = read_record(RunFolder("demo").record(1))
    assert (driver.done, driver.slurm.told) == ([job], [])
    assert record is not None and record.kind is EndKind.PAUSED


def test_a_record_that_is_older_than_the_one_before_becomes_newer(driver: Driver) -> None:
    """Snakemake touched the one before when it took it; it calls a job failed whose input is newer than its output."""
    for number in (1, 2):
        toy(Path(), number, goal=10**6, segment_minutes=0.001)
    first, second = RunFolder("demo").record(1), RunFolder("demo").record(2)
    os.utime(second, (1000, 1000))
    before = second.stat().st_ino, second.read_text()
    job = driver.job(segment(2, goal=10**6))

    driver.executor.run_job(job)

    assert driver.done == [job]
    assert second.stat().st_mtime_ns >= first.stat().st_mtime_ns
    assert (second.stat().st_ino, second.read_text()) == before


def test_the_record_of_a_segment_from_which_later_ones_went_on_to_the_goal_says_what_it_said(driver: Driver) -> None:
    toy(Path(), 1, goal=3, segment_minutes=0.001)
    toy(Path(), 2, goal=3)
    record = RunFolder("demo").record(1)
    before = state_of(record)

    driver.executor.run_job(driver.job(segment(1, goal=3)))

    assert state_of(record) == before
    assert (len(driver.done), driver.slurm.told) == (1, [])


@pytest.mark.parametrize("text", ["{", "", '{"format": 2}'])
def test_a_corrupt_record_of_work_that_is_done_is_made_again_without_a_job(driver: Driver, text: str) -> None:
    made = toy(Path(), goal=10**6, segment_minutes=0.001)
    RunFolder("demo").record(1).write_text(text)
    job = driver.job(segment(goal=10**6))

    driver.executor.run_job(job)

    assert (driver.done, driver.slurm.told) == ([job], [])
    record = read_record(RunFolder("demo").record(1))
    assert record is not None and record.checkpoint == made.checkpoint


@pytest.mark.parametrize("is_corrupt", [True, False])
def test_a_record_without_work_behind_it_is_removed_before_a_task_takes_the_segment_for_done(
    driver: Driver, is_corrupt: bool
) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places = RunFolder("demo")
    for path in places.checkpoints.iterdir():
        path.rename(Path(f"lost-{path.name}"))
    places.history.unlink()
    if is_corrupt:
        places.record(1).write_text("{")
    jobs = driver.plan(*segments(5, goal=10**6))

    driver.executor.run_job(jobs[0])

    assert not places.record(1).exists()
    assert driver.slurm.said("--array") == ["1-7%1"]


# --- found, not submitted ---


@pytest.mark.parametrize(
    ("job_id", "shown"),
    [("17", ["17_1 RUNNING", "17_[2-7%1] PENDING"]), ("", ["17_[1-7%1] PENDING"])],
    ids=["of an earlier start", "of a driver that was killed before it noted the number"],
)
def test_an_array_is_taken_over_keeps_its_age_and_is_told_once(driver: Driver, job_id: str, shown: list[str]) -> None:
    submission(job_id)
    shows(driver.slurm, *shown)
    jobs = driver.plan(*segments(5))

    for job in jobs[:2]:
        driver.executor.run_job(job)

    assert (driver.submitted, driver.slurm.told, driver.canceled()) == (jobs[:2], [], [])
    assert driver.lines() == ["demo segment 1: job 17 of its run is in the queue or running already, taken over"]


def test_a_driver_that_was_killed_before_its_sbatch_holds_the_run_up_for_minutes_only(driver: Driver) -> None:
    submission()

    driver.executor.run_job(driver.plan(*segments(5))[0])

    assert driver.slurm.said("--array") == ["1-7%1"]


# --- a run that has no job left ---


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "TIMEOUT", "BOOT_FAIL"])
def test_a_run_whose_array_is_gone_is_submitted_again_and_that_uses_up_no_retry(driver: Driver, state: str) -> None:
    jobs = driver.plan(*segments(5))
    driver.executor.run_job(jobs[0])
    (info,) = driver.active()
    driver.slurm.shows("101_1", state)
    ends_as(driver.slurm, "101_1", state)
    age()

    assert look(driver, [info]) == [info]  # Slurm may be about to queue it again
    assert look(driver, [info]) == [info]
    told = handed_over(driver)

    assert (len(told), driver.failed, driver.done, jobs[0].attempt) == (2, [], [], 1)
    assert driver.lines()[1:] == [
        f"demo segment 1: job 101_1 ended as {state}, no failure; the same segment goes on from the newest checkpoint",
        "demo: submitted array of 7 tasks 102",
    ]


def test_a_job_that_hangs_in_its_end_is_waited_for_for_minutes_and_not_for_ever(driver: Driver) -> None:
    jobs = driver.plan(*segments(2))
    driver.executor.run_job(jobs[0])
    (info,) = driver.active()
    shows(driver.slurm, "101_1 COMPLETING")
    ends_as(driver.slurm, "101_1", "COMPLETING")
    age()
    driver.lines()

    driver.slurm.ending_for(200)
    assert [look(driver, [info]) for _ in range(4)] == [[info]] * 4
    driver.slurm.ending_for(400)
    assert [look(driver, [info]) for _ in range(2)] == [[info]] * 2

    assert (driver.failed, jobs[0].attempt, driver.slurm.said("--dependency")) == ([], 1, [])
    assert driver.lines() == [
        "demo segment 1: job 101_1 has been COMPLETING for minutes (its node or its epilog hangs); the same segment "
        "goes on without it",
        "demo: submitted array of 4 tasks 102",
    ]


def test_a_driver_that_starts_waits_for_a_job_in_its_end_and_not_for_one_that_hangs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission("17")
    shows(driver.slurm, "17_2 COMPLETING")
    driver.slurm.ending_for(200)
    driver.executor.run_job(driver.plan(*segments(2))[0])
    assert driver.lines() == [
        "demo segment 1: job 17_2 of its run is ending; the segment goes on as soon as it has left; tried again"
    ]

    driver.slurm.ending_for(400)
    again = Driver(monkeypatch, driver.slurm)
    again.executor.run_job(again.plan(*segments(2))[0])

    assert again.lines() == ["demo: submitted array of 4 tasks 101"]


def test_a_run_of_which_slurm_knows_nothing_any_more_is_submitted_again(driver: Driver) -> None:
    jobs = driver.plan(*segments(2))
    driver.executor.run_job(jobs[0])
    (info,) = driver.active()
    age()

    rounds = [look(driver, [info]) for _ in range(4)]

    assert rounds == [[info]] * 4
    assert len(handed_over(driver)) == 2
    assert (driver.failed, jobs[0].attempt) == ([], 1)


def test_a_stop_note_of_a_job_ends_the_run_with_its_line_and_no_retry(driver: Driver) -> None:
    job = driver.job(segment())
    info = driver.out(job, segment())
    note_stop("demo", START, "3 failures; fix the cause, then start snakemake again")
    ends_as(driver.slurm, "17", "FAILED")

    assert driver.ends(info, ended())

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert driver.lines() == [
        "demo segment 1: job 17 ended as FAILED; this run stops: 3 failures; fix the cause, then start snakemake again"
    ]
    assert handed_over(driver) == []


def test_a_stop_note_of_an_earlier_start_stops_nothing(driver: Driver) -> None:
    job = driver.job(segment())
    info = driver.out(job, segment())
    note_stop("demo", "20250101T000000Z-00000000", "fixed since")
    ends_as(driver.slurm, "17", "NODE_FAIL")

    assert driver.ends(info, ended("NODE_FAIL"))

    assert len(handed_over(driver)) == 1
    assert driver.failed == []


@pytest.mark.parametrize("is_single", [True, False])
def test_a_crash_without_a_note_is_counted_by_snakemake_for_single_jobs_and_by_the_policy_for_an_array(
    driver: Driver, is_single: bool
) -> None:
    job = driver.job(segment(), is_single=is_single)
    info = driver.out(job, segment())
    driver.lines()
    History(RunFolder("demo").history).append(attempt(EndKind.FAILED, start=START))
    ends_as(driver.slurm, "17", "FAILED")

    assert driver.ends(info, ended())

    assert driver.lines()[0] == "demo segment 1: job 17 ended as FAILED: the program ended with exit code 1"
    assert driver.failed == ([job] if is_single else [])
    assert job.attempt == 1
    assert len(handed_over(driver)) == (0 if is_single else 1)


def test_without_a_note_the_driver_asks_the_policy_which_ends_a_run_that_brings_nothing(driver: Driver) -> None:
    """The node of the job was lost, or its disk took no note."""
    job = driver.job(segment())
    info = driver.out(job, segment())
    for token in (1, 2):
        History(RunFolder("demo").history).append(
            attempt(EndKind.FAILED, start=START, token=token, slurm_job=f"17_{token}")
        )
    ends_as(driver.slurm, "17_2", "FAILED")

    assert driver.ends(info, ended(job_id="17_2"))

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert "this run stops: " in driver.lines()[0]
    assert handed_over(driver) == []


def test_a_task_that_found_its_run_stopped_by_an_earlier_start_costs_no_attempt(driver: Driver) -> None:
    job = driver.job(segment())
    info = driver.out(job, segment())
    RunFolder("demo").root.mkdir(parents=True)
    ends_as(driver.slurm, "17_2", "FAILED", exit_code_for(EndKind.STOPPED, 1))

    assert driver.ends(info, ended(job_id="17_2", exit_code=exit_code_for(EndKind.STOPPED, 1)))

    assert driver.lines()[0] == (
        "demo segment 1: job 17_2 ended as FAILED, no failure; the same segment goes on from the newest checkpoint"
    )
    assert (driver.failed, job.attempt, History(RunFolder("demo").history).attempts()) == ([], 1, [])


def test_a_canceled_run_stops_and_says_how_to_go_on(driver: Driver) -> None:
    job = driver.job(segment())
    info = driver.out(job, segment())
    ends_as(driver.slurm, "17", "CANCELLED")

    assert driver.ends(info, ended("CANCELLED"))

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert driver.lines()[-1].endswith("this run stops: Slurm job 17 was canceled; to go on, start snakemake again")


def test_a_run_that_fails_shows_the_log_of_its_last_job_and_of_no_other(driver: Driver) -> None:
    job = driver.job(segment())
    info = driver.out(job, segment())
    logs = Path("logs/demo")
    logs.mkdir(parents=True)
    for seconds, name in enumerate(["slurm-17_10.log", "slurm-17_9.log", "slurm-171_1.log", "001.1.log"]):
        (logs / name).touch()
        os.utime(logs / name, (1000 + seconds,) * 2)
    note_stop("demo", START, "a reason")

    assert driver.ends(info, ended())

    assert driver.shown_logs == ["logs/demo/slurm-171_1.log"]


def test_a_resumed_run_has_a_submission_of_its_own(driver: Driver) -> None:
    jobs = driver.plan(*segments(2))
    driver.executor.run_job(jobs[0])
    info = driver.active()[0]
    age()

    assert driver.ends(info, ended("NODE_FAIL", "101_1"))

    assert submissions.job_ids("demo") == ["101", "102"]
