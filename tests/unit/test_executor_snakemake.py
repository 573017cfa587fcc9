"""The settings of `executor: unbroken`, and the mark of an output under way, which a job removes for its driver."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm as parent
from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_unbroken import ExecutorSettings, common_settings


def test_the_settings_are_the_parents_and_more() -> None:
    own = {field.name for field in dataclasses.fields(ExecutorSettings)}
    theirs = {field.name for field in dataclasses.fields(parent.ExecutorSettings)}

    assert own - theirs == {"ahead"}
    assert theirs <= own
    assert common_settings is parent.common_settings


@pytest.mark.process
def test_requeue_is_on_unless_it_is_switched_off() -> None:
    assert ExecutorSettings().requeue is True
    assert ExecutorSettings(no_requeue=True).requeue is False


@pytest.mark.process
def test_an_array_without_tasks_is_refused() -> None:
    with pytest.raises(WorkflowError, match=r"--unbroken-ahead: found 0, allowed: 1 or more"):
        ExecutorSettings(ahead=0)


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
