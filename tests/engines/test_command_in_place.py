"""The command engine and a program that writes its restart file in place: found out, or asked by check_command."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.command_jobs import command_job, command_run, command_segment, start_command_segment, task_at
from support.toyrun import until

from unbroken.engines.base import When
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.files import reading
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.reading import why_not_whole
from unbroken.engines.files.settings import program_of
from unbroken.engines.testing.kills import programs_of
from unbroken.errors import ConfigError, UnbrokenError
from unbroken.store.history import EndKind
from unbroken.system import copying

COUNTER = Path(__file__).parents[1] / "support" / "counter.py"
SETTINGS = {
    "start": ["true"],
    "files": ["state.txt"],
    "saved_by": "rename",
    "progress_file": "state.txt",
    "progress_pattern": r"^step (\d+)$",
    "goal": 10**6,
}
TOLD = "saved_by: found 'rename', but the program writes state.txt in place; it is copied when it is closed"


def counter(*options):
    words = ["--goal", "{goal}", "--stop", "{stop}", "--steps", 10**6, "--every", 10**7, "--save-every", 1, *options]
    return {**SETTINGS, "start": [sys.executable, "-I", "-S", str(COUNTER), *map(str, words)]}


def checkpoints(base):
    return sorted(command_job(base, SETTINGS).places.checkpoints.glob("[0-9]*"))


@pytest.fixture
def engine_at(tmp_path):
    """Return an engine, its task, and the folder of a program that a test plays."""
    return an_engine_at(tmp_path, SETTINGS)


def an_engine_at(tmp_path, settings):
    task = task_at(command_job(tmp_path, settings, save_minutes=10**-9))
    engine = CommandEngine(tmp_path)
    engine.command(task)
    return engine, task, engine.folder(task)


def look(engine, task):
    engine._next_look = 0.0  # the next one is due
    return engine.states(task, When.WORKS)


def rename(folder, step):
    (folder / "state.tmp").write_text(f"step {step}\n")
    os.replace(folder / "state.tmp", folder / "state.txt")


# --- found out ---


@pytest.mark.process
def test_a_program_that_writes_in_place_is_saved_when_its_file_is_closed_and_it_is_told(tmp_path):
    process = start_command_segment(
        tmp_path, counter("--style", "in-place", "--rest-seconds", 0.05, "--step-seconds", 0.3), save_minutes=0.001
    )

    until(lambda: len(checkpoints(tmp_path)) >= 2)

    process.kill()
    process.end()
    for path in checkpoints(tmp_path):
        assert (path / "state.txt").read_text().count("\n") == 3
    assert command_job(tmp_path, SETTINGS).log.read_text().count(TOLD) == 1


def test_a_thousand_quick_saves_by_rename_are_never_taken_for_one_in_place(engine_at, caplog):
    """File systems use the number of an inode again at once, and their clocks go by ticks."""
    engine, task, folder = engine_at
    found = []
    for step in range(1, 1001):
        rename(folder, step)
        found += look(engine, task) if step % 50 == 0 else []

    found += engine.states(task, When.FAILED)

    assert found[-1].handover.progress.done == 1000
    assert "in place" not in caplog.text


@pytest.mark.process
def test_a_program_that_renames_faster_than_one_looks_is_saved_on_the_way(tmp_path):
    process = start_command_segment(tmp_path, counter("--rest-seconds", 0.01), save_minutes=0.001)

    until(lambda: len(checkpoints(tmp_path)) >= 2)

    process.kill()
    process.end()
    for path in checkpoints(tmp_path):
        assert (path / "state.txt").read_text().count("\n") == 3


@pytest.mark.parametrize("way", ["observed", "rename"])
def test_a_restart_file_that_is_replaced_whenever_it_is_copied_is_saved_as_it_was(way, tmp_path, monkeypatch):
    engine, task, folder = an_engine_at(tmp_path, {**SETTINGS, "saved_by": way})
    copy_range, steps = copying.copy_range, itertools.count(11)

    def copy_slowly(source, target, count):
        rename(folder, next(steps))
        return copy_range(source, target, count)

    monkeypatch.setattr(copying, "copy_range", copy_slowly)
    rename(folder, 10)

    (found,) = until(lambda: look(engine, task))

    assert (found.draft / "state.txt").read_text() == f"step {found.handover.progress.done:.0f}\n"
    engine.states(task, When.FAILED)


@pytest.mark.parametrize(("is_renamed", "steps"), [(True, [20]), (False, [])])
def test_what_a_killed_program_left_counts_unless_it_was_writing_in_place(engine_at, is_renamed, steps):
    engine, task, folder = engine_at
    rename(folder, 10)
    found = until(lambda: look(engine, task))
    assert [each.handover.progress.done for each in found] == [10]
    if is_renamed:
        rename(folder, 20)
        left = None
    else:
        left = (folder / "state.txt").open("w")
        left.write("step 200")
        left.flush()

    found = engine.states(task, When.FAILED)

    if left is not None:
        left.close()
    assert [each.handover.progress.done for each in found] == steps


@pytest.mark.process
@pytest.mark.parametrize(
    "before", ["exec 3> state.txt; printf 'step 10' >&3", "printf 'step 10' > state.txt; exec 3>> state.txt"]
)
def test_a_first_state_that_the_kill_of_all_has_torn_is_no_checkpoint_whatever_the_config_says(tmp_path, before):
    words = ["sh", "-c", f"{before}; printf '0' >&3; exec sleep 600"]
    process = start_command_segment(tmp_path, {**SETTINGS, "start": words}, save_minutes=99)
    until(lambda: list(tmp_path.glob("results/demo/work/*/program/state.txt")))
    until(lambda: len(next(tmp_path.glob("results/demo/work/*/program/state.txt")).read_text()) == 8)
    for pid in [*programs_of(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.end()

    with pytest.raises(UnbrokenError):
        command_segment(tmp_path, {**SETTINGS, "start": ["sh", "-c", "exit 3"]})

    assert checkpoints(tmp_path) == []


def test_a_save_that_has_just_begun_is_not_mixed_with_the_one_before(tmp_path, monkeypatch):
    """The rename of its first file shows in the folder before its event has been read."""
    engine, task, folder = an_engine_at(
        tmp_path, {**SETTINGS, "files": ["state.txt", "more.txt"], "saved_by": "observed"}
    )
    rename(folder, 1)
    (folder / "more.tmp").write_text("more of 1\n")
    os.replace(folder / "more.tmp", folder / "more.txt")
    until(lambda: look(engine, task))
    time.sleep(0.2)
    process = FileObserver._process

    def process_late(*words):
        time.sleep(0.3)
        process(*words)

    monkeypatch.setattr(FileObserver, "_process", process_late)
    rename(folder, 2)

    assert look(engine, task) == []
    engine.states(task, When.FAILED)


def test_nothing_is_held_open_when_the_attempt_is_over(engine_at):
    engine, task, folder = engine_at
    rename(folder, 10)
    until(lambda: look(engine, task))

    assert open_restart_files() == 0


def open_restart_files():
    return sum("state.txt" in os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))


# --- check_command ---

WHOLE = ["grep", "-q", "^end$", "state.txt"]
# Writes half of a file, waits until that was refused, writes the rest, waits until that is a checkpoint.
PATIENT = """
    base=$1
    wait_for() { n=0; until eval "$1"; do n=$((n + 1)); [ $n -gt 1200 ] && exit 9; sleep 0.05; done; }
    echo "step 7" > state.txt
    wait_for 'grep -q "restart files are not take[n]" "$base/logs/demo/001.log"'
    echo end >> state.txt
    wait_for 'ls "$base"/results/demo/checkpoints/0*'
    exit 85
