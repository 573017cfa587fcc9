"""A run of 100,000 attempts: `status` reads the end of its history, and no question costs more than in proportion."""

import cProfile
import json
import pstats
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.histories import MONDAY, PLAIN, chain

from unbroken.errors import FormatError
from unbroken.report.account import account_of
from unbroken.slurm.queue import Queue
from unbroken.store.history import EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.times import Times
from unbroken.system.clock import unix_seconds, utc_text

LINES = 100_000
STATUS_MEGABYTES, REPORT_MEGABYTES = 120.0, 450.0


def written(base: Path, lines: int) -> Path:
    """A history of so many segments of a minute as Slurm jobs, each tenth of them killed."""
    history = History(RunFolder("demo", base).history)
    RunFolder("demo", base).lease.mkdir(parents=True)
    history.append(replace(PLAIN, token=7_000_001, segment=7_000_001, slurm_job="17", times=Times(submitted=MONDAY)))
    pattern = history.path.read_text()
    with history.path.open("w") as file:
        for number in range(1, lines + 1):
            at = MONDAY + 60.0 * number
            moments = {"submitted": at, "job_started": at + 1, "first_step": at + 2, "saved": at + 50, "ended": at + 55}
            line = pattern.replace("7000001", str(number))
            line = line.replace(f'{{"submitted": {MONDAY}}}', json.dumps(moments))
            line = line.replace(PLAIN.started_utc, utc_text(at)).replace(PLAIN.ended_utc, utc_text(at + 55))
            file.write(line.replace('"paused"', '"died"') if number % 10 == 9 else line)
    return history.path


# Its own memory: what `wait4` tells holds that of the process from which it was forked.
_MEASURED = """
import atexit, re, runpy, sys
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr))
runpy.run_module("unbroken", run_name="__main__", alter_sys=True)
"""


def printed_by(base: Path, *words: str) -> tuple[float, str]:
    """Megabytes of a command, and what it printed."""
    line = [sys.executable, "-c", _MEASURED, *words]
    done = subprocess.run(line, cwd=base, text=True, capture_output=True, check=True)
    return int(done.stderr.split()[-1]) / 1024, done.stdout


def calls_of_the_account(base: Path) -> int:
    profile = cProfile.Profile()
    profile.runcall(account_of, "demo", base, Queue(is_known=False))
    return pstats.Stats(profile).total_calls


@pytest.mark.process
def test_status_of_a_hundred_thousand_attempts_holds_the_newest_alone(tmp_path: Path) -> None:
    written(tmp_path, LINES)

    megabytes, text = printed_by(tmp_path, "status", "demo")

    assert f"{LINES}/?" in text
    assert f"the newest 100; all: {RunFolder('demo').history}" in text
    assert text.count("\nsegment ") == 100
    assert megabytes < STATUS_MEGABYTES


@pytest.mark.slow
def test_the_page_of_a_hundred_thousand_attempts_is_written_and_counts_all_of_them(tmp_path: Path) -> None:
    written(tmp_path, LINES)

    megabytes, _ = printed_by(tmp_path, "report")

    assert f'"attempts_made":{LINES}' in (tmp_path / "results/report.html").read_text()
    assert megabytes < REPORT_MEGABYTES


@pytest.mark.process
def test_the_account_of_many_attempts_costs_in_proportion(tmp_path: Path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    written(few, 500)
    written(many, 5_000)

    assert calls_of_the_account(many) < 11 * calls_of_the_account(few)


@pytest.mark.parametrize("count", [1, 3, 9, 50])
def test_the_newest_attempts_are_the_last_of_all(tmp_path: Path, count: int) -> None:
    history = History(tmp_path / "history.jsonl")
    for attempt in chain(*range(1, 10)):
        history.append(attempt)

    assert history.attempts(count) == history.attempts()[-count:]
    with history.path.open("a") as file:
        file.write('{"token": 99, "seg')
    assert history.attempts(count + 1) == history.attempts()[-count:]


def test_a_line_of_a_newer_unbroken_at_the_end_is_refused_there_too(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.append(PLAIN)
    history.path.write_text(history.path.read_text() + '{"format": 99}\n')

    with pytest.raises(FormatError, match="found format 99"):
        history.attempts(1)


def test_a_run_without_a_history_has_no_newest_attempts(tmp_path: Path) -> None:
    assert History(tmp_path / "none").attempts(5) == []


@pytest.mark.parametrize("text", ["2026-01-05", "2026-01-05T09:00:00+01:00", "2026-01-05T09:00:00", "x" * 20, ""])
def test_a_moment_in_another_form_is_refused_and_not_read_as_local_time(text: str) -> None:
    assert unix_seconds("2026-01-05T09:00:00Z") == MONDAY
    with pytest.raises(ValueError):
        unix_seconds(text)


def test_an_attempt_that_was_killed_reads_back_as_it_was_written(tmp_path: Path) -> None:
    history, killed = History(tmp_path / "history.jsonl"), replace(PLAIN, kind=EndKind.DIED, slurm_job="17")
    history.append(killed)

    assert history.attempts() == history.attempts(1) == [killed]
