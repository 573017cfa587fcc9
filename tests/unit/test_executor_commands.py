"""What the jobs of a chain run, and what of a rule decides it, where Snakemake or a rule is not what was expected."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from support.driver import Driver, segment
from support.slurm_commands import Slurm
from unit.test_executor_interruptible import work
from unit.test_executor_outages import slurm

from snakemake_executor_plugin_unbroken import Executor
from snakemake_executor_plugin_unbroken.chain_specs import MOST_INPUTS, commands
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.job.spec import path_of
from unbroken.snakemake_inside import local_script, plain_tmpdir

__all__ = ["slurm"]  # a fixture
OURS = f"{sys.executable} -m snakemake --executor local"


def commands_of(command: str, job: object, segment: Segment) -> tuple[str, tuple[str, ...]]:
    """The commands of an executor whose jobs Snakemake starts by this command."""
    executor = SimpleNamespace(format_job_exec=lambda job: command)
    return commands(executor, job, segment)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["snakemake --executor local", "python -m snakemakes"])
def test_a_command_without_a_snakemake_is_refused(command: str) -> None:
    with pytest.raises(WorkflowError, match=r"lacks .* another Snakemake than 9\.27"):
        commands_of(command, SimpleNamespace(), segment())


def test_a_job_of_a_chain_starts_unbroken_where_snakemake_stood_and_outlives_the_signal_to_its_shell() -> None:
    batch, command = commands_of(f"cd x && {OURS} --attempt 1", SimpleNamespace(), segment())

    assert batch == f"trap : TERM; cd x && {sys.executable} -m unbroken.job {path_of('demo')}"
    assert command == (*OURS.split(), "--attempt", "1", "--keep-incomplete")


@pytest.mark.process
def test_a_job_of_a_users_rule_waits_for_its_inputs_and_finds_this_unbroken() -> None:
    job = SimpleNamespace(get_wait_for_files=lambda: ["a b", "c"])
    batch, command = commands_of(OURS, job, work())

    path = subprocess.run(
        ["sh", "-c", batch.replace(f"{sys.executable} -m unbroken.job {path_of(work().key)}", 'printf "%s" "$PATH"')],
        env={"PATH": "/a b:/bin"},
        capture_output=True,
        text=True,
    ).stdout
    assert command == (*OURS.split(), "--wait-for-files", "a b", "c")  # its outputs are removed when it fails
    assert path == f"{Path(sys.executable).parent}:/a b:/bin"


def test_a_job_of_a_users_rule_with_very_many_inputs_waits_for_none() -> None:
    job = SimpleNamespace(get_wait_for_files=lambda: [str(number) for number in range(MOST_INPUTS + 1)])

    assert commands_of(OURS, job, work())[1] == tuple(OURS.split())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, ""),
        ("system_tmpdir", ""),
        ("'/scratch'", "/scratch"),
        ("lambda wildcards: '/scratch'", None),
        ("17", None),
        ("/scratch", "/scratch"),
        ("'$SCRATCH/x'", None),
        ("'~/x'", None),
    ],
)
def test_a_tmpdir_that_only_snakemake_can_work_out_is_left_to_it(raw: str | None, expected: str | None) -> None:
    resources = {} if raw is None else {"tmpdir": SimpleNamespace(raw=raw)}

    assert plain_tmpdir(SimpleNamespace(rule=SimpleNamespace(resources=resources))) == expected


def test_a_job_without_a_script_of_its_own_keeps_its_snakemake(tmp_path: Path) -> None:
    (tmp_path / "toy.py").touch()
    place = SimpleNamespace(join=lambda name: SimpleNamespace(get_path_or_uri=lambda secret_free: tmp_path / name))

    def found(script: object) -> Path | None:
        return local_script(SimpleNamespace(rule=SimpleNamespace(script=script, basedir=place)))

    assert found("toy.py") == tmp_path / "toy.py"
    assert [found("gone.py"), found(None)] == [None] * 2


@pytest.mark.process
def test_an_error_in_a_thread_that_submits_ends_the_driver(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for that job for ever."""
    driver, errors = Driver(monkeypatch, slurm), list[BaseException]()
    driver.executor.workflow.scheduler.executor_error_callback = errors.append
    job = driver.job(segment(), is_group=lambda: 1 / 0)

    Executor.in_thread(driver.executor, driver.executor.run_job, job)
    driver.executor.shutdown()

    assert [type(error) for error in errors] == [ZeroDivisionError]