"""


@pytest.mark.process
def test_check_command_leaves_out_a_torn_copy_and_takes_the_next_one(tmp_path):
    words = ["sh", "-c", PATIENT.replace("{", "{{").replace("}", "}}"), "sh", "{base}"]

    record = command_segment(tmp_path, {**SETTINGS, "start": words, "check_command": WHOLE})

    assert record.kind is EndKind.PAUSED
    assert [(path / "state.txt").read_text() for path in checkpoints(tmp_path)] == ["step 7\nend\n"]
    log = command_job(tmp_path, SETTINGS).log.read_text()
    said = "restart files are not taken: check_command grep -q ^end$ state.txt: exit code 1; the next ones may be"
    assert log.count(said) == 1


@pytest.mark.process
def test_a_torn_file_at_the_end_of_a_segment_is_no_checkpoint(tmp_path):
    words = ["sh", "-c", "echo step 7 > state.txt; exit 85"]

    with pytest.raises(UnbrokenError) as error:
        command_segment(tmp_path, {**SETTINGS, "saved_by": "exit", "start": words, "check_command": WHOLE})

    assert "; check_command grep -q ^end$ state.txt: exit code 1; read " in str(error.value)
    assert "left no newer checkpoint" in str(error.value)
    assert checkpoints(tmp_path) == []


@pytest.mark.process
def test_a_check_that_does_not_answer_leaves_the_copy_out(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "ANSWER_SECONDS", 0.2)
    run = command_run(**SETTINGS, check_command=["sleep", "600"])

    why = why_not_whole(run, program_of(run), tmp_path)

    assert why == "check_command sleep 600: sleep 600: no answer in 0.2 s; it was killed"


def test_a_check_that_does_not_exist_is_told_before_the_program_starts(tmp_path):
    with pytest.raises(UnbrokenError) as error:
        command_segment(tmp_path, {**SETTINGS, "check_command": ["/no/such/check"]})

    assert str(error.value) == (
        "runs.demo.settings.check_command: found '/no/such/check', which is not a program that can be found here"
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"start": ["x"], "check_command": ["y"]},
            "check_command: does nothing without `files`; name the restart files",
        ),
        ({**SETTINGS, "check_command": ["{file}"]}, "check_command: found '{file}' in '{file}', allowed: {base}; a "),
    ],
)
def test_mistakes_in_these_settings_are_one_line(settings, line):
    with pytest.raises(ConfigError) as error:
        command_run(**settings)

    assert any(said.startswith(f"runs.demo.settings.{line}") for said in error.value.mistakes), error.value.mistakes
