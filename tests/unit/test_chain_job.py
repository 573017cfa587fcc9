"""Jobs of a chain: which command does a segment, when a run stops, and what of it comes back into the queue."""

import errno
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.slurm_commands import Slurm, chain_spec, job_of_a_chain
from support.toy_spec import toy_spec
from support.toyrun import toy

from unbroken.cli.decisions import restart
from unbroken.job import after_work, segment_process, submissions
from unbroken.job.after_work import _go_on as go_on
from unbroken.job.after_work import look_after_the_rest
from unbroken.job.next_attempt import Stop, wait_until_left
from unbroken.job.segment_process import PATIENCE
from unbroken.job.spec import ChainJob
from unbroken.job.work import SegmentWork
from unbroken.slurm import client, queue
from unbroken.slurm.job import LEAVING_SECONDS, chain_comment
from unbroken.store.history import EndKind, History
from unbroken.store.layout import NOTES, RunFolder
from unbroken.system import log

COMMAND = ("python", "--target-jobs", "toy_segment:run=demo,segment=007", "--attempt", "1", "--cores")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """This process is job 17 of a chain."""
    monkeypatch.setenv(PATIENCE, "1")
    return job_of_a_chain(tmp_path, monkeypatch)


@pytest.fixture
def job(tmp_path: Path, slurm: Slurm) -> ChainJob:
    return ChainJob(chain_spec(tmp_path), "17")


def test_where_only_snakemake_can_run_it_its_command_is_made_for_that_segment_and_attempt() -> None:
    words = ChainJob(toy_spec(script="", command=COMMAND), "17").command_for(12, 3)

    assert words == ["python", "--target-jobs", "toy_segment:run=demo,segment=012", "--attempt", "3", "--cores"]


@pytest.mark.process
def test_a_job_hears_that_its_run_was_extended_while_it_worked(here: Path) -> None:
    toy(here, 1, goal=5)
    job = ChainJob(toy_spec(goal=5, segments=3), "17")
    assert job.now().is_over()

    toy_spec(goal=50, segments=9).write()

    assert not job.now().is_over()
    assert (job.now().last_segment, job.now().next_segment()) == (9, 2)


@pytest.mark.process
@pytest.mark.usefixtures("listening")
def test_a_task_waits_for_the_one_before_unless_that_one_hangs_in_its_end(slurm: Slurm, job: ChainJob) -> None:
    slurm.shows("16_3", "COMPLETING")
    slurm.ending_for(400)
    began = time.monotonic()

    wait_until_left(job)

    assert time.monotonic() - began < LEAVING_SECONDS / 10


