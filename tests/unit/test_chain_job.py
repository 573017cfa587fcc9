"""Jobs without a driver: which segment such a job does, when its run stops, and which jobs are its own."""

import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from support.toyrun import toy, toy_run

from unbroken.detached import last_look, resubmit, run_end, segment_command, targets
from unbroken.detached.after_work import _go_on as go_on
from unbroken.detached.after_work import look_after_the_rest
from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.next_attempt import Stop
from unbroken.detached.pending_jobs import DETACHED_JOB_NAME, run_of_detached_job, waiting
from unbroken.detached.resubmit import Again
from unbroken.detached.segment_command import PATIENCE
from unbroken.runs.layout import NOTES, RunFolder
from unbroken.slurm import queue as my_jobs
from unbroken.slurm import tables
from unbroken.slurm.queue import MyJob

COMMAND = ("python", "--target-jobs", "toy_segment:run=demo,segment=007", "--attempt", "1", "--cores")


def this_job(segments: int = 5) -> DetachedJob:
    return DetachedJob("demo", segments, ("17",), "", 3, 2, 1.5, COMMAND)


def job(
    number: int, state: str = "PENDING", name: str = DETACHED_JOB_NAME, run: str = "demo", folder: str = "/somewhere"
) -> MyJob:
    comment = f"rule_toy_segment_wildcards_{run}_003"
    return MyJob(str(number), state, "Dependency", f"{name}_1234", comment, Path(folder))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_does_the_first_segment_without_a_record(here: Path) -> None:
    assert this_job().next_segment() == 1
    toy(here, 1, goal=10**6, segment_minutes=0.01)
    toy(here, 2, goal=10**6, segment_minutes=0.01)
    assert this_job().next_segment() == 3

    RunFolder("demo").record(1).unlink()

    assert this_job().next_segment() == 1
    assert this_job(0).next_segment() is None


def test_the_command_is_made_for_that_segment_and_attempt() -> None:
    words = this_job().command_for(12, 3)

    assert words == ["python", "--target-jobs", "toy_segment:run=demo,segment=012", "--attempt", "3", "--cores"]


def test_a_run_is_over_at_its_goal_or_with_its_last_segment(here: Path) -> None:
    assert not targets.is_over("demo", 3)
    toy(here, 1, goal=10**6, segment_minutes=0.01)
    assert (targets.is_over("demo", 3), targets.is_over("demo", 1)) == (False, True)

    toy(here, 2, goal=1)

    assert targets.is_over("demo", 3)


def test_a_job_hears_that_its_run_was_extended_while_it_worked(here: Path) -> None:
    toy(here, 1, goal=5)
    targets.keep(toy_run(goal=5, segments=3))
    assert targets.is_over("demo", 3)

    targets.keep(toy_run(goal=50, segments=9))

    assert not targets.is_over("demo", 3)
    assert this_job(3).segments == 9
    assert this_job(3).next_segment() == 2


def test_without_a_note_or_with_a_spoilt_one_a_job_does_what_it_was_told(here: Path) -> None:
    assert this_job(3).segments == 3
    (here / ".snakemake/unbroken").mkdir(parents=True)
    (here / ".snakemake/unbroken/demo.wanted.json").write_text("{")

    assert (targets.wanted("demo"), this_job(3).segments) == (None, 3)


def test_the_waiting_jobs_of_a_run_are_those_of_its_name_and_folder() -> None:
    base = Path("/somewhere")
    jobs = [
        job(1, state="RUNNING"),
        job(2),
        job(3, run="demo_2"),
        job(4, run="other"),
        job(5, folder="/elsewhere"),
        job(6, name="a-driver"),
        job(7),
    ]

    assert waiting(jobs, "demo", base) == ["2", "7"]
    assert [run_of_detached_job(each) for each in jobs] == ["demo", "demo", "demo_2", "other", "demo", "", "demo"]


