"""How a program under the command engine ends: by its own clock, a file, a signal, its exit codes, or not well."""

import shutil
from types import SimpleNamespace

import pytest
from support.command_jobs import command_job, command_segment, task_at, walker_settings
from support.toyrun import history

from unbroken.engines.base import When
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.files import engine as engine_module
from unbroken.engines.files.outputs import read_list
from unbroken.errors import UnbrokenError
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process


def test_a_program_that_is_given_its_seconds_leaves_before_it_is_told(tmp_path):
    settings = {**walker_settings(step_seconds=0.01), "goal": 100_000, "margin_seconds": 50}

    record = command_segment(tmp_path, settings, segment_minutes=1)

    job = command_job(tmp_path, settings)
    (attempt,) = history(job)
    assert (record.kind, attempt.exit_code, attempt.stop_seconds) == (EndKind.PAUSED, 3, None)
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

    monkeypatch.setattr(engine.supervisor(task), "while_running", look)
    while now[0] < 1720:
        engine.states(task, When.WORKS)
        now[0] += 0.1

    assert looks[0] == 1000 and looks[1] < 1185
    assert len(looks) > 700


def test_the_last_state_of_a_program_that_left_well_counts_also_if_an_output_was_written_with_it(tmp_path, monkeypatch):
    task = task_at(command_job(tmp_path, {"start": ["true"]}))
    engine = CommandEngine(tmp_path)
    engine.command(task)
    monkeypatch.setattr(engine.supervisor(task).observed, "lengths_when", lambda _: (None, "log.txt"))
    for step in (1, 2):
        (task.attempt_folder.save / f"{step}.ready").mkdir()
        (task.attempt_folder.save / f"{step}.ready" / "progress.json").write_text(f'{{"done": {step}}}')

    found = engine.states(task, When.LEFT)

    assert [each.handover.progress.done for each in found] == [2]


def test_an_exit_code_that_may_mean_both_is_told_apart_by_the_goal(tmp_path):
    settings = walker_settings(step_seconds=0.01, always_zero=True, exit_paused=[0])

    records = [command_segment(tmp_path, settings, segment=each, segment_minutes=0.05) for each in range(1, 4)]

    assert [record.kind for record in records[:2]] == [EndKind.PAUSED, EndKind.PAUSED]
    job = command_job(tmp_path, settings)
    assert [attempt.exit_code for attempt in history(job)] == [0] * len(history(job))


def test_a_goal_lowered_to_what_is_done_ends_the_run_without_a_start_of_the_program(tmp_path):
    settings = {**walker_settings(step_seconds=0.01), "goal": 100_000}
    paused = command_segment(tmp_path, settings, segment_minutes=0.02)
    lowered = {**settings, "goal": max(1, int(paused.progress.done) - 3)}

    record = command_segment(tmp_path, lowered, segment=2, segment_minutes=0.02)

    job = command_job(tmp_path, lowered, segment=2)
    assert paused.kind is EndKind.PAUSED and paused.progress.done > 1
    assert (record.kind, record.progress.done) == (EndKind.FINISHED, paused.progress.done)
    assert "starting: " not in job.places.log(2).read_text()
    assert (job.places.final / "trace.csv").read_text().splitlines()[-1].startswith(f"{paused.progress.done:.0f},")


def test_a_crash_is_a_failure_and_keeps_what_was_complete_before(tmp_path):
    settings = walker_settings(step_seconds=0.005, crash_at=200)

    with pytest.raises(UnbrokenError, match=r"the program ended with exit code 1: .*; kept: \d+ of 200 steps"):
        command_segment(tmp_path, settings)

    (attempt,) = history(job := command_job(tmp_path, settings))
    assert 0 < attempt.progress_to < 200
    assert (job.places.output / "trace.csv").is_file()


def test_the_folder_of_a_failed_attempt_stays_until_the_next_one_and_its_files_are_moved_then(tmp_path):
    script = '[ -e "$1/mended" ] && echo 2 > state && exit 85; echo why > program.err; exit 4'
    settings = {"start": ["sh", "-c", script, "sh", "{base}"], "files": ["state"]}
    places = command_job(tmp_path, settings).places

    for _ in range(2):
        with pytest.raises(UnbrokenError, match="exit code 4"):
            command_segment(tmp_path, settings)

    assert (places.output / "program.err").read_text() == "why\n"
    (tmp_path / "mended").touch()
    assert command_segment(tmp_path, settings).kind is EndKind.PAUSED
    assert not (places.output / "program.err").exists()
    assert [path.read_text() for path in places.root.glob("replaced/*/program.err")] == ["why\n", "why\n"]


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

    assert record.kind is EndKind.PAUSED
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
    assert (record.kind, record.progress.unit) == (EndKind.PAUSED, "checkpoints")
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
        "exit_paused": [0],
    }

    outcomes = [command_segment(tmp_path, settings, segment=each).kind for each in (1, 2, 3)]

    assert outcomes == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    final = command_job(tmp_path, settings).places.final
    assert {path.name for path in final.iterdir()} == {"all.done", "answer.txt", "n", "summary.json"}
    assert (final / "answer.txt").read_text() == "3\n"


