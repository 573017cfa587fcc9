"""What `executor: unbroken` does with a job that cannot be submitted now, or at all, and without its parent plugin."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from support.driver import Driver, segment, shows
from support.newer import newer_passport
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_outages import slurm, submission

from snakemake_executor_plugin_unbroken.chain import LEAVING_SECONDS
from snakemake_executor_plugin_unbroken.segments import refuse_mistakes, work_of
from unbroken.config.package_files import install_line
from unbroken.job import control, submissions
from unbroken.job.segment_script import only_hands_on
from unbroken.job.submissions import LEFT_OUT
from unbroken.store.layout import NOTES, RunFolder
from unbroken.store.lease import take

pytestmark = pytest.mark.process

__all__ = ["slurm"]  # a fixture
AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
NEVER = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"


@pytest.fixture
def driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch, slurm)


# --- before it is submitted ---


def test_a_run_that_cannot_be_gone_on_with_is_a_failed_job_and_not_the_end_of_the_driver(driver: Driver) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    newer_passport(RunFolder("demo"))
    job = driver.job(segment(2))

    driver.executor.run_job(job)

    assert (driver.failed, driver.submitted, job.attempt) == ([job], [], 3)
    assert "found format " in driver.lines()[0]
    assert submissions.newest(segment(2).key) is None


def test_a_segment_whose_work_is_done_waits_while_its_run_is_held_and_gets_no_job(driver: Driver) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places, job = RunFolder("demo"), driver.job(segment(goal=10**6))
    places.record(1).unlink()

    with take(places.lease, 2, 0.0):
        driver.executor.run_job(job)
        held = driver.postponed()
    driver.try_again(job)

    assert held == [job]
    assert submissions.newest(segment().key) is None
    assert (driver.done, driver.failed, driver.slurm.told) == ([job], [], [])


def test_a_segment_does_not_wait_for_ever_for_a_run_that_is_held(driver: Driver) -> None:
    """A job in the queue, which finds out by whom, takes its turn."""
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places, job = RunFolder("demo"), driver.job(segment(goal=10**6))
    places.record(1).unlink()
    shows(driver.slurm, "17 PENDING")
    submission("17")

    with take(places.lease, 2, 0.0):
        driver.executor.run_job(job)
        assert driver.postponed() == [job]
        driver.chain(segment())._held_since = time.monotonic() - LEAVING_SECONDS
        driver.try_again(job)

    assert driver.postponed() == []
    assert (driver.submitted, [info.job for info in driver.active()]) == ([job], [job])


# --- sbatch has said no ---


FULL = "sbatch: error: AssocMaxSubmitJobLimit"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (f"echo '{AWAY}' >&2; exit 1", f"Slurm, or another process, is busy with it ({AWAY})"),
        (f"echo '{FULL}' >&2; exit 1", f"the queue takes no more jobs now ({FULL})"),
        ("exit 127", "Slurm, or another process, is busy with it (sbatch: exit code 127)"),
    ],
    ids=["away", "full", "missing"],
)
def test_what_sbatch_may_take_later_costs_no_attempt_and_is_told(driver: Driver, answer: str, line: str) -> None:
    job = driver.job(segment())
    driver.slurm.answer("sbatch", answer)

    driver.executor.run_job(job)

    assert (driver.failed, job.attempt, driver.postponed()) == ([], 1, [job])
    assert submissions.newest(segment().key) is None  # so the next try may take it
    assert driver.lines() == [f"demo segment 1: {line}; tried again"]


def test_an_array_that_sbatch_took_although_its_answer_was_lost_is_looked_for_before_the_next_try(
    driver: Driver,
) -> None:
    """Also if squeue was asked a moment ago."""
    job = driver.job(segment())
    driver.slurm.refuses(AWAY)
    driver.executor.run_job(job)

    shows(driver.slurm, "17_[1-7%1] PENDING")
    driver.slurm.takes()
    driver.try_again(job)

    assert driver.lines()[-1] == "demo segment 1: job 17 of its run is in the queue or running already, taken over"
    assert driver.slurm.told == []


def test_what_sbatch_never_takes_is_not_tried_again(driver: Driver) -> None:
    job = driver.job(segment())
    driver.slurm.refuses(NEVER)

    driver.executor.run_job(job)

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    assert driver.lines() == [
        f"demo segment 1: Slurm refuses the job ({NEVER}); fix the config, then start snakemake again"
    ]
    assert len(driver.slurm.sizes) == 1  # and no smaller array is offered


def test_without_a_driver_a_run_for_which_the_queue_is_full_is_left_out_and_named(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch, slurm, is_detached=True)
    jobs = driver.plan(segment(1), segment(2))
    slurm.refuses("sbatch: error: AssocMaxSubmitJobLimit")

    for job in jobs:
        driver.executor.run_job(job)

    assert driver.submitted == jobs  # Snakemake goes on
    assert len(slurm.sizes) == 3  # 4, 2, 1; nothing for the second segment
    (line,) = driver.lines()
    assert line.endswith("; if none is left, start snakemake again when there is room")
    assert (NOTES / f"demo{LEFT_OUT}").exists()


# --- after it was submitted ---


def test_a_driver_that_is_told_to_end_leaves_all_in_the_queue_and_waits_for_no_job(driver: Driver) -> None:
    first, second = driver.job(segment(1, name="other")), driver.job(segment(2))
    outs = [driver.out(first, segment(1, name="other")), driver.out(second, segment(2))]
    shows(driver.slurm, "17_2 RUNNING", "17_[3-5%1] PENDING")
    driver.lines()
    driver.workflow.scheduler._user_kill = "graceful"

    began = time.monotonic()
    left = [asyncio.run(active(driver, outs)), asyncio.run(active(driver, []))]

    assert left == [[], []]
    assert time.monotonic() - began < 5
    assert driver.failed == [first, second]  # by name; each with no attempt left
    assert {job.attempt for job in driver.failed} == {3}
    assert driver.errors == []  # no red lines
    assert driver.canceled() == []
    assert driver.lines() == [
        "told to end (SIGTERM): the jobs of all runs stay in the queue and go on; next: snakemake"
    ]


async def active(driver: Driver, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
    return [info async for info in driver.executor.check_active_jobs(infos)]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nothing that works ever leaves."""
    monkeypatch.setattr(control, "SAVING_SECONDS", 0.0)