# --- room in the queue for other runs --------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.process
def test_a_job_whose_work_has_begun_asks_slurm_once_whether_tasks_wait(
    slurm: Slurm, job: ChainJob, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    slurm.answer("squeue", f"echo >> {slurm.folder}/asked; cat {slurm.folder}/queue")

    SegmentWork(job)._submit_ahead()
    submitted, asked = list(caplog.messages), (slurm.folder / "asked").read_text()
    slurm.shows("101_[1-9]", "PENDING")
    SegmentWork(job)._submit_ahead()

    assert (
        submitted
        == caplog.messages
        == ["no task of this run waits: submitting the next ones; submitted array of 10 tasks 101"]
    )
    assert asked == "\n"


@pytest.mark.process
def test_a_file_server_that_is_away_when_the_work_has_begun_ends_no_work(
    slurm: Slurm, job: ChainJob, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")

    def away(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(submissions, "newest", away)
    SegmentWork(job)._submit_ahead()

    (line,) = caplog.messages
    assert line.startswith("the next tasks of this run are seen to at the end of this job: ")
    assert "Stale file handle" in line


@pytest.mark.process
def test_runs_that_were_left_out_are_submitted_one_by_one(slurm: Slurm, tmp_path: Path) -> None:
    told: list[str] = []
    for name in ("b", "a"):
        chain_spec(tmp_path, key=name).write()
        submissions.leave_out(name)

    for _ in range(3):
        with log.lines_to(told.append):
            after_work.submit_left_out()

    assert [line.partition(";")[0] for line in told] == [
        f"there may be room in the queue now for {name}" for name in "ab"
    ]
    assert submissions.left_out() == []


@pytest.mark.process
def test_a_run_still_waits_for_room_while_a_job_tries_whether_there_is_some(slurm: Slurm, tmp_path: Path) -> None:
    """Else another job that ends in this moment leaves it behind, and there is no room only because of that one."""
    chain_spec(tmp_path).write()
    submissions.leave_out("demo")
    slurm.takes(f"ls {NOTES.resolve()} > {slurm.folder}/notes")

    after_work.submit_left_out()

    assert f"demo{submissions.LEFT_OUT}" in (slurm.folder / "notes").read_text().splitlines()
    assert submissions.left_out() == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("others", "restarts", "comes_back"),
    [([], 0, True), (["16", "9_3"], 0, True), (["18"], 0, False), (["17_2"], 0, False), ([], 3, False)],
)
def test_of_jobs_whose_runs_are_over_the_one_with_the_highest_number_comes_back_to_look_for_room(
    others: Sequence[str], restarts: int, comes_back: bool, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If several did, each would keep the room from the others, again and again."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    slurm.answer("scontrol", f'echo "$@" >> {slurm.folder}/asked')
    told: list[str] = []
    for number in ("17", *others):
        slurm.shows(number, "RUNNING", key=f"run{number}")

    with log.lines_to(told.append):
        after_work.look_again("17", queue.my_jobs() or [])

    assert has_gone_back(slurm) is comes_back
    start = "other runs still wait for room in the queue: "
    here = [f"{start}this job goes back into it to look again"] if comes_back else []
    assert told == here or (not others and told == [f"{start}start snakemake again"])


@pytest.mark.process
def test_a_run_that_was_left_out_is_submitted_once_there_is_room(slurm: Slurm, tmp_path: Path) -> None:
    told: list[str] = []
    chain_spec(tmp_path).write()
    submissions.leave_out("demo")
    slurm.refuses(FULL)
    with log.lines_to(told.append):
        after_work.submit_left_out()
    assert submissions.left_out()
    slurm.takes()

    with log.lines_to(told.append):
        after_work.submit_left_out()

    assert not submissions.left_out()
    assert slurm.said("--array") == ["1-11%1"]
    assert told == [
        f"there may be room in the queue now for demo; the queue takes no more jobs now ({FULL})",
        "there may be room in the queue now for demo; submitted array of 11 tasks 101",
    ]


@pytest.mark.process
def test_a_run_that_was_left_out_and_that_a_driver_has_submitted_since_is_left_to_its_jobs(
    slurm: Slurm, tmp_path: Path
) -> None:
    told: list[str] = []
    chain_spec(tmp_path).write()
    submissions.leave_out("demo")
    slurm.shows("18_[2-3%1]", "PENDING")

    with log.lines_to(told.append):
        after_work.submit_left_out()

    assert (submissions.left_out(), slurm.told) == ([], [])
    assert told == [
        "there may be room in the queue now for demo; job 18 of its run is in the queue or running already, taken over"
    ]


@pytest.mark.process
def test_a_run_that_was_left_out_is_submitted_by_no_job_once_it_is_restarted(slurm: Slurm, tmp_path: Path) -> None:
    toy(Path(), 1)
    chain_spec(tmp_path).write()
    submissions.leave_out("demo")
    submissions.leave_out("demo2")

    restart("demo", Path())

    assert submissions.left_out() == ["demo2"]


def test_a_run_that_was_left_out_and_whose_spec_is_corrupt_is_told(slurm: Slurm) -> None:
    told: list[str] = []
    submissions.leave_out("gone")

    with log.lines_to(told.append):
        after_work.submit_left_out()

    assert told == ["gone: .snakemake/unbroken/chains/gone/spec.json: missing; start snakemake again"]


# --- how Slurm ends a job, and what follows --------------------------------------------------------------------------

# What the controller shows of a job whose batch script has not left yet, shortened (Slurm 22.05).
COMPLETING = {
    "CANCELLED": "JobId=2 JobState=COMPLETING Reason=None Restarts=1 StartTime=838 EndTime=840 Deadline=N/A Power=",
    "TIMEOUT": "JobId=1 JobState=COMPLETING Reason=TimeLimit Restarts=1 StartTime=838 EndTime=898 Power=",
    "REQUEUED": "JobId=2 JobState=COMPLETING Reason=None Restarts=2 StartTime=900 EndTime=1200 Power=",
    "PREEMPTED": "JobId=3 JobState=COMPLETING Reason=None Restarts=1 PreemptEligibleTime=838 PreemptTime=842 Power=",
    "": "JobId=3 JobState=RUNNING Reason=None Restarts=1 Power=",
}


@pytest.mark.parametrize("state", COMPLETING)
def test_the_controller_shows_how_it_ends_the_job_around_us(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: f"{COMPLETING[state]}\n")

    assert queue.state_behind_completing("2", restarts=1) == state


def test_a_controller_that_does_not_answer_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ask", lambda *words, **more: None)

    assert queue.state_behind_completing("2", restarts=0) == ""


FULL = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)"
WRONG = "sbatch: error: invalid partition specified: shrt"


def slurm_shows(slurm: Slurm, state: str, reason: str = "None") -> None:
    """Job 17, which is ours, is in this state."""
    slurm.shows(17, state)
    shown = f"JobId=17 JobState={state} Reason={reason} Restarts=0 StartTime=838 PreemptTime=None"
    slurm.answer("scontrol", f'echo "$@" >> {slurm.folder}/asked; echo "{shown}"')
    slurm.answer("scancel", "true")


def has_gone_back(slurm: Slurm) -> bool:
    path = slurm.folder / "asked"
    return path.exists() and "requeue 17\n" in path.read_text()


@pytest.fixture
def listening() -> Iterator[None]:
    """This process answers signals as a job does."""
    before = {number: signal.getsignal(number) for number in segment_process.IGNORED_SIGNALS}
    segment_process.ignore_signals()
    yield
    segment_process._received.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


# Slurm's TERM reaches sbatch and the job's first process; sbatch may answer it by itself.
TERM = {"killed": "kill -TERM $$", "answered": "kill -TERM $PPID; exit 1"}


@pytest.mark.process
@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("term", TERM)
@pytest.mark.parametrize(("state", "requeued"), [("CANCELLED", False), ("RUNNING", True)])
def test_a_job_that_is_ended_while_it_submits_the_next_tasks(
    slurm: Slurm, job: ChainJob, term: str, state: str, requeued: bool
) -> None:
    """At its limit the job comes back, after a scancel it must not."""
    slurm_shows(slurm, state)
    slurm.answer("sbatch", f"echo tried >> {slurm.folder}/tried; {TERM[term]}")

    with pytest.raises(Stop, match="job 17 was canceled") if state == "CANCELLED" else nullcontext():
        go_on(job, has_no_room=False)

    assert (slurm.folder / "tried").read_text() == "tried\n"
    assert has_gone_back(slurm) is requeued


@pytest.mark.process
@pytest.mark.usefixtures("listening")
def test_an_answer_of_squeue_that_fails_once_is_no_empty_queue(slurm: Slurm, job: ChainJob) -> None:
    """The next task waits, so this job does not come back."""
    slurm_shows(slurm, "RUNNING")
    line = f"me||18|PENDING|None|N/A|N/A|N/A|{chain_comment('demo')}|{Path().resolve()}"
    away = f"[ ! -e {slurm.folder}/away ] || {{ rm {slurm.folder}/away; exit 1; }}"
    slurm.answer("squeue", f"{away}\ncat {slurm.folder}/queue")
    slurm.takes(f"touch {slurm.folder}/away; echo '{line}' >> {slurm.folder}/queue")

    go_on(job, has_no_room=False)

    assert not (slurm.folder / "away").exists()
    assert not has_gone_back(slurm)


@pytest.mark.process
@pytest.mark.parametrize(("reason", "requeued"), [("TimeLimit", True), ("None", False)])
def test_a_job_at_its_limit_behind_which_no_task_waits_comes_back_and_submits_nothing(
    slurm: Slurm, job: ChainJob, reason: str, requeued: bool
) -> None:
    """Slurm leaves it KillWait seconds, in which sbatch may not get an answer."""
    slurm_shows(slurm, "COMPLETING", reason)

    with nullcontext() if requeued else pytest.raises(Stop, match="job 17 was canceled"):
        look_after_the_rest(job, has_no_room=False)

    assert has_gone_back(slurm) is requeued
    assert slurm.told == []


@pytest.mark.process
@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize(
    ("reason", "is_taken", "stops"),
    [
        ("TimeLimit", True, ""),
        ("TimeLimit", False, "refuses to requeue job 17 and takes no other one .the queue takes no more .*snakemake"),
        ("None", True, "job 17 was canceled"),
    ],
    ids=["submits", "queue full", "canceled meanwhile"],
)
def test_a_job_at_its_limit_that_may_not_come_back(
    slurm: Slurm, job: ChainJob, reason: str, is_taken: bool, stops: str
) -> None:
    """As with unbroken-no-requeue: what is left of KillWait is better than nothing, and a run that ends says so."""
    slurm_shows(slurm, "COMPLETING", reason)
    scontrol = slurm.folder / "bin" / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" != requeue ] || exit 1\n'))
    line = f"me||18|PENDING|None|N/A|N/A|N/A|{chain_comment('demo')}|{Path().resolve()}"
    slurm.takes(f"echo '{line}' >> {slurm.folder}/queue") if is_taken else slurm.refuses(FULL)

    with pytest.raises(Stop, match=stops) if stops else nullcontext():
        go_on(job, has_no_room=True)

    assert bool(slurm.told or slurm.sizes) is (reason == "TimeLimit")
    assert bool(submissions.left_out()) is (reason == "TimeLimit" and not is_taken)


@pytest.mark.process
@pytest.mark.usefixtures("listening")
def test_a_job_that_slurm_has_requeued_comes_back_though_scontrol_was_ended_before_its_answer(
    slurm: Slurm, job: ChainJob
) -> None:
    shown = "JobId=17 JobState=COMPLETING Reason=None Restarts=1 StartTime=838 PreemptTime=None"
    slurm_shows(slurm, "COMPLETING")
    slurm.answer("scontrol", f'echo "$@" >> {slurm.folder}/asked; [ "$1" != requeue ] || exit 143; echo "{shown}"')

    go_on(job, has_no_room=True)

    assert has_gone_back(slurm)
    assert slurm.told == []
    assert submissions.left_out() == []


@pytest.mark.process
@pytest.mark.usefixtures("listening")
def test_a_job_that_is_being_ended_does_not_start_to_submit(slurm: Slurm, job: ChainJob) -> None:
    slurm_shows(slurm, "RUNNING")
    os.kill(os.getpid(), signal.SIGTERM)

    go_on(job, has_no_room=False)

    assert slurm.told == []
    assert has_gone_back(slurm)


@pytest.mark.process
@pytest.mark.usefixtures("listening")
def test_a_run_whose_submission_was_cut_short_still_waits_for_room(slurm: Slurm, tmp_path: Path) -> None:
    submissions.leave_out("demo")
    slurm.answer("sbatch", TERM["answered"])
    told: list[str] = []

    with log.lines_to(told.append):
        after_work.submit_left_out()

    assert submissions.left_out()
    assert told[0].startswith("there may be room in the queue now for demo; Slurm ended sbatch with the job around it")


@pytest.mark.process
def test_where_the_queue_is_full_the_job_itself_comes_back(slurm: Slurm, job: ChainJob) -> None:
    """With MaxSubmitJobs=1 a run goes on by its one job."""
    slurm_shows(slurm, "RUNNING")
    slurm.refuses(FULL)

    go_on(job, has_no_room=False)

    assert has_gone_back(slurm)


@pytest.mark.process
def test_where_slurm_refuses_the_next_tasks_for_good_the_run_stops_and_its_history_says_why(
    slurm: Slurm, job: ChainJob
) -> None:
    slurm_shows(slurm, "RUNNING")
    slurm.refuses(WRONG)

    with pytest.raises(Stop) as stop:
        go_on(job, has_no_room=False)

    why = f"the next jobs could not be submitted: {WRONG}"
    assert str(stop.value) == f"{why}; fix the cause, then start snakemake again"
    (line,) = History(RunFolder("demo").history).attempts()
    assert (line.kind, line.message, line.segment) == (EndKind.REFUSED, why, 1)
    assert not has_gone_back(slurm)


@pytest.mark.process
def test_a_controller_that_is_away_is_asked_again_for_some_minutes(
    slurm: Slurm, job: ChainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "600")
    monkeypatch.setattr(segment_process, "REST_SECONDS", 0.01)
    slurm_shows(slurm, "RUNNING")
    line = f"me||18|PENDING|None|N/A|N/A|N/A|{chain_comment('demo')}|{Path().resolve()}"
    away = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    slurm.takes(
        f"[ -e {slurm.folder}/there ] || {{ touch {slurm.folder}/there; rm {slurm.folder}/told.$n; {away}; }}; "
        f"echo '{line}' >> {slurm.folder}/queue"
    )

    go_on(job, has_no_room=False)

    assert slurm.said("--array") == ["1-11%1"]
    assert not has_gone_back(slurm)
