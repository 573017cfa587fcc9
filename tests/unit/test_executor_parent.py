"""What `executor: unbroken` relies on in snakemake-executor-plugin-slurm and in Snakemake, by name.

A new release that changes any of it fails here, and not in the middle of somebody's campaign.
"""

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import snakemake.api  # before its parts, which import each other
import snakemake.dag
import snakemake_executor_plugin_slurm as parent
from snakemake.jobs import Job as SnakemakeJob
from snakemake.persistence import PersistenceBase
from snakemake.resources import Resource
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor, SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from snakemake_executor_plugin_unbroken import Executor, ExecutorSettings, common_settings
from snakemake_executor_plugin_unbroken import parent as parent_module
from snakemake_executor_plugin_unbroken.parent import in_the_batch_step, with_our_commands
from snakemake_executor_plugin_unbroken.plugin_missing import Executor as MissingExecutor
from unbroken.config.package_files import install_line


def source(thing: object) -> str:
    return inspect.getsource(thing)  # type: ignore[arg-type]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_parent_is_a_release_that_was_read() -> None:
    assert version("snakemake-executor-plugin-slurm").startswith("2.8.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__init__", ["self", "workflow", "logger"]),
        ("__post_init__", ["self", "test_mode"]),
        ("run_job", ["self", "job"]),
        ("_submit_job", ["self", "job"]),
        ("_report_job_error_threadsafe", ["self", "job_info", "msg"]),
        ("check_active_jobs", ["self", "active_jobs"]),
        ("cancel_jobs", ["self", "active_jobs"]),
        ("get_partition_arg", ["self", "job"]),
        ("clean_old_logs", ["self"]),
        ("shutdown", ["self"]),
    ],
)
def test_what_is_overridden_is_the_parents_own_and_is_called_as_before(name: str, expected: list[str]) -> None:
    assert parameters(vars(parent.Executor)[name]) == expected
    assert getattr(Executor, name) is not getattr(parent.Executor, name)


@pytest.mark.parametrize("name", ["get_job_args", "report_job_submission"])
def test_the_rest_of_what_is_overridden_comes_from_snakemake(name: str) -> None:
    assert name in vars(RemoteExecutor)
    assert name not in vars(parent.Executor)


INSIDE = """
    _job_submission_executor executor_error_callback persistence register_job=False remote_execution_settings
    restart_times run_uuid slurm-jobstep slurm_logdir slurm_logfile _user_kill
"""


@pytest.mark.parametrize("inside", INSIDE.split())
def test_one_module_alone_knows_the_inside_of_the_parent(inside: str) -> None:
    folder = Path(parent_module.__file__).parent

    found = {path.name for path in folder.glob("*.py") if inside in path.read_text()}
    assert "parent.py" in found
    assert found <= {"parent.py", "slurm_plugin.py"}


def test_the_parent_submits_in_run_job_and_in_no_other_way() -> None:
    text = source(parent.Executor.run_job)

    assert "self._report_job_submission_threadsafe(" in text
    assert "self._report_job_error_threadsafe(" in text
    assert '"partition": self.get_partition_arg(job)' in text
    assert "exec_job = self.format_job_exec(job)" in text
    assert "self.run_job_pre(job)" in source(parent.Executor._submit_job)
    assert "self.report_job_submission" in source(parent.Executor._report_job_submission_threadsafe)


def test_the_words_for_sbatch_are_put_together_by_what_a_template_is_made_by() -> None:
    text = source(parent.Executor.run_job)

    assert parameters(parent.get_submit_command) == ["job", "params", "settings", "failed_nodes", "array_job"]
    used = set(re.findall(r"params\.(\w+)", source(parent.get_submit_command)))
    assert used == {"run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"}
    assert text.count("call += ") == text.count("call += set_gres_string(job)") + text.count("call += f' --wrap=\"") + 1
    assert "settings=self.workflow.executor_settings" in text
    assert '"workdir": self.workflow.workdir_init' in text
    assert '"account": next(self.get_account_arg(job))' in text