def test_a_program_that_removes_its_restart_files_when_it_is_done_is_believed(tmp_path):
    settings = {"start": ["sh", "-c", "echo 42 > answer.txt"], "files": ["state"]}

    record = command_segment(tmp_path, settings)

    assert record.kind is EndKind.FINISHED
    assert (command_job(tmp_path, settings).places.final / "answer.txt").read_text() == "42\n"


def test_a_program_that_is_done_and_leaves_nothing_has_failed(tmp_path):
    settings = {"start": ["true"], "files": ["state"]}

    with pytest.raises(UnbrokenError, match="the program is done, but left no file at all in its folder"):
        command_segment(tmp_path, settings)


# --- what it is given and put back ---


def test_a_program_that_counts_from_its_restart_is_told_what_remains(tmp_path):
    script = 'n=$(cat n 2>/dev/null || echo 0); echo "$1" >> told; echo $((n + ($1 > 3 ? 3 : $1))) > n; exit 0'
    settings = {
        "start": ["sh", "-c", script, "sh", "{remaining}"],
        "files": ["n"],
        "progress_file": "n",
        "progress_pattern": r"^(\d+)",
        "goal": 7,
        "exit_paused": [0],
    }

    outcomes = [command_segment(tmp_path, settings, segment=each).kind for each in (1, 2, 3)]

    assert outcomes == [EndKind.PAUSED, EndKind.PAUSED, EndKind.FINISHED]
    final = command_job(tmp_path, settings).places.final
    assert (final / "told").read_text() == "7\n4\n1\n"
    assert (final / "n").read_text() == "7\n"


