"""What `status` advises: what is wrong, and the whole command to type."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.histories import PLAIN

from unbroken.report.status import RunState, status_of
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import CHAINS, RunFolder

ON_SLURM = replace(PLAIN, slurm_job="17")
BEFORE_WORK = replace(
    PLAIN,
    token=2,
    kind=EndKind.REFUSED,
    message="no further attempt is made: it broke",
    todo="mend it",
)


def advice(base: Path, *attempts: Attempt) -> str:
    for attempt in attempts:
        History(RunFolder("demo", base).history).append(attempt)
    return status_of("demo", base, None).advice


def test_a_run_of_slurm_jobs_continues_as_slurm_jobs_whatever_ended_last(tmp_path: Path) -> None:
    said = advice(tmp_path, ON_SLURM, replace(PLAIN, token=2))

    assert said == "nothing works on it; to continue, type: snakemake --profile slurm"


def test_a_run_that_was_submitted_and_never_began_continues_as_slurm_jobs(tmp_path: Path) -> None:
    (tmp_path / CHAINS / "demo").mkdir(parents=True)
    (tmp_path / CHAINS / "demo" / "1.json").write_text('{"job": "17"}')

    assert advice(tmp_path) == "has not started; type: snakemake --profile slurm"


@pytest.mark.parametrize(("first", "command"), [(PLAIN, "snakemake"), (ON_SLURM, "snakemake --profile slurm")])
def test_what_to_do_ends_with_the_command_that_starts_again(tmp_path: Path, first: Attempt, command: str) -> None:
    said = advice(tmp_path, first, BEFORE_WORK)

    log = RunFolder("demo", tmp_path).log(1)
    assert said == f"no further attempt is made: it broke; read {log}; mend it, then type: {command}"


def test_a_run_that_failed_says_why_where_to_look_and_what_to_type(tmp_path: Path) -> None:
    failed = replace(PLAIN, kind=EndKind.FAILED, message="the program ended with exit code 7")
    History(RunFolder("demo", tmp_path).history).append(failed)

    row = status_of("demo", tmp_path, None)

    assert row.state is RunState.STOPPED
    log = RunFolder("demo", tmp_path).log(1)
    assert row.advice == f"the program ended with exit code 7; read {log}; fix the cause, then type: snakemake"