def test_the_comment_and_the_log_of_a_job_are_what_adoption_expects() -> None:
    text = source(parent.Executor.run_job)

    assert 'comment_str = f"rule_{job.name}_wildcards_{wildcard_str}"' in text
    assert 'self.slurm_logdir / group_or_rule / wildcard_str / "%j.log"' in text
    assert '"_".join(job.wildcards).replace("/", "_")' in source(parent.get_job_wildcards)


def test_the_parent_keeps_what_is_used_of_it() -> None:
    text = source(parent.Executor.__post_init__)

    for attribute in ("run_uuid", "_job_submission_executor", "slurm_logdir"):
        assert f"self.{attribute} = " in text
    assert "atexit.register(self.clean_old_logs)" in text


def test_the_looking_thread_starts_before_the_parent_is_ready() -> None:
    """So everything that it uses is made before the parent's constructor is called."""
    text = source(RemoteExecutor.__init__)

    assert text.index("self.wait_thread.start()") < text.index("self.__post_init__()")


def test_the_looking_thread_asks_even_if_no_job_is_out_and_sleeps_as_told() -> None:
    text = source(RemoteExecutor._wait_for_jobs)

    assert "async for job_info in self.check_active_jobs(active_jobs)" in text
    assert "await self.sleep()" in text
    assert "self.next_seconds_between_status_checks" in source(RemoteExecutor.sleep)


def test_a_job_without_attempts_left_is_not_tried_again() -> None:
    assert "if job.restart_times > job.attempt - 1:" in source(JobScheduler._handle_error)
    assert "restart_times" in source(SnakemakeJob)


def test_a_scheduler_that_is_told_to_end_notes_it_and_ends_when_no_job_is_left() -> None:
    assert "signal.signal(signal.SIGTERM, self.exit_gracefully)" in source(JobScheduler.__init__)
    assert "self._user_kill = None" in source(JobScheduler.__init__)
    assert 'self._user_kill = "graceful"' in source(JobScheduler.exit_gracefully)
    assert "if executor_error or not running:" in source(JobScheduler.schedule)
    assert parameters(JobScheduler.error_callback) == ["self", "job"]
    assert "self.workflow.scheduler.error_callback(job_info.job)" in source(AbstractExecutor.report_job_error)


def test_immediate_submission_goes_on_at_the_submission() -> None:
    text = source(JobScheduler.__init__)

    assert "self.submit_callback = self._proceed" in text
    assert "self.finish_callback = self._noop" in text


def test_snakemake_keeps_the_numbers_of_jobs() -> None:
    assert parameters(PersistenceBase.external_jobids) == ["self", "job"]
    assert parameters(PersistenceBase.started) == ["self", "job", "external_jobid"]


def test_an_interruptible_job_waits_for_the_files_that_snakemake_names_without_a_folder_of_the_driver() -> None:
    assert "wait_for_files.append(self.tmpdir)" in source(RemoteExecutor.get_job_args)
    assert "wait_for_files.extend(job.get_wait_for_files())" in source(RemoteExecutor.get_job_args)
    assert "len(wait_for_files) > 20" in source(RemoteExecutor.get_job_args)


def test_a_driver_knows_its_jobs_and_their_rules_before_it_submits() -> None:
    assert parameters(snakemake.dag.DAG.needrun_jobs) == ["self", "exclude_finished"]
    assert "evaluable" in " ".join(vars(Resource))


def test_outputs_of_a_failed_job_are_removed_in_the_job_and_kept_where_it_was_asked_for() -> None:
    assert "if error and not self.dag.workflow.execution_settings.keep_incomplete:" in source(SnakemakeJob.postprocess)
    segment = in_the_batch_step("python -m snakemake --executor slurm-jobstep --jobs 1")
    interruptible = in_the_batch_step("python -m snakemake --executor slurm-jobstep --jobs 1", keeps_incomplete=False)

    assert segment == "trap : TERM; python -m snakemake --executor local --keep-incomplete"
    assert interruptible == "trap : TERM; python -m snakemake --executor local"


