"""What `executor: unbroken` takes from Slurm about runs whose jobs are out: a silence, or one odd answer, ends none."""

import pytest
from support.driver import shows
from support.slurm_commands import Slurm
from unit.test_executor_outages import Clock, slurm
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken.segments import Out
from snakemake_executor_plugin_unbroken.watch import LOST_LOOKS, ChainWatch, EndedChain
from unbroken.runs import submissions
from unbroken.runs.layout import RunFolder

__all__ = ["slurm"]  # a fixture


def look(chains: ChainWatch, clock: Clock, out: Out, told: list[str], seconds: float = 30.0) -> EndedChain | None:
    clock.now += seconds
    return chains.look([out], told.append).get(out)


def looks(chains: ChainWatch, clock: Clock, out: Out, told: list[str], count: int, seconds: float = 30.0) -> list[str]:
    """What is known of the end of a run's last job after each of so many looks."""
    found = [look(chains, clock, out, told, seconds) for _ in range(count)]
    return [end.state if end else "" for end in found]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Clock:
    return Clock(monkeypatch, "watch")


@pytest.fixture
def out() -> Out:
    return Out(segment(), "17")


@pytest.fixture
def chains(clock: Clock) -> ChainWatch:
    chains = ChainWatch(1.0, 5.0)
    chains.expect()
    return chains


def test_a_silent_controller_ends_no_run_and_is_told_now_and_then(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out
) -> None:
    told = list[str]()
    slurm.answer("squeue", "exit 1")
    line = "squeue does not answer; segments that leave their record go on, the others are waited for"

    assert looks(chains, clock, out, told, 3) == [""] * 3
    assert told == []
    assert looks(chains, clock, out, told, 1) == [""]
    assert told == [line]
    assert looks(chains, clock, out, told, 10) == [""] * 10
    assert told == [line]
    assert looks(chains, clock, out, told, 1) == [""]
    assert told == [line] * 2

    shows(slurm, "17 RUNNING")
    slurm.answer("squeue", f"cat {slurm.folder}/queue")
    looks(chains, clock, out, told, 1)
    slurm.answer("squeue", "exit 1")
    assert looks(chains, clock, out, told, 3) == [""] * 3
    assert told == [line] * 2
    assert looks(chains, clock, out, told, 1) == [""]
    assert told == [line] * 3  # this silence is a new one


def test_a_run_of_which_neither_squeue_nor_accounting_knows_a_job_is_looked_for_again_before_it_is_lost(
    clock: Clock, chains: ChainWatch, out: Out
) -> None:
    assert looks(chains, clock, out, [], LOST_LOOKS) == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


def test_a_run_whose_job_is_seen_again_is_not_lost(slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out) -> None:
    """Slurm queues it again, or the controller had forgotten it while it started again."""
    before = looks(chains, clock, out, [], LOST_LOOKS - 1)
    shows(slurm, "17 PENDING")
    seen = looks(chains, clock, out, [], 1)
    shows(slurm)
    after = looks(chains, clock, out, [], LOST_LOOKS, 200.0)

    assert before + seen == [""] * LOST_LOOKS
    assert after == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


@pytest.mark.parametrize("left", ["17_[3-5%1] PENDING", "17_2 RUNNING", "17_1 REQUEUED", "19 PENDING"])
def test_a_run_is_not_over_while_any_of_its_jobs_waits_or_works(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out, left: str
) -> None:
    """Also one of a later array, which a task has submitted."""
    shows(slurm, "17_1 FAILED", left)

    assert looks(chains, clock, out, [], 2 * LOST_LOOKS) == [""] * 2 * LOST_LOOKS


def test_the_jobs_of_another_run_or_folder_keep_no_run_alive(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out
) -> None:
    shows(slurm, "17 FAILED")
    slurm.shows("18", "RUNNING", key="demo2")
    slurm.shows("19", "RUNNING", folder="/elsewhere")

    assert looks(chains, clock, out, [], 2) == ["", "FAILED"]


def test_a_run_ended_as_its_last_task_did_that_has_started(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out
) -> None:
    """The tasks behind it were canceled while they waited."""
    shows(slurm, "17_1 COMPLETED", "17_2 FAILED")
    queue = (slurm.folder / "queue").read_text()
    for number in ("17_1", "17_2"):
        queue = queue.replace(f"me||{number}|", f"me|node1|{number}|")
    (slurm.folder / "queue").write_text(queue)
    slurm.shows("17_[3-5%1]", "CANCELLED")

    ends = [look(chains, clock, out, []) for _ in range(2)]

    assert ends[0] is None
    assert ends[1] is not None and (ends[1].job_id, ends[1].state) == ("17_2", "FAILED")


def test_accounting_says_how_the_job_of_a_run_ended_that_squeue_has_forgotten(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out
) -> None:
    submission = submissions.take("demo", None)
    assert submission is not None
    submissions.fill(submission, "17")
    rows = ("17_1|COMPLETED|node1|0:0|1000", "17_2|CANCELLED by 1000|node1|0:15|2000")
    never = "17_[3-5]|CANCELLED by 1000|None assigned|0:0|2000"
    slurm.answer("sacct", "\n".join(f"echo '{row}'" for row in (*rows, never)))

    ends = [look(chains, clock, out, []) for _ in range(2)]

    assert ends[1] is not None and (ends[1].job_id, ends[1].state) == ("17_2", "CANCELLED")


@pytest.mark.parametrize("least_minutes", [None, 0.5])
def test_a_record_may_be_seen_after_the_end_of_its_job(
    slurm: Slurm, clock: Clock, chains: ChainWatch, least_minutes: float | None
) -> None:
    """Also where the history cannot be read, which would say that no record comes."""
    out = Out(segment(least_minutes=least_minutes), "17")
    RunFolder("demo").history.mkdir(parents=True)
    shows(slurm, "17 COMPLETED")

    assert looks(chains, clock, out, [], 4, seconds=4.5) == ["", "", "", "COMPLETED"]


def test_a_task_that_does_not_start_by_itself_is_told_once_with_what_to_type(
    slurm: Slurm, clock: Clock, chains: ChainWatch, out: Out
) -> None:
    told = list[str]()
    shows(slurm, "17_[2-5%1] PENDING")
    queue = slurm.folder / "queue"
    queue.write_text(queue.read_text().replace("|None|", "|JobHeldUser|"))

    assert looks(chains, clock, out, told, 3) == [""] * 3

    (line,) = told
    assert line.startswith("demo segment 1: job 17_2 does not start by itself (JobHeldUser); release it: scontrol ")