def test_a_run_that_was_left_out_is_taken_up_once(here: Path) -> None:
    resubmit.leave_out("b")
    resubmit.leave_out("a")

    assert [take_left_out() for _ in range(3)] == ["a", "b", ""]
    assert not resubmit.any_left_out()


def take_left_out() -> str:
    with resubmit.left_out() as run:
        return run


def test_a_run_still_waits_for_room_while_a_job_tries_whether_there_is_some(here: Path) -> None:
    """Else another job that ends in this moment leaves it behind, and there is no room only because of that one."""
    resubmit.leave_out("a")

    with ExitStack() as second:
        with resubmit.left_out() as run:
            others = take_left_out()
            waits = resubmit.any_left_out()
            resubmit.leave_out(run)  # no room; and the second one takes it before the first is out
            taken_next = second.enter_context(resubmit.left_out())
        still_waits = resubmit.any_left_out()

    assert (run, others, waits) == ("a", "", True)
    assert (taken_next, still_waits) == ("a", True)
    assert not resubmit.any_left_out()


@pytest.mark.parametrize("dated", [0, 2**32], ids=["long ago", "in the future"])
def test_a_job_that_is_killed_over_the_submission_of_a_run_holds_nobody_up_for_ever(here: Path, dated: int) -> None:
    resubmit.leave_out("a")
    with resubmit.left_out():
        (taken,) = NOTES.iterdir()
        os.utime(taken, (dated, dated))

        assert not resubmit.any_left_out()


def decisions(*order: str, alive: Sequence[str] = ("17", "18", "19")) -> list[str]:
    """The jobs that come back if each decides while the one before it is just being told who is alive."""

    def decide(left: Sequence[str]) -> list[str]:
        job_id, *later = left
        stay: list[str] = []

        def told() -> Sequence[str]:
            stay.extend(decide(later) if later else [])
            return alive

        return stay if last_look.may_leave(job_id, told) else [*stay, job_id]

    return decide(order)


@pytest.mark.parametrize("order", list(itertools.permutations(["17", "18", "19"])), ids="-".join)
def test_of_jobs_that_leave_in_the_same_moment_one_comes_back_to_look_for_room(
    here: Path, order: Sequence[str]
) -> None:
    assert len(decisions(*order)) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(["17", "18", "19"])), ids="-".join)
def test_of_jobs_that_leave_one_after_the_other_the_last_one_comes_back(here: Path, order: Sequence[str]) -> None:
    assert [decisions(job_id) for job_id in order] == [[], [], [order[-1]]]


def test_a_job_that_leaves_while_another_one_comes_back_does_not(here: Path) -> None:
    came_back = decisions("17", "18", alive=["17", "18"])

    assert len(came_back) == 1
    assert decisions("20", alive=[*came_back, "20"]) == []


def test_a_job_that_was_to_come_back_and_was_cancelled_is_not_relied_on(here: Path) -> None:
    assert decisions("17", alive=["17"]) == ["17"]

    assert decisions("18", alive=["18"]) == ["18"]


def test_a_job_that_has_come_back_may_come_back_again(here: Path) -> None:
    first = decisions("17", alive=["17", "18"]) + decisions("18", alive=["17", "18"])
    last_look.has_come_back("18")

    assert first == ["18"]
    assert decisions("18", alive=["18"]) == ["18"]


def test_a_job_that_has_come_back_is_relied_on_again(here: Path) -> None:
    assert decisions("18", alive=["18"]) == ["18"]
    last_look.has_come_back("18")

    assert decisions("17", alive=["17", "18"]) == []
    assert decisions("18", alive=["18"]) == ["18"]


