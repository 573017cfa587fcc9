"""`spec.json`: read as it was written, one line where it cannot be used, and what it says of the segments to do."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.newer import newer_record
from support.toy_spec import segment_command, toy_spec
from support.toyrun import PYTHONPATH, toy, toy_run

from unbroken.errors import ConfigError, FormatError
from unbroken.job import rule_state, spec
from unbroken.job.rule_state import RuleState
from unbroken.job.spec import ChainJob, JobSpec, path_of, read
from unbroken.store.exec_note import ExecNote
from unbroken.store.history import EndKind
from unbroken.store.layout import RunFolder
from unbroken.store.run import CopySettings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_a_rule(**changes: object) -> JobSpec:
    """The spec of a user's own rule, which has no run of its own."""
    return toy_spec(**{"keys": None, "key": ".rules/1a2b", "last_segment": 3, "command": ("false",), **changes})


FULL = {
    "words": ("-p", "short", "--mem=100"),
    "batch": "python -m unbroken.job x",
    "logs": "logs/demo",
    "most_tasks": 100,
    "refills": False,
    "command": ("snakemake", "--attempt", "1"),
    "resources": {"runtime": 1, "disk": "1G", "share": 0.5},
    "latency_seconds": 5.0,
    "start": "20260101T000000Z-1",
}


def test_a_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = replace(
        toy_run(slurm_extra=("--exclusive",), modules=("gcc/12",), enter=("env", "A=1")),
        copies=CopySettings("/elsewhere", 3, 10.0),
        metric_goals={"time_ps": 100.0},
    )
    for written in (toy_spec(run, **FULL), toy_spec(), of_a_rule()):
        assert read(tmp_path / written.write(tmp_path)) == written


def test_it_lies_in_the_folder_of_the_chain(here: Path) -> None:
    assert toy_spec().write() == Path(".snakemake/unbroken/chains/demo/spec.json")


UNUSABLE = {
    "missing": (None, ": missing; start snakemake again"),
    "a folder": ("", ": Is a directory; when it can be read, start snakemake again"),
    "of a newer unbroken": ('{"version": 99}', ": found format 99, unbroken "),
    "of another version": ('{"version": 0}', ": found format 0, unbroken "),
    "without a version": ("{}", ": corrupt (KeyError('version')); start snakemake again"),
    "torn": ('{"version": 1, "run": {', ": corrupt ("),
    "with less in it": ('{"version": 1, "key": "demo", "run": {}, "keys": {}}', ": corrupt ("),
    "a list": ("[]", ": corrupt ("),
}


