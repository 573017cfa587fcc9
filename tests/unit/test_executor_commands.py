"""What `executor: unbroken` makes of its parent's commands, where the parent or a rule is not what was expected."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from support.driver import Driver
from support.slurm_commands import Slurm
from unit.test_executor_outages import slurm
from unit.test_executor_parts import segment

from snakemake_executor_plugin_unbroken.parent import behind, by_ticket, in_the_batch_step, local_script, plain_tmpdir

__all__ = ["slurm"]  # a fixture
OURS = f"{sys.executable} -m snakemake --executor slurm-jobstep --jobs 1"


@pytest.mark.parametrize("command", ["python -m snakemake --executor slurm-step", f"{OURS} {OURS}"])
def test_a_parent_that_starts_jobs_in_another_way_is_refused(command: str) -> None:
    """Else a job would run in a second Snakemake, which removes its record at Slurm's signal."""
    with pytest.raises(WorkflowError, match=r"lacks '--executor slurm-jobstep --jobs 1': another .* than 2\.8"):
        in_the_batch_step(command)


def test_a_command_without_a_snakemake_is_refused() -> None:
    assert "-m module a -- " in behind(OURS, "module", ["a"])
    job = SimpleNamespace(get_target_spec=list, attempt=2)
    assert by_ticket(f"cd x; {OURS}", "module", Path("t"), job) == f"cd x; {sys.executable} -m module t --attempt 2"

    with pytest.raises(WorkflowError, match="-m snakemake"):
        behind("snakemake --executor local", "module", [])
    with pytest.raises(WorkflowError, match="-m snakemake"):
        by_ticket("snakemake --executor local", "module", Path("t"), job)


@pytest.mark.parametrize(
    ("raw", "forced", "expected"),
    [
        (None, {}, ""),
        ("system_tmpdir", {}, ""),
        ("'/scratch'", {}, "/scratch"),
        ("lambda wildcards: '/scratch'", {}, None),
        ("17", {}, None),
        (None, {"toy": {"tmpdir": "/x"}}, None),
    ],
)
def test_a_tmpdir_that_only_snakemake_can_work_out_is_left_to_it(
    raw: str | None, forced: dict[str, object], expected: str | None
) -> None:
    workflow = SimpleNamespace(resource_settings=SimpleNamespace(overwrite_resources=forced))
    resources = {} if raw is None else {"tmpdir": SimpleNamespace(raw=raw)}
    rule = SimpleNamespace(name="toy", workflow=workflow, resources=resources)

    assert plain_tmpdir(SimpleNamespace(rule=rule)) == expected


def test_a_job_without_a_script_of_its_own_keeps_its_snakemake(tmp_path: Path) -> None:
    (tmp_path / "toy.py").touch()
    place = SimpleNamespace(join=lambda name: SimpleNamespace(get_path_or_uri=lambda secret_free: tmp_path / name))

    def found(script: object, is_group: bool = False) -> Path | None:
        rule = SimpleNamespace(script=script, basedir=place)
        return local_script(SimpleNamespace(is_group=lambda: is_group, rule=rule))

    assert found("toy.py") == tmp_path / "toy.py"
    assert [found("gone.py"), found(None), found("toy.py", is_group=True)] == [None] * 3


def test_an_error_in_a_thread_that_submits_ends_the_driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for that job for ever."""
    driver, errors = Driver(monkeypatch, slurm), list[BaseException]()
    driver.executor.workflow.scheduler.executor_error_callback = errors.append
    job = driver.job(segment(), is_group=lambda: 1 / 0)

    driver.executor.submit_soon(job)
    assert driver.postponed() == []

    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_old_logs_are_removed_and_the_folders_of_jobs_that_wait_stay(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch, slurm)
    folder = driver.executor.slurm_logdir / "rule_toy_segment" / "demo_001"
    folder.mkdir(parents=True)
    for name, days in (("1.log", 11), ("2.log", 9)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    (folder / "3.log").symlink_to("gone")  # as a file that is removed between two looks

    driver.executor.clean_old_logs()

    assert sorted(path.name for path in folder.iterdir()) == ["2.log", "3.log"]