def test_two_jobs_that_end_in_the_same_second_do_not_both_go_back_into_the_queue(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would keep the room from the other, again and again."""
    asked: list[tuple[str, ...]] = []
    both = [job(number, state="RUNNING", run=run, folder=str(here)) for number, run in ((17, "demo"), (18, "other"))]
    monkeypatch.setattr(run_end, "my_jobs", lambda: both)
    monkeypatch.setattr(run_end, "ask", lambda *words: asked.append(words) or "")
    resubmit.leave_out("third")

    for job_id in ("17", "18"):
        run_end.stay_for_left_out(job_id, this_job().tell)

    assert asked == [("scontrol", "requeue", "18")]
    assert capsys.readouterr().err.count("this job goes back into it to look again") == 1


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
    monkeypatch.setattr(tables, "ask", lambda *words, **more: f"{COMPLETING[state]}\n")

    assert my_jobs.state_behind_completing("2", restarts=1) == state


def test_a_controller_that_does_not_answer_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ask", lambda *words, **more: None)

    assert my_jobs.state_behind_completing("2", restarts=0) == ""


def test_a_call_of_snakemake_that_fails_is_told_with_its_command(here: Path) -> None:
    resubmit.keep("demo", Again(str(here), ("false",)))

    assert resubmit.submit("demo", "") == "exit code 1 of: false"
    resubmit.keep("demo", Again(str(here), ("sh", "-c", "echo 'sbatch: error: no such account' >&2; exit 2")))
    assert resubmit.submit("demo", "") == "Slurm refuses them: sbatch: error: no such account"


def slurm_shows(here: Path, monkeypatch: pytest.MonkeyPatch, state: str, reason: str = "None") -> None:
    """Commands that answer as Slurm does about job 17, which is ours."""
    commands = here / "bin"
    commands.mkdir()
    listed = f"me|17|{state}|None|{DETACHED_JOB_NAME}_1|rule_toy_segment_wildcards_demo_001|{here}"
    shown = f"JobId=17 JobState={state} Reason={reason} Restarts=0 StartTime=838 PreemptTime=None"
    for name, text in {
        "squeue": f"echo '{listed}'",
        "scontrol": f'echo "$@" >> {here}/asked; echo "{shown}"',
        "scancel": "true",
        "sbatch": "exit 1",
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv(PATIENCE, "1")


@pytest.fixture
def deaf() -> Iterator[None]:
    """This process answers signals as a job does."""
    before = {number: signal.getsignal(number) for number in segment_command.DEAF_TO}
    segment_command.become_deaf()
    yield
    segment_command._heard.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


# Slurm's TERM reaches the command that submits, and the job's first process; Snakemake may answer it by itself.
TERM = {"killed": "kill -TERM $$", "answered": "kill -TERM $PPID; exit 1"}


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("term", TERM)
@pytest.mark.parametrize(("state", "requeued"), [("CANCELLED", False), ("RUNNING", True)])
def test_a_job_that_is_ended_while_it_submits_the_next_ones(
    here: Path, monkeypatch: pytest.MonkeyPatch, term: str, state: str, requeued: bool
) -> None:
    """Slurm's TERM ends the command that submits: at its limit the job comes back, after a scancel it must not."""
    slurm_shows(here, monkeypatch, state)
    submit = ("sh", "-c", f"echo tried >> {here}/tried; {TERM[term]}")
    resubmit.keep("demo", Again(str(here), submit))

    with pytest.raises(Stop, match="job 17 was cancelled") if state == "CANCELLED" else nullcontext():
        go_on(this_job(), "17", False)

    asked = (here / "asked").read_text() if (here / "asked").exists() else ""
    assert (here / "tried").read_text() == "tried\n"
    assert ("requeue 17" in asked) is requeued


@pytest.mark.usefixtures("deaf")
def test_an_answer_of_squeue_that_fails_once_is_no_empty_queue(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job waits, so this one does not come back."""
    slurm_shows(here, monkeypatch, "RUNNING")
    line = f"me|18|PENDING|Dependency|{DETACHED_JOB_NAME}_2|rule_toy_segment_wildcards_demo_002|{here}"
    answer = f"[ ! -e {here}/away ] || {{ rm {here}/away; exit 1; }}\necho '{line}'"
    (here / "bin" / "squeue").write_text(f"#!/bin/sh\n{answer}\n")
    resubmit.keep("demo", Again(str(here), ("touch", f"{here}/away")))

    go_on(this_job(), "17", False)

    assert not (here / "away").exists()
    assert "requeue" not in (here / "asked").read_text()


@pytest.mark.parametrize(("reason", "requeued"), [("TimeLimit", True), ("None", False)])
def test_a_job_at_its_limit_behind_which_no_job_waits_comes_back_and_submits_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, reason: str, requeued: bool
) -> None:
    """Slurm leaves it KillWait seconds, in which Snakemake on a busy node may not even start."""
    slurm_shows(here, monkeypatch, "COMPLETING", reason)
    resubmit.keep("demo", Again(str(here), ("touch", f"{here}/submitted")))

    with nullcontext() if requeued else pytest.raises(Stop, match="job 17 was cancelled"):
        look_after_the_rest(this_job(), "17", False)

    assert ("requeue 17" in (here / "asked").read_text()) is requeued
    assert not (here / "submitted").exists()


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize(
    ("reason", "taken", "stops"),
    [
        ("TimeLimit", "18", ""),
        ("TimeLimit", "", "refuses to requeue job 17 and takes no other one .done.; to go on, start snakemake again"),
        ("None", "18", "job 17 was cancelled"),
    ],
    ids=["submits", "queue full", "cancelled meanwhile"],
)
def test_a_job_at_its_limit_that_may_not_come_back(
    here: Path, monkeypatch: pytest.MonkeyPatch, reason: str, taken: str, stops: str
) -> None:
    """As with unbroken-no-requeue: what is left of KillWait is better than nothing, and a run that ends says so."""
    slurm_shows(here, monkeypatch, "COMPLETING", reason)
    scontrol, squeue = here / "bin" / "scontrol", here / "bin" / "squeue"
    scontrol.write_text(scontrol.read_text().replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" != requeue ] || exit 1\n'))
    squeue.write_text(f"{squeue.read_text()}cat {here}/queue 2>/dev/null\nexit 0\n")
    line = f"me|{taken}|PENDING|Priority|{DETACHED_JOB_NAME}_2|rule_toy_segment_wildcards_demo_002|{here}"
    submit = ("sh", "-c", f"touch {here}/tried; {f'echo {chr(39)}{line}{chr(39)} > {here}/queue' if taken else 'true'}")
    resubmit.keep("demo", Again(str(here), submit))
    os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stop, match=stops) if stops else nullcontext():
        go_on(this_job(), "17", True)

    assert (here / "tried").exists() is (reason == "TimeLimit")


@pytest.mark.usefixtures("deaf")
def test_a_run_whose_submission_was_cut_short_still_waits_for_room(here: Path) -> None:
    resubmit.leave_out("b")
    resubmit.keep("b", Again(str(here), ("sh", "-c", TERM["answered"])))
    told: list[str] = []

    run_end.submit_left_out("", told.append)

    assert resubmit.any_left_out()
    assert "room in the queue now for b; ended with this job" in told[0]


def test_a_call_whose_command_got_lost_is_told_with_what_to_do(here: Path) -> None:
    assert (
        resubmit.submit("demo", "") == ".snakemake/unbroken/demo.again.json is missing or spoilt; start snakemake again"
    )


def test_a_job_calls_snakemake_as_if_outside_of_slurm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    resubmit.keep("demo", Again(str(here), ("sh", "-c", "env > seen")))

    resubmit.submit("demo", "20260101T000000Z-1")

    seen = (here / "seen").read_text().splitlines()
    assert [line for line in seen if line.startswith(("SLURM_", "UNBROKEN_SAME_START"))] == [
        line for line in seen if line in ("SLURM_CONF=/etc/slurm/slurm.conf", "UNBROKEN_SAME_START=20260101T000000Z-1")
    ]
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in seen
