"""What `executor: unbroken` takes from Slurm about runs whose jobs are out: a silence, or one odd answer, ends none."""

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from support.driver import LATENCY_SECONDS, Driver, segment, shows
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_outages import Clock, slurm

from snakemake_executor_plugin_unbroken.chain import LOST_LOOKS
from snakemake_executor_plugin_unbroken.executor import SEGMENT
from unbroken.job import submissions
from unbroken.slurm.job import ListedJob

pytestmark = pytest.mark.process

__all__ = ["slurm"]  # a fixture


class Watched:
    """A driver that looks after one run, and does nothing about its end."""

    def __init__(self, driver: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver, self.clock = driver, clock
        self.acted = 0  # how often something would have been done about it
        self.info: SubmittedJobInfo = driver.out(driver.job(segment()), segment())
        self.chain = driver.chain(segment())
        driver.executor._queue.expect()
        driver.lines()
        monkeypatch.setattr(driver.executor, "in_thread", self._act)

    def _act(self, *words: object) -> None:
        self.acted += 1

    def look(self, seconds: float = 30.0) -> ListedJob | None:
        """Return the last job of the run, if none is left, as it is known so many seconds later."""
        self.clock.now += seconds
        self.driver.executor.look_after([self.info])
        return self.chain._end

    def looks(self, count: int, seconds: float = 30.0) -> list[str]:
        """Return what is known of the end of the run's last job after each of so many looks."""
        found = [self.look(seconds) for _ in range(count)]
        return [last.state if last else "" for last in found]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Clock:
    return Clock(monkeypatch, "queue_watch")


@pytest.fixture
def run(clock: Clock, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(Driver(monkeypatch, slurm), clock, monkeypatch)


def test_a_silent_controller_ends_no_run_and_is_told_now_and_then(slurm: Slurm, run: Watched) -> None:
    told = run.driver.said
    slurm.answer("squeue", "exit 1")
    line = "unbroken: squeue does not answer; segments that leave their record go on, the others are waited for"

    assert run.looks(3) == [""] * 3
    assert told == []
    assert run.looks(1) == [""]
    assert told == [line]
    assert run.looks(10) == [""] * 10
    assert told == [line]
    assert run.looks(1) == [""]
    assert told == [line] * 2

    shows(slurm, "17 RUNNING")
    slurm.answer("squeue", f"cat {slurm.folder}/queue")
    run.looks(1)
    slurm.answer("squeue", "exit 1")
    assert run.looks(3) == [""] * 3
    assert told == [line] * 2
    assert run.looks(1) == [""]
    assert told == [line] * 3  # this silence is a new one


def test_a_run_of_which_neither_squeue_nor_accounting_knows_a_job_is_looked_for_again_before_it_is_lost(
    run: Watched,
) -> None:
    assert run.looks(LOST_LOOKS) == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


def test_a_run_whose_job_is_seen_again_is_not_lost(slurm: Slurm, run: Watched) -> None:
    """Slurm queues it again, or the controller had forgotten it while it started again."""
    before = run.looks(LOST_LOOKS - 1)
    shows(slurm, "17 PENDING")
    seen = run.looks(1)
    shows(slurm)
    after = run.looks(LOST_LOOKS, 200.0)

    assert before + seen == [""] * LOST_LOOKS
    assert after == [""] * (LOST_LOOKS - 1) + ["UNKNOWN"]


@pytest.mark.parametrize("left", ["17_[3-5%1] PENDING", "17_2 RUNNING", "17_1 REQUEUED", "19 PENDING"])
def test_a_run_is_not_over_while_any_of_its_jobs_waits_or_works(slurm: Slurm, run: Watched, left: str) -> None:
    """Also one of a later array, which a task has submitted."""
    shows(slurm, "17_1 FAILED", left)

    assert run.looks(2 * LOST_LOOKS) == [""] * 2 * LOST_LOOKS


def test_the_jobs_of_another_run_or_folder_keep_no_run_alive(slurm: Slurm, run: Watched) -> None:
    shows(slurm, "17 FAILED")
    slurm.shows("18", "RUNNING", key="demo2")
    slurm.shows("19", "RUNNING", folder="/elsewhere")

    assert run.looks(2) == ["", "FAILED"]


def test_a_run_ended_as_its_last_task_did_that_has_started(slurm: Slurm, run: Watched) -> None:
    """The tasks behind it were canceled while they waited."""
    shows(slurm, "17_1 COMPLETED", "17_2 FAILED")
    queue = (slurm.folder / "queue").read_text()
    for number in ("17_1", "17_2"):
        queue = queue.replace(f"me||{number}|", f"me|node1|{number}|")
    (slurm.folder / "queue").write_text(queue)
    slurm.shows("17_[3-5%1]", "CANCELLED")

    ends = [run.look() for _ in range(2)]

    assert ends[0] is None
    assert ends[1] is not None and (ends[1].job_id, ends[1].state) == ("17_2", "FAILED")


def test_accounting_says_how_the_job_of_a_run_ended_that_squeue_has_forgotten(slurm: Slurm, run: Watched) -> None:
    submission = submissions.take("demo", None)
    assert submission is not None
    submissions.fill(submission, "17")
    rows = ("17_1|COMPLETED|node1|0:0||1000", "17_2|CANCELLED by 1000|node1|0:15||2000")
    never = "17_[3-5]|CANCELLED by 1000|None assigned|0:0||2000"
    slurm.answer("sacct", "\n".join(f"echo '{row}'" for row in (*rows, never)))

    ends = [run.look() for _ in range(2)]

    assert ends[1] is not None and (ends[1].job_id, ends[1].state) == ("17_2", "CANCELLED")


def test_a_record_may_be_seen_after_the_end_of_its_job(slurm: Slurm, run: Watched) -> None:
    shows(slurm, "17 COMPLETED")

    run.looks(2)
    at_once = run.acted
    run.look(LATENCY_SECONDS - 0.5)
    in_time = run.acted
    run.look(1.0)

    assert (at_once, in_time, run.acted) == (0, 0, 1)


def test_looking_for_records_takes_a_twentieth_of_the_time_at_most(
    run: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(folder: str) -> list[str]:
        run.clock.now += 3.0
        return []

    monkeypatch.setattr("snakemake_executor_plugin_unbroken.executor.os.listdir", slow)
    run.look()

    assert run.driver.executor.next_seconds_between_status_checks == 60.0


def test_a_record_is_found_by_its_name_and_its_content(run: Watched) -> None:
    toy(segment().folder.root.parents[1], goal=1000, segment_minutes=0.001)
    second = run.driver.out(run.driver.job(segment(2)), segment(2))
    segment(2).record.write_text(segment(1).record.read_text())  # it names another segment

    left = run.driver.executor.look_after([run.info, second])

    assert [(info.aux or {})[SEGMENT] for info in left] == [segment(2)]


def test_a_task_that_does_not_start_by_itself_is_told_once_with_what_to_type(slurm: Slurm, run: Watched) -> None:
    shows(slurm, "17_[2-5%1] PENDING")
    queue = slurm.folder / "queue"
    queue.write_text(queue.read_text().replace("|None|", "|JobHeldUser|"))

    assert run.looks(3) == [""] * 3

    (line,) = run.driver.lines()
    assert line.startswith(
        "demo segment 1: Slurm job 17_2 is PENDING (JobHeldUser): it is held; type: scontrol release 17"
    )
