"""What `executor: unbroken` does with a job that cannot be submitted now, or at all, and without its parent plugin."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from support.driver import Driver
from support.slurm_commands import Slurm
from support.toyrun import toy
from unit.test_executor_outages import shows, slurm, ticket
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken.adoption import LEAVING_SECONDS
from snakemake_executor_plugin_unbroken.segments import segment_of
from snakemake_executor_plugin_unbroken.submitting import _refuse_other_clusters
from snakemake_executor_plugin_unbroken.ticket_jobs import _only_hands_on
from unbroken.runs import submissions
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import take

__all__ = ["slurm"]  # a fixture
AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
NEVER = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"


@pytest.fixture
def driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch, slurm)


# --- before it is submitted ---


def test_a_run_that_cannot_be_gone_on_with_is_a_failed_job_and_not_the_end_of_the_driver(driver: Driver) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    (RunFolder("demo").checkpoints / "format.json").write_text("{")
    job = driver.job(segment(2))

    assert driver.executor.is_complete(job)

    assert (driver.failed, driver.submitted) == ([job], [])
    assert "format.json" in driver.errors[0]
    assert submissions.newest(segment(2).key) is None


def test_a_segment_whose_work_is_done_waits_while_its_run_is_held_and_gets_no_job(driver: Driver) -> None:
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places, job = RunFolder("demo"), driver.job(segment(goal=10**6))
    places.record(1).unlink()

    with take(places.lease, 2, 0.0, print):
        assert driver.executor.is_complete(job)
        held = driver.postponed()
    assert driver.executor.is_complete(job)

    assert held == [job]
    assert submissions.newest(segment().key) is None
    assert (driver.done, driver.failed, driver.submitted) == ([job], [], [])


def test_a_segment_does_not_wait_for_ever_for_a_run_that_is_held(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job in the queue, which finds out by whom, takes its turn."""
    toy(Path(), goal=10**6, segment_minutes=0.001)
    places, job = RunFolder("demo"), driver.job(segment(goal=10**6))
    places.record(1).unlink()
    shows(driver.slurm, "17", "PENDING")
    ticket(1, "17")

    with take(places.lease, 2, 0.0, print):
        assert driver.executor.is_complete(job)
        assert driver.postponed() == [job]
        driver.executor._leaving[segment()] = time.monotonic() - LEAVING_SECONDS
        assert driver.executor.is_complete(job)

    assert driver.postponed() == []
    assert (driver.submitted, list(driver.executor._out)) == ([job], ["17"])


def test_a_job_is_handed_over_again_while_squeue_is_silent(driver: Driver) -> None:
    job = driver.job(segment())
    driver.slurm.answer("squeue", "exit 1")

    assert driver.executor.is_complete(job)

    assert driver.postponed() == [job]
    assert driver.lines() == ["squeue does not answer; nothing is submitted until it does"]
    assert submissions.newest(segment().key) is None


# --- sbatch has said no ---


def test_a_controller_that_is_away_costs_no_attempt(driver: Driver) -> None:
    job = driver.job(segment())
    submissions.take(segment().key, None)

    driver.executor._report_job_error_threadsafe(SubmittedJobInfo(job), AWAY)

    assert (driver.failed, job.attempt) == ([], 1)
    assert driver.postponed() == [job]
    assert submissions.newest(segment().key) is None  # so the next try may take it
    assert driver.lines() == [f"demo segment 1: Slurm does not take the job now; tried again ({AWAY})"]


def test_a_job_that_sbatch_took_although_its_answer_was_lost_is_looked_for_before_the_next_try(driver: Driver) -> None:
    job = driver.job(segment())
    assert not driver.executor._adoption.find(segment(), [], []).job_id  # the queue was empty

    shows(driver.slurm, "17", "PENDING")
    driver.executor._report_job_error_threadsafe(SubmittedJobInfo(job), AWAY)
    assert driver.executor.is_complete(job)

    assert list(driver.executor._out) == ["17"]
    assert driver.slurm.told == []


@pytest.mark.parametrize("is_segment", [True, False])
def test_what_sbatch_never_takes_is_not_tried_again(driver: Driver, is_segment: bool) -> None:
    job = driver.job(segment(), **({} if is_segment else {"params": {}, "name": "plot"}))

    driver.executor._report_job_error_threadsafe(SubmittedJobInfo(job), f"it said '{NEVER}'")

    assert (driver.failed, job.attempt) == ([job], job.restart_times + 1)
    (line,) = driver.lines()
    assert line.startswith(f"{'demo segment 1' if is_segment else 'plot'}: Slurm refuses the job (sbatch: error:")


def test_an_error_without_words_of_sbatch_is_an_attempt_like_any_other(driver: Driver) -> None:
    job = driver.job(segment())
    driver.executor._report_job_error_threadsafe(SubmittedJobInfo(job), "no such file: sbatch")
    assert (driver.failed, job.attempt, driver.lines()) == ([job], 1, [])


# --- after it was submitted ---


def test_a_driver_that_is_told_to_end_leaves_to_the_next_start_what_it_has_postponed(driver: Driver) -> None:
    first, second = driver.job(segment(1)), driver.job(segment(2))
    driver.executor._later.add(15.0, first)
    out = driver.out(second, segment(2))
    shows(driver.slurm, "17", "PENDING", number=2)

    left = driver.executor._without_pending([out])
    again = driver.executor._without_pending([out])
    driver.executor._pending_due = time.monotonic()
    shows(driver.slurm, "17", "RUNNING", number=2)
    at_work = driver.executor._without_pending([out])

    assert (left, again, at_work) == ([], [out], [out])
    assert driver.failed == [first, second]  # by name; each with no attempt left
    assert {job.attempt for job in driver.failed} == {3}
    assert driver.lines() == [
        "told to end (SIGTERM): jobs at work are waited for, the others are left to the next start",
        "demo segment 2: job 17 stays in the queue; the next start takes it over",
    ]


# --- small things ---


def test_segments_on_another_cluster_are_refused() -> None:
    plain = SimpleNamespace(params={}, resources={"clusters": "b"})
    _refuse_other_clusters([plain])

    with pytest.raises(WorkflowError, match="found clusters, allowed: none of these"):
        _refuse_other_clusters([plain, SimpleNamespace(params={"assignment": 1}, resources={"clusters": "b"})])


def test_a_group_of_jobs_and_a_job_without_a_number_are_no_segments(driver: Driver) -> None:
    one = segment()

    assert segment_of(driver.job(one)) == one
    assert segment_of(driver.job(one, is_group=lambda: True)) is None
    assert segment_of(driver.job(one, wildcards={"run": "demo"})) is None
    assert segment_of(driver.job(one, output=["other/001.json"])) is None


def test_a_script_that_is_no_python_or_cannot_be_read_keeps_its_snakemake(tmp_path: Path) -> None:
    script = tmp_path / "toy.py"
    script.write_text("from unbroken.segment.job import main\nmain(snakemake, 1)\n")
    assert _only_hands_on(script)

    script.write_text("from unbroken.segment.job import main\nmain(snakemake, 1\n")
    assert not _only_hands_on(script)
    assert not _only_hands_on(tmp_path / "gone.py")


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
    ("parent", "lacks"), [("", "halted"), (FOREIGN, "get_submit_command")], ids=["missing", "foreign"]
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