def test_a_number_in_a_name_may_be_a_fraction_and_a_folder_may_be_an_input(tmp_path):
    """A solver that starts from its latest time folder, with its case in folders."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "step").write_text("0.05\n")
    script = """
        t=$(ls -d [0-9]*.[0-9]* 2>/dev/null | sort -n | tail -n1); [ -n "$t" ] || t=0.00
        for i in 1 2; do t=$(awk "BEGIN {{print $t + $(cat system/step)}}"); mkdir -p $t; echo "$t" > $t/U; done
        echo "$t" >> system/solver.log; exit 0"""
    settings = {
        "start": ["sh", "-c", script],
        "inputs": ["system"],
        "files": ["{progress}/U"],
        "goal": 0.3,
        "exit_paused": [0],
    }

    records = [command_segment(tmp_path, settings, segment=each) for each in (1, 2, 3)]

    assert [record.progress.done for record in records] == [0.1, 0.2, 0.3]
    assert records[-1].kind is EndKind.FINISHED
    assert (command_job(tmp_path, settings).places.final / "system" / "solver.log").read_text() == "0.1\n0.2\n0.3\n"
    assert [path.name for path in (tmp_path / "system").iterdir()] == ["step"]


# It resumes from its latest time, and writes two more.
SOLVER = """
    t=$(ls -d [0-9]*.[0-9]* 2>/dev/null | sort -n | tail -n1); [ -n "$t" ] || t=0.00
    for i in 1 2; do t=$(awk "BEGIN {{print $t + 0.05}}"); mkdir -p $t/sub; echo "$t" > $t/U; echo "$t" > $t/sub/p; done
    exit 0"""
SERIES = {"files": ["{progress}/**"], "saved_by": "next", "keep_older": True, "goal": 0.3, "exit_paused": [0]}


def test_restart_files_under_lower_numbers_are_results_where_it_is_said_so(tmp_path):
    settings = {"start": ["sh", "-c", SOLVER], **SERIES}

    records = [command_segment(tmp_path, settings, segment=each) for each in (1, 2, 3)]

    places = command_job(tmp_path, settings).places
    assert (records[-1].kind, records[-1].progress.done) == (EndKind.FINISHED, 0.3)
    for time in ("0.05", "0.1", "0.15", "0.2", "0.25", "0.3"):
        assert (places.final / time / "U").read_text() == (places.final / time / "sub/p").read_text() == f"{time}\n"
    newest = sorted(places.checkpoints.glob("[0-9]*"))[-1]
    assert (newest / "0.3/U").exists() and not (newest / "0.25").exists()


def test_a_result_under_a_lower_number_that_was_damaged_is_noticed(tmp_path):
    settings = {"start": ["sh", "-c", SOLVER], **SERIES}
    command_segment(tmp_path, settings, segment=1)
    (command_job(tmp_path, settings).places.output / "0.05/U").write_text("0.0\n")

    with pytest.raises(UnbrokenError, match=r"0\.05/U: 4 bytes that are not those of the checkpoint, which has 5"):
        command_segment(tmp_path, settings, segment=2)


def test_a_result_under_a_lower_number_that_the_program_has_removed_is_not_missed(tmp_path):
    settings = {"start": ["sh", "-c", SOLVER], **SERIES}
    command_segment(tmp_path, settings, segment=1)
    places = command_job(tmp_path, settings).places
    shutil.rmtree(places.output / "0.05")  # as a solver does that was killed right after

    records = [command_segment(tmp_path, settings, segment=each) for each in (2, 3)]

    assert records[-1].kind is EndKind.FINISHED
    assert read_list(sorted(places.checkpoints.glob("[0-9]*"))[-1]).doubts == ()
    assert sorted(path.name for path in places.final.glob("0.*")) == ["0.1", "0.15", "0.2", "0.25", "0.3"]


def test_a_program_that_says_that_it_is_done_is_done_before_its_goal(tmp_path):
    script = "echo $(($(cat n 2>/dev/null || echo 0) + 1)) > n; [ $(cat n) = 2 ] && echo converged; exit 0"
    settings = {"start": ["sh", "-c", script], **COUNTS, "finished_pattern": "^converged"}

    outcomes = [command_segment(tmp_path, settings, segment=each).kind for each in (1, 2)]

    assert outcomes == [EndKind.PAUSED, EndKind.FINISHED]


def test_a_restart_file_is_put_back_under_the_name_that_the_program_reads(tmp_path):
    (tmp_path / "POSCAR").write_text("0\n")
    settings = {
        "start": ["sh", "-c", "echo $(($(cat POSCAR) + 1)) > CONTCAR; cat POSCAR >> OUTCAR; exit 0"],
        "inputs": ["POSCAR"],
        "files": ["CONTCAR"],
        "put_back_as": {"CONTCAR": "POSCAR"},
        "progress_file": "CONTCAR",
        "progress_pattern": r"^(\d+)",
        "goal": 3,
        "exit_paused": [0],
    }

    outcomes = [command_segment(tmp_path, settings, segment=each).kind for each in (1, 2, 3)]

    assert outcomes[-1] is EndKind.FINISHED
    assert (command_job(tmp_path, settings).places.final / "OUTCAR").read_text() == "0\n1\n2\n"
    assert (tmp_path / "POSCAR").read_text() == "0\n"


# --- what it has written is never lost ---


APPENDING = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >> log; echo $((n + 1)) > n; exit 0"
COUNTS = {"files": ["n"], "progress_file": "n", "progress_pattern": r"^(\d+)", "goal": 4, "exit_paused": [0]}


def test_an_output_that_was_altered_by_hand_is_refused_by_name_and_nothing_is_lost(tmp_path):
    settings = {"start": ["sh", "-c", APPENDING], **COUNTS}
    places = command_job(tmp_path, settings).places
    for segment in (1, 2):
        command_segment(tmp_path, settings, segment=segment)
    right = (places.output / "log").read_bytes()
    (places.output / "log").write_bytes(b"9\n9\n")

    with pytest.raises(UnbrokenError, match=r"/log: 4 bytes that are not those of the checkpoint"):
        command_segment(tmp_path, settings, segment=3)

    assert (places.output / "log").read_bytes() == b"9\n9\n"
    (places.output / "log").write_bytes(right)
    assert [command_segment(tmp_path, settings, segment=each).kind for each in (3, 4)][-1] is EndKind.FINISHED
    assert (places.final / "log").read_text() == "1\n2\n3\n4\n"


def test_a_program_that_cannot_be_started_takes_nothing_with_it(tmp_path):
    (tmp_path / "work.sh").write_text(APPENDING)
    settings = {"start": ["sh", "{base}/work.sh"], "resume": ["{base}/work", "now"], **COUNTS}
    places = command_job(tmp_path, settings).places
    command_segment(tmp_path, settings)

    with pytest.raises(UnbrokenError):
        command_segment(tmp_path, settings, segment=2)

    assert (places.output / "log").read_text() == "1\n"
    (tmp_path / "work").write_text(f"#!/bin/sh\n{APPENDING}\n")
    (tmp_path / "work").chmod(0o755)
    assert [command_segment(tmp_path, settings, segment=each).kind for each in (2, 3, 4)][-1] is EndKind.FINISHED
    assert (places.final / "log").read_text() == "1\n2\n3\n4\n"
