"""What `executor: unbroken` relies on in Snakemake for its chains, and its settings.

A new release that changes any of it fails here, and not in the middle of a campaign; test_slurm_plugin_contract.py has
what concerns the Slurm plugin.
"""

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import snakemake.api  # before its parts, which import each other
import snakemake.dag
import snakemake.parser
import snakemake.workflow
import snakemake_executor_plugin_slurm as parent
from snakemake.io import _IOFile
from snakemake.jobs import Job as SnakemakeJob
from snakemake.resources import Resource
from snakemake.rules import Rule
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from snakemake_executor_plugin_unbroken import ExecutorSettings, common_settings


def source(thing: object) -> str:
    return inspect.getsource(thing)  # type: ignore[arg-type]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_looking_thread_starts_before_the_executor_is_ready() -> None:
    """So everything that it uses is made before Snakemake's constructor is called."""
    text = source(RemoteExecutor.__init__)

    assert text.index("self.wait_thread.start()") < text.index("self.__post_init__()")


def test_the_looking_thread_asks_even_if_no_job_is_out_and_sleeps_as_told() -> None:
    text = source(RemoteExecutor._wait_for_jobs)

    assert "async for job_info in self.check_active_jobs(active_jobs)" in text
    assert "await self.sleep()" in text
    assert "self.next_seconds_between_status_checks" in source(RemoteExecutor.sleep)


def test_immediate_submission_goes_on_at_the_submission() -> None:
    text = source(JobScheduler.__init__)

    assert "self.submit_callback = self._proceed" in text
    assert "self.finish_callback = self._noop" in text


def test_a_driver_knows_its_jobs_and_their_rules_before_it_submits() -> None:
    assert parameters(snakemake.dag.DAG.needrun_jobs) == ["self", "exclude_finished"]
    assert "evaluable" in " ".join(vars(Resource))


def test_a_rule_and_its_job_say_what_they_need_of_snakemake() -> None:
    """So `asks_more_of_snakemake` and its neighbors may ask them; a script excludes notebook:, cwl: and their like."""
    rule = {"shadow_depth", "is_handover", "is_checkpoint", "basedir", "script"}
    job = {"conda_env_spec", "container_img_url", "env_modules", "group", "benchmark", "resources"}

    assert all(f"self.{name} = " in source(Rule.__init__) for name in rule)
    assert job <= set(dir(SnakemakeJob))
    assert '"Multiple {} keywords in rule {}."' in source(snakemake.parser.Rule.block_content)
    assert "is_storage" in dir(_IOFile)


def test_a_resource_keeps_how_it_was_written_also_where_the_command_line_changes_it() -> None:
    given = Resource.from_cli_expression("tmpdir", "'/scratch'", with_threads_arg=False)

    assert (given.raw, Resource("tmpdir", "/scratch").raw) == ("'/scratch'", "/scratch")
    assert "rule.resources.update(" in source(snakemake.workflow.Workflow.rule)
    assert "_parsed_overwrite_resources" in source(snakemake.workflow.Workflow.rule)


def test_outputs_of_a_failed_job_are_removed_and_kept_where_it_was_asked_for() -> None:
    assert "if error and not self.dag.workflow.execution_settings.keep_incomplete:" in source(SnakemakeJob.postprocess)


def test_the_command_of_a_job_names_its_segment_and_its_attempt() -> None:
    text = source(RealExecutor.get_job_args)

    assert '"--target-jobs"' in text
    assert 'format_cli_arg("--attempt", job.attempt)' in text
    assert '"-m snakemake"' in source(RealExecutor.format_job_exec)


def test_the_settings_are_the_parents_and_more() -> None:
    own = {field.name for field in dataclasses.fields(ExecutorSettings)}
    theirs = {field.name for field in dataclasses.fields(parent.ExecutorSettings)}

    assert own - theirs == {"record_seconds", "ahead"}
    assert theirs <= own
    assert common_settings is parent.common_settings


@pytest.mark.process
def test_requeue_is_on_unless_it_is_switched_off() -> None:
    assert ExecutorSettings().requeue is True
    assert ExecutorSettings(no_requeue=True).requeue is False


@pytest.mark.process
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ahead": 0}, "--unbroken-ahead: found 0, allowed: 1 or more"),
        ({"record_seconds": 0.0}, "--unbroken-record-seconds: found 0.0, allowed: from 0.1 to 600"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(WorkflowError) as refused:
        ExecutorSettings(**settings)

    assert line in str(refused.value)


@pytest.mark.process
def test_the_mark_of_an_output_under_way_is_where_a_job_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text(
        "from pathlib import Path\n"
        "from unbroken.job import segment_script\n"
        "rule one:\n"
        "    output: 'results/demo/segments/001.json'\n"
        "    shell: 'touch {output}'\n"
        "onstart:\n"
        "    finished = workflow.persistence.finished\n"
        "    async def finished_after_the_job(job):\n"
        "        workflow.persistence.started(job, '17')\n"
        "        assert len(list(segment_script.INCOMPLETE.iterdir())) == 1\n"
        "        segment_script.unmark(Path(str(job.output[0])))\n"
        "        assert list(segment_script.INCOMPLETE.iterdir()) == []\n"
        "        return await finished(job)\n"
        "    workflow.persistence.finished = finished_after_the_job\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / ".snakemake" / "incomplete").iterdir()) == []