def test_a_rule_finds_this_unbroken_before_any_other() -> None:
    path = subprocess.run(
        ["sh", "-c", with_our_commands('printf "%s" "$PATH"')],
        env={"PATH": "/a b:/bin"},
        capture_output=True,
        text=True,
    ).stdout

    assert path == f"{Path(sys.executable).parent}:/a b:/bin"


def test_the_command_of_a_job_names_its_segment_and_its_attempt() -> None:
    text = source(RealExecutor.get_job_args)

    assert '"--target-jobs"' in text
    assert 'format_cli_arg("--attempt", job.attempt)' in text
    assert '"-m snakemake"' in source(RealExecutor.format_job_exec)


def test_a_job_waits_for_a_folder_that_its_driver_removes() -> None:
    """Else `files_to_wait_for` is needless."""
    assert "wait_for_files.append(self.tmpdir)" in source(RemoteExecutor.get_job_args)
    assert "shutil.rmtree(self.tmpdir" in source(RemoteExecutor.shutdown)


def test_a_submitted_job_has_room_for_what_is_known_of_it() -> None:
    assert [field.name for field in dataclasses.fields(SubmittedJobInfo)] == ["job", "external_jobid", "aux"]


def test_the_settings_are_the_parents_and_more() -> None:
    own = {field.name for field in dataclasses.fields(ExecutorSettings)}
    theirs = {field.name for field in dataclasses.fields(parent.ExecutorSettings)}

    assert own - theirs == {"record_seconds", "ahead", "array_chains"}
    assert theirs <= own
    assert common_settings is parent.common_settings


def test_requeue_is_on_unless_it_is_switched_off() -> None:
    assert ExecutorSettings().requeue is True
    assert ExecutorSettings(no_requeue=True).requeue is False


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"array_jobs": "all"}, "--unbroken-array-jobs: segments follow each other and cannot be an array"),
        ({"ahead": 0}, "--unbroken-ahead: found 0, allowed: 1 or more"),
        ({"record_seconds": 0.0}, "--unbroken-record-seconds: found 0.0, allowed: from 0.1 to 600"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(WorkflowError) as refused:
        ExecutorSettings(**settings)

    assert line in str(refused.value)


def test_without_the_parent_the_executor_says_what_to_type() -> None:
    with pytest.raises(WorkflowError) as refused:
        MissingExecutor(None, None)

    assert "needs snakemake-executor-plugin-slurm 2.8" in str(refused.value)
    assert f"type: {install_line(extra='workflow')}" in str(refused.value)


def test_the_mark_of_an_output_under_way_is_where_a_job_removes_it_and_its_time_is_when_the_work_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job by its ticket removes the mark; the driver makes it anew with the time that Snakemake's report shows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text(
        "from pathlib import Path\n"
        "from snakemake_executor_plugin_unbroken.parent import note_began\n"
        "from unbroken.segment import from_ticket\n"
        "rule one:\n"
        "    output: 'results/demo/segments/001.json'\n"
        "    shell: 'touch {output}'\n"
        "onstart:\n"
        "    finished = workflow.persistence.finished\n"
        "    async def finished_after_the_job(job):\n"
        "        workflow.persistence.started(job, '17')\n"
        "        assert len(list(from_ticket.INCOMPLETE.iterdir())) == 1\n"
        "        from_ticket.unmark(Path(str(job.output[0])))\n"
        "        assert list(from_ticket.INCOMPLETE.iterdir()) == []\n"
        "        note_began(job, 1000.0)\n"
        "        return await finished(job)\n"
        "    workflow.persistence.finished = finished_after_the_job\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (noted,) = (tmp_path / ".snakemake" / "metadata").iterdir()
    assert json.loads(noted.read_text())["starttime"] == 1000.0
    assert list((tmp_path / ".snakemake" / "incomplete").iterdir()) == []
