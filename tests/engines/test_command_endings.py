"""How a program under the command engine ends: by its own clock, a file, a signal, its exit codes, or not well."""

from types import SimpleNamespace

import pytest
from support.command_jobs import command_job, command_segment, task_at, walker_settings
from support.toyrun import history

from unbroken.engines.command import engine as engine_module
from unbroken.engines.command.engine import CommandEngine
from unbroken.errors import UnbrokenError
from unbroken.runs.outcome import Outcome


def test_a_program_that_is_given_its_seconds_leaves_before_it_is_told(tmp_path):
    settings = {**walker_settings(step_seconds=0.01), "goal": 100_000, "margin_seconds": 50}

    record = command_segment(tmp_path, settings, segment_minutes=1)

    job = command_job(tmp_path, settings)
    (attempt,) = history(job)
    assert (record.outcome, attempt.exit_code, attempt.stop_seconds) == (Outcome.PAUSED, 3, None)
    assert "stopping the program" not in job.log.read_text()


def test_a_look_at_the_folder_that_hangs_keeps_nobody_from_the_next_ones(tmp_path, monkeypatch):
    """A file server was silent for 150 s once, and the next look came 50 minutes later."""
    now, looks = [1000.0], []
    task = task_at(command_job(tmp_path, walker_settings()))
    engine = CommandEngine(tmp_path)
    engine.folder(task).mkdir()
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def look():
        looks.append(now[0])
        now[0] += 150 if len(looks) == 1 else 0.01
        return []

    monkeypatch.setattr(engine._keeper(task), "while_running", look)
    while now[0] < 1720:
        engine.states(task)
        now[0] += 0.1

    assert looks[0] == 1000 and looks[1] < 1185
    assert len(looks) > 700


def test_an_exit_code_that_may_mean_both_is_told_apart_by_the_goal(tmp_path):
    settings = walker_settings(step_seconds=0.01, always_zero=True, exit_paused=[0])

    records = [command_segment(tmp_path, settings, segment=each, segment_minutes=0.05) for each in range(1, 4)]

    assert [record.outcome for record in records[:2]] == [Outcome.PAUSED, Outcome.PAUSED]
    job = command_job(tmp_path, settings)
    assert [attempt.exit_code for attempt in history(job)] == [0] * len(history(job))


def test_a_crash_is_a_failure_and_keeps_what_was_complete_before(tmp_path):
    settings = walker_settings(step_seconds=0.005, crash_at=200)

    with pytest.raises(UnbrokenError, match=r"the program ended with exit code 1: .*; kept: \d+ of 200 steps"):
        command_segment(tmp_path, settings)

    (attempt,) = history(job := command_job(tmp_path, settings))
    assert 0 < attempt.progress_to < 200
    assert (job.places.root / "failed" / "trace.csv").is_file()


def test_the_folder_of_a_failed_attempt_is_kept_until_one_leaves_well(tmp_path):
    script = '[ -e "$1/mended" ] && echo 2 > state && exit 85; echo why > program.err; exit 4'
    settings = {"start": ["sh", "-c", script, "sh", "{base}"], "files": ["state"]}
    failed = command_job(tmp_path, settings).places.root / "failed"

    for _ in range(2):
        with pytest.raises(UnbrokenError, match="exit code 4"):
            command_segment(tmp_path, settings)

    assert (failed / "program.err").read_text() == "why\n"
    log = command_job(tmp_path, settings).log.read_text()
    assert f"the program's folder of the last attempt that failed is kept in {failed}" in log
    (tmp_path / "mended").touch()
    assert command_segment(tmp_path, settings).outcome is Outcome.PAUSED
    assert not failed.exists()


def test_an_unknown_exit_code_of_the_contract_is_no_pause(tmp_path):
    settings = {"start": ["sh", "-c", "exit 85"], "exit_paused": [3]}

    with pytest.raises(UnbrokenError, match="the program ended with exit code 85; nothing new was saved"):
        command_segment(tmp_path, settings)


@pytest.mark.parametrize("to", ["program", "group"])
def test_a_signal_stops_the_program(tmp_path, to):
    settings = {
        **walker_settings(step_seconds=0.01, limit=0),
        "goal": 100_000,
        "stop_signal": "USR1",
        "stop_signal_to": to,
    }

    record = command_segment(tmp_path, settings, segment_minutes=0.1)

    assert record.outcome is Outcome.PAUSED
    assert record.progress.done > 0


def test_a_stop_file_with_its_text_stops_the_program(tmp_path):
    loop = 'while [ ! -s "$1/EXIT" ]; do sleep 0.02; done; cat EXIT > state.txt; exit 85'
    settings = {
        "start": ["sh", "-c", loop, "sh", "."],
        "files": ["state.txt"],
        "stop_file": "EXIT",
        "stop_text": "leave {run} {{now}}",
        "exit_finished": [],
    }

    record = command_segment(tmp_path, settings, segment_minutes=0.02)

    job = command_job(tmp_path, settings)
    assert (record.outcome, record.progress.unit) == (Outcome.PAUSED, "checkpoints")
    newest = sorted(job.places.checkpoints.glob("[0-9]*"))[-1]
    assert (newest / "state.txt").read_text() == "leave demo {now}"


def test_a_finished_file_says_that_it_is_done_and_its_results_are_taken(tmp_path):
    script = """
        echo $(($(cat n 2>/dev/null || echo 0) + 1)) > n
        [ $(cat n) = 3 ] && touch all.done && cp n answer.txt; exit 0"""
    settings = {
        "start": ["sh", "-c", script],
        "files": ["n"],
        "finished_file": "*.done",
        "final_files": ["answer*"],
        "exit_paused": [0],
    }

    outcomes = [command_segment(tmp_path, settings, segment=each).outcome for each in (1, 2, 3)]

    assert outcomes == [Outcome.PAUSED, Outcome.PAUSED, Outcome.FINISHED]
    final = command_job(tmp_path, settings).places.final
    assert {path.name for path in final.iterdir()} == {"answer.txt", "summary.json"}
    assert (final / "answer.txt").read_text() == "3\n"


def test_a_program_that_removes_its_restart_files_when_it_is_done_is_believed(tmp_path):
    settings = {"start": ["sh", "-c", "echo 42 > answer.txt"], "files": ["state"], "final_files": ["answer.txt"]}

    record = command_segment(tmp_path, settings)

    assert record.outcome is Outcome.FINISHED
    assert (command_job(tmp_path, settings).places.final / "answer.txt").read_text() == "42\n"


def test_a_program_that_is_done_and_leaves_nothing_is_told_what_to_name(tmp_path):
    settings = {"start": ["true"], "files": ["state"]}

    with pytest.raises(UnbrokenError, match="left no file that matches `files` or `final_files`; name its results"):
        command_segment(tmp_path, settings)
