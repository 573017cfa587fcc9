"""`notify:` tells each event once, whoever looks at the same time, is killed, or has a command that fails."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from support.making import ATTEMPT
from support.workdir import until

from unbroken.config.load import read_runs
from unbroken.config.notify import NotifySettings, read_notify
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError
from unbroken.report.events import Event, Look, events_of
from unbroken.report.forecast import Forecast
from unbroken.report.notifications import tell_once
from unbroken.report.status import RunState, RunStatus
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import NOTES, RunFolder
from unbroken.store.progress import Progress

ALL = ("finished", "stopped", "stalled", "storm", "late")
SCHEMAS = known_schemas()
RACE = """
import sys
from pathlib import Path
from unbroken.config.notify import NotifySettings
from unbroken.report.events import Event
from unbroken.report.notifications import tell_once
settings = NotifySettings(sys.argv[1], ("finished",), None, float(sys.argv[2]), 60.0)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    tell_once(Event("finished", "demo", f"finished-{number}", "done"), Path(), settings)
"""


def settings(command: str = "cat >> told.txt", limit_seconds: float = 60.0, by: date | None = None) -> NotifySettings:
    return NotifySettings(command, ALL, by, limit_seconds, 60.0)


def teller(folder: Path, command: str, count: int = 1) -> subprocess.Popen[str]:
    """A process that tells so many events when it is given a line."""
    words = [sys.executable, "-c", RACE, command, "60", str(count)]
    return subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE, text=True)


def told(folder: Path) -> list[str]:
    """What the command was given, by its ids."""
    path = folder / "told.txt"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def look(
    folder: Path, attempts: list[Attempt], state: RunState, made: Forecast | None = None, by: date | None = None
) -> list[Event]:
    """The events of a run with this history, seen by a driver that has just ended."""
    places = RunFolder("demo", folder)
    places.history.unlink(missing_ok=True)
    for attempt in attempts:
        History(places.history).append(attempt)
    row = RunStatus("demo", state, Progress(10, 100, "steps"), 1, 9, None, None, None, "type: snakemake", made)
    return list(events_of(row, places, Look([row], is_driver_over=True), settings(by=by)))


def attempt(token: int, outcome: EndKind, minutes_ago: float, has_advanced: bool = True) -> Attempt:
    began, ended = (datetime.now(UTC) - timedelta(minutes=minutes_ago + more) for more in (1, 0))
    begin, end = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (began, ended))
    to = ATTEMPT.to_checkpoint if has_advanced else None
    return replace(ATTEMPT, token=token, kind=outcome, started_utc=begin, ended_utc=end, to_checkpoint=to)


@pytest.mark.process
def test_of_four_processes_that_look_at_once_one_tells_each_event(tmp_path: Path) -> None:
    count = 60
    tellers = [teller(tmp_path, "cat >> told.txt", count) for _ in range(4)]
    for each in tellers:
        assert each.stdin is not None
        each.stdin.close()  # the start: none of them waits for another to be made
    assert [each.wait() for each in tellers] == [0] * 4
    # One that finds another at work leaves the event to it.
    assert sorted(told(tmp_path)) == sorted(f"demo/finished-{number}" for number in range(count))


@pytest.mark.process
def test_what_a_killed_process_had_claimed_the_next_one_tells(tmp_path: Path) -> None:
    command = "if test -e go; then cat >> told.txt; else echo $$ > pid.new; mv pid.new pid; exec sleep 3000; fi"
    killed = teller(tmp_path, command)
    assert killed.stdin is not None
    killed.stdin.close()
    until((tmp_path / "pid").exists)
    event = Event("finished", "demo", "finished-0", "done")
    (tmp_path / "go").touch()
    assert tell_once(event, tmp_path, settings(command)) == ""  # it lives, so it is left to it
    killed.kill()
    killed.wait()
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert tell_once(event, tmp_path, settings(command)) == ""  # on another machine it could live
    (try_of_killed,) = (tmp_path / NOTES / "notify" / "demo").glob("*.try1")
    os.utime(try_of_killed, (time.time() - 181,) * 2)
    assert tell_once(event, tmp_path, settings(command)).startswith("notify: finished: told")
    assert tell_once(event, tmp_path, settings(command)) == ""
    assert told(tmp_path) == ["demo/finished-0"]


@pytest.mark.process
def test_what_could_not_be_told_is_told_by_the_next_look(tmp_path: Path) -> None:
    event = Event("stopped", "demo", "stopped-1", "why")
    for command, why in {
        "no-such-command-here": "exit code 127",
        "echo no route; exit 3": "exit code 3; the next look tries again",
    }.items():
        assert why in tell_once(event, tmp_path, settings(command))
    assert tell_once(event, tmp_path, settings()).startswith("notify: stopped: told")
    assert tell_once(event, tmp_path, settings()) == ""
    assert told(tmp_path) == ["demo/stopped-1"]


@pytest.mark.process
@pytest.mark.parametrize(
    "command",
    [
        "echo to https://example.org/hooks/T0KEN-of-mine; exit 3",
        "TOKEN=T0KEN-of-mine no-such-command-here",
        "echo $TOKEN; TOKEN=T0KEN-of-mine; echo $TOKEN; exit 4",
        "sleep 60; echo T0KEN-of-mine",
    ],
)
def test_no_word_of_a_command_that_fails_is_printed(tmp_path: Path, command: str) -> None:
    event = Event("stopped", "demo", "stopped-1", "why")
    said = tell_once(event, tmp_path, settings(command, limit_seconds=0.5 if "sleep" in command else 60.0))
    notes = [path.read_text() for path in (tmp_path / NOTES).rglob("*") if path.is_file()]

    assert said.startswith("notify: stopped: not told: notify.command: ")
    assert "T0KEN" not in said + "".join(notes)


def test_a_look_by_a_machine_whose_clock_is_behind_makes_no_run_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [attempt(1, EndKind.PAUSED, 90)]
    here = time.time
    with monkeypatch.context() as behind:
        behind.setattr(time, "time", lambda: here() - 86400)
        assert look(tmp_path, lines, RunState.WORKING) == []
    assert look(tmp_path, lines, RunState.WORKING) == []


def test_a_run_that_ended_on_a_node_whose_clock_is_ahead_is_told_when_it_was_left(tmp_path: Path) -> None:
    row = RunStatus("demo", RunState.STOPPED, None, 1, 9, None, None, None, "")
    places = RunFolder("demo", tmp_path)
    History(places.history).append(attempt(1, EndKind.FAILED, -1440))
    assert list(events_of(row, places, Look([row]), settings())) == []
    os.utime(places.history, (time.time() - 3600,) * 2)
    assert [event.event for event in events_of(row, places, Look([row]), settings())] == ["stopped"]


@pytest.mark.process
def test_a_command_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    command = "sleep 3000 & echo $! > pid; wait"
    said = tell_once(Event("storm", "demo", "storm-1", "why"), tmp_path, settings(command, limit_seconds=1.0))
    assert "still running after 1 s, so it was ended" in said
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_run_that_goes_on_and_stops_again_is_a_new_event(tmp_path: Path) -> None:
    first = [attempt(1, EndKind.FAILED, 20)]
    once = look(tmp_path, first, RunState.STOPPED)
    again = look(tmp_path, [*first, attempt(2, EndKind.FAILED, 1)], RunState.STOPPED)
    assert [event.event for event in (*once, *again)] == ["stopped", "stopped"]
    assert once[0].key != again[0].key
    assert once == look(tmp_path, first, RunState.STOPPED)
    assert look(tmp_path, first, RunState.FINISHED)[0].event == "finished"


def test_what_a_driver_may_yet_try_again_is_no_stop(tmp_path: Path) -> None:
    row = RunStatus("demo", RunState.STOPPED, None, 1, 9, None, None, None, "")
    places = RunFolder("demo", tmp_path)
    History(places.history).append(attempt(1, EndKind.FAILED, 1))
    assert list(events_of(row, places, Look([row]), settings())) == []
    assert [event.event for event in events_of(row, places, Look([row], True), settings())] == ["stopped"]


def test_a_job_of_which_slurm_says_nothing_is_no_stop(tmp_path: Path) -> None:
    """Slurm may be installed where the runs do without it: then its silence says nothing."""
    row = RunStatus("demo", RunState.STOPPED, None, 1, 9, None, None, None, "")
    places, silent = RunFolder("demo", tmp_path), Look([row], True, is_slurm_silent=True)
    History(places.history).append(attempt(1, EndKind.FAILED, 1))
    assert [event.event for event in events_of(row, places, silent, settings())] == ["stopped"]
    History(places.history).append(replace(attempt(2, EndKind.FAILED, 0), slurm_job="7"))
    assert list(events_of(row, places, silent, settings())) == []


def test_many_attempts_without_progress_in_a_short_time_are_a_storm(tmp_path: Path) -> None:
    idle = [attempt(token, EndKind.FAILED, 30 - token, has_advanced=False) for token in range(1, 7)]
    assert not [event for event in look(tmp_path, idle[:4], RunState.WORKING) if event.event == "storm"]
    five, six = (look(tmp_path, idle[:count], RunState.QUEUED) for count in (5, 6))
    assert [event.event for event in (*five, *six)] == ["storm", "storm"]
    assert five[0].key == six[0].key
    slow = [attempt(token, EndKind.FAILED, 600 - 60 * token, has_advanced=False) for token in range(1, 7)]
    assert look(tmp_path, slow, RunState.QUEUED) == []


def test_a_run_without_progress_is_stalled(tmp_path: Path) -> None:
    lines = [attempt(1, EndKind.PAUSED, 90)]
    assert look(tmp_path, lines, RunState.WORKING) == []
    note = tmp_path / NOTES / "notify" / "demo" / "progress.json"
    seen = json.loads(note.read_text())
    note.write_text(json.dumps({**seen, "since": seen["since"] - 4000}))
    assert [event.event for event in look(tmp_path, lines, RunState.WORKING)] == ["stalled"]
    note.write_text(json.dumps({**seen, "done": 9, "since": seen["since"] - 4000}))
    assert look(tmp_path, lines, RunState.WORKING) == []


def test_a_forecast_beyond_the_date_is_told(tmp_path: Path) -> None:
    day = 86400.0
    made = Forecast(8 * day, 10 * day, 14 * day, 15 * day, 3, 4, 9)
    today = datetime.now(UTC).date()
    lines = [attempt(1, EndKind.PAUSED, 90)]
    assert look(tmp_path, lines, RunState.QUEUED, made, today + timedelta(days=11)) == []
    found = look(tmp_path, lines, RunState.QUEUED, made, today + timedelta(days=8))
    assert [event.event for event in found] == ["late"]
    assert f"rather than by {today + timedelta(days=8)}" in found[0].message


WHAT = "a mapping such as {command: ./tell.sh, events: [finished, stopped]}, or null"
MISTAKES = {
    "./tell.sh SECRET": [f"notify: found text, allowed: {WHAT}"],
    "{}": ["notify: `command` is missing; type for example `command: ./tell.sh`"],
    "{command: 7}": [
        'notify.command: found 7, allowed: a shell command, as typed in a terminal; type "7", with the quotes'
    ],
    '{command: "SECRET \'b"}': [
        "notify.command: no closing quotation, allowed: a shell command, as typed in a terminal"
    ],
    "{command: [a, SECRET]}": ["notify.command: found a list, allowed: a shell command, as typed in a terminal"],
    "{command: ' '}": ["notify.command: found no word, allowed: a shell command, as typed in a terminal"],
    "{command: a, evnts: []}": ["notify.evnts: unknown key; did you mean `events`?"],
    "{command: a, by: soon}": ["notify.by: found 'soon', allowed: a date such as 2026-12-24, or null"],
    "{command: a, limit_seconds: 0}": ["notify.limit_seconds: found 0, allowed: a number above 0"],
    "{command: a, events: [finshed]}": [
        "notify.events item 1: found 'finshed', allowed: finished, stopped, stalled, storm or late; did you mean "
        "`finished`?"
    ],
    "{command: a, events: [late]}": ["notify.events: `late` needs a date; type for example `by: 2026-12-24`"],
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, text: str) -> None:
    config = yaml.safe_load(
        f"notify: {text}\nruns: {{demo: {{engine: toy, segments: 1, segment_minutes: 2, settings: {{goal: 9}}}}}}"
    )
    with pytest.raises(ConfigError) as error:
        read_runs(config, SCHEMAS, tmp_path)
    assert error.value.mistakes == MISTAKES[text]


@pytest.mark.parametrize("written", ["2026-12-24", "'2026-12-24'"])
def test_a_date_may_have_quotation_marks(written: str) -> None:
    config = yaml.safe_load(f"notify: {{command: a, by: {written}}}")
    assert read_notify(config, SCHEMAS.config) == settings("a", by=date(2026, 12, 24))