@pytest.mark.process
def test_a_spec_that_is_written_again_just_now_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / path_of("demo")
    words = [sys.executable, "-m", "unbroken.job", str(path_of("demo"))]
    environment = {"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as job:
        time.sleep(3.0)  # it looks once a second
        path.parent.mkdir(parents=True)
        path.write_text('{"version": 0}')
        said = job.communicate()[1]

    assert ": found format 0, unbroken " in said


@pytest.mark.process
@pytest.mark.parametrize(("text", "said"), UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.parametrize("is_job", [True, False], ids=["job", "segment"])
def test_a_spec_that_cannot_be_used_is_one_line(tmp_path: Path, is_job: bool, text: str | None, said: str) -> None:
    path = tmp_path / path_of("demo")
    path.parent.mkdir(parents=True)
    if text:
        path.write_text(text)
    elif text is not None:
        path.mkdir()
    with pytest.raises((ConfigError, FormatError)) as raised:
        read(path)
    assert said in str(raised.value)

    job = [sys.executable, "-m", "unbroken.job", str(path_of("demo"))]
    found = subprocess.run(
        job if is_job else segment_command(1),
        cwd=tmp_path,
        env={"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )

    assert found.returncode == (78 if is_job else 1)
    assert found.stderr.count("\n") == 1 and f"Error: {path_of('demo')}{said}" in found.stderr


def test_one_of_a_newer_unbroken_is_not_written_over_and_a_corrupt_one_is(here: Path) -> None:
    path = toy_spec().write()
    path.write_text(json.dumps({"version": spec.FORMAT.newest + 1}))
    with pytest.raises(FormatError):
        toy_spec().write()
    assert json.loads(path.read_text()) == {"version": spec.FORMAT.newest + 1}

    path.write_text("{")
    toy_spec().write()

    assert read(path) == toy_spec()


def test_a_job_works_by_what_the_newest_start_wants(here: Path) -> None:
    told = toy_spec(segments=3, start="first")
    told.write()
    toy_spec(segments=9, start="second").write()

    assert ChainJob(told, "17").now() == toy_spec(segments=9, start="second")


@pytest.mark.parametrize("text", ["{", None], ids=["corrupt", "missing"])
def test_where_the_newest_spec_cannot_be_read_a_job_does_what_it_was_told(here: Path, text: str | None) -> None:
    told = toy_spec()
    path = told.write()
    path.unlink() if text is None else path.write_text(text)

    assert ChainJob(told, "17").now() == told


# --- which segments are to be done -----------------------------------------------------------------------------------


@pytest.mark.process
def test_the_first_segment_without_a_record_is_next(here: Path) -> None:
    assert toy_spec().next_segment() == 1
    toy(here, 1, goal=10**6, segment_minutes=0.01)
    toy(here, 2, goal=10**6, segment_minutes=0.01)
    assert (toy_spec(goal=10**6).next_segment(), toy_spec(goal=10**6).remaining_segments()) == (3, 3)

    RunFolder("demo").record(1).unlink()

    assert list(toy_spec().missing_segments()) == [1, 3, 4, 5]
    assert toy_spec(last_segment=0).next_segment() is None


@pytest.mark.process
def test_a_run_is_over_at_its_goal_or_with_its_last_segment(here: Path) -> None:
    assert not toy_spec(goal=10**6).is_over()
    toy(here, 1, goal=10**6, segment_minutes=0.01)
    ends = toy_spec(goal=10**6, last_segment=3), toy_spec(goal=10**6, last_segment=1)
    assert [each.is_over() for each in ends] == [False, True]

    toy(here, 2, goal=1)

    assert toy_spec(goal=1, last_segment=3).is_over()
    assert toy_spec(goal=1, last_segment=3).remaining_segments() == 0


@pytest.mark.process
def test_a_run_whose_goal_was_raised_is_not_over(here: Path) -> None:
    toy(here, 1, goal=5)
    assert toy_spec(goal=5).is_over()

    assert not toy_spec(goal=50).is_over()
    assert (toy_spec(goal=50).next_segment(), toy_spec(goal=50).remaining_segments()) == (2, 4)


@pytest.mark.process
def test_a_run_that_a_newer_unbroken_carries_on_is_not_taken_for_over(here: Path) -> None:
    toy(here, 1, goal=5)
    newer_record(RunFolder("demo"))

    with pytest.raises(FormatError):
        toy_spec(goal=5).is_over()


def test_a_rule_s_chain_counts_the_pauses_of_its_jobs(here: Path) -> None:
    told = of_a_rule()
    assert told.is_rule and not toy_spec().is_rule
    assert (told.next_segment(), told.remaining_segments(), told.is_over()) == (1, 3, False)

    RuleState(ExecNote("train", "ckpt", EndKind.PAUSED, 2), pauses=2).write(told.key)
    assert (told.next_segment(), told.remaining_segments()) == (3, 1)
    assert told.folder.root == RunFolder("train", Path(), Path("ckpt")).root

    rule_state.note_done(told.key)
    assert (told.next_segment(), told.remaining_segments(), told.is_over()) == (None, 0, True)


def test_a_rule_s_chain_has_one_segment_more_as_long_as_its_job_has_not_ended_well(here: Path) -> None:
    told = of_a_rule(last_segment=2)
    RuleState(pauses=7).write(told.key)

    assert told.remaining_segments() == 1