def test_a_ctrl_c_lets_what_works_save_and_cancels_each_whole_array_once(driver: Driver) -> None:
    infos = [driver.out(driver.job(segment(number)), segment(number)) for number in (1, 2)]
    other = segment(1, name="other")
    infos.append(driver.out(driver.job(other), other, "30"))
    driver.slurm.shows("17_1", "RUNNING")
    driver.slurm.shows("17_[2-5%1]", "PENDING")
    driver.slurm.shows("25_[1-3%1]", "PENDING")  # which a task has submitted
    driver.slurm.shows("30_1", "RUNNING", key="other")
    driver.slurm.shows("40_1", "RUNNING", key="not-of-this-driver")
    driver.slurm.shows("41_1", "RUNNING", folder="/elsewhere")

    driver.executor.cancel_jobs(infos)

    waiting, told, asked = driver.canceled()
    assert sorted(waiting) == ["--state=PENDING", "17", "25"]
    assert sorted(told) == ["--signal=INT", "17_1", "30_1"]
    assert sorted(asked) == ["17", "25", "30"]


def test_a_ctrl_c_cancels_also_what_the_other_thread_is_just_looking_at(driver: Driver) -> None:
    driver.out(driver.job(segment()), segment())
    driver.slurm.shows("17_1", "RUNNING")

    driver.executor.cancel_jobs([])

    assert driver.canceled() == [["--signal=INT", "17_1"], ["17"]]


def test_a_ctrl_c_between_two_segments_cancels_the_tasks_that_run_ahead(driver: Driver) -> None:
    """The record of one segment is there, and Snakemake has not asked for the next one yet."""
    one = segment()
    driver.out(driver.job(one), one)
    driver.chain(one).succeed(one)
    driver.slurm.shows("17_2", "RUNNING")

    driver.executor.cancel_jobs([])

    assert driver.canceled() == [["--signal=INT", "17_2"], ["17"]]


def test_a_ctrl_c_while_squeue_is_silent_cancels_what_was_submitted_last(driver: Driver) -> None:
    info = driver.out(driver.job(segment()), segment())
    submission("17")
    driver.slurm.answer("squeue", "exit 1")

    driver.executor.cancel_jobs([info])

    assert driver.canceled() == [["17"]]


# --- small things ---


def test_jobs_on_another_cluster_are_refused() -> None:
    with pytest.raises(WorkflowError, match="found clusters, allowed: none of these"):
        refuse_mistakes([SimpleNamespace(params={}, resources={"clusters": "b"})])


def test_a_group_of_jobs_and_a_job_without_a_number_are_no_segments(driver: Driver) -> None:
    one = segment()

    assert work_of(driver.job(one)) == one
    assert work_of(driver.job(one, is_group=lambda: True)) is None
    assert work_of(driver.job(one, wildcards={"run": "demo"})) is None
    assert work_of(driver.job(one, output=["other/001.json"])) is None


def test_a_script_that_is_no_python_or_cannot_be_read_keeps_its_snakemake(tmp_path: Path) -> None:
    script = tmp_path / "toy.py"
    script.write_text("from unbroken.job.attempt import main\nmain(snakemake, 1)\n")
    assert only_hands_on(script)

    script.write_text("from unbroken.job.attempt import main\nmain(snakemake, 1\n")
    assert not only_hands_on(script)
    assert not only_hands_on(tmp_path / "gone.py")


HIDDEN = """
import pkgutil
sys.modules["snakemake_executor_plugin_slurm"] = None
found = list(pkgutil.iter_modules())
pkgutil.iter_modules = lambda *given: [one for one in found if one.name != "snakemake_executor_plugin_slurm"]
"""
FOREIGN = """
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor as Executor
from snakemake_interface_executor_plugins.settings import CommonSettings
common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)
"""
REGISTER = """
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
plugin = ExecutorPluginRegistry().plugins["unbroken"]
try: plugin.executor(None, None)
except Exception as error: print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize(
    ("parent", "lacks"), [("", "halted"), (FOREIGN, "ExecutorSettings")], ids=["missing", "foreign"]
)
def test_where_the_parent_is_missing_or_a_foreign_one_snakemake_starts_all_the_same(
    tmp_path: Path, parent: str, lacks: str
) -> None:
    """Snakemake registers every plugin that it finds, whoever asks for it."""
    hide = HIDDEN
    if parent:
        folder = tmp_path / "snakemake_executor_plugin_slurm"
        folder.mkdir()
        (folder / "__init__.py").write_text(parent)
        (folder / "submit_string.py").touch()
        hide = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    code = f"import json, sys\n{hide}{REGISTER}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kind, said = json.loads(done.stdout)
    assert kind == "WorkflowError"
    assert "needs snakemake-executor-plugin-slurm 2.8 (" in said and lacks in said
    assert f"type: {install_line(extra='workflow')}" in said
