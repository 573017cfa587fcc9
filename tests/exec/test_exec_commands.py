import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.exec_calls import KEEP, Called, expected
from support.file_programs import NUMBERED, made, wait_for, wait_for_moment

pytestmark = pytest.mark.process


def unbroken(called: Called, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, told = [sys.executable, "-m", "unbroken", *words], {**os.environ, **environment}
    return subprocess.run(command, cwd=called.folder, env=told, text=True, capture_output=True, timeout=600)


@pytest.fixture
def paused(called: Called) -> Called:
    """A run that has paused at 7."""
    called.rest_at(7)
    process = called.start(*KEEP)
    called.wait_for_state(7)
    process.send_signal(signal.SIGUSR1)  # as Slurm warns a job before its end
    assert process.wait(600) == 85
    called.go_on()
    return called


def test_status_shows_runs_of_exec_from_the_folder_alone(paused):
    shown = unbroken(paused, "status")
    (row,) = json.loads(unbroken(paused, "status", "--json").stdout)

    assert (row["run"], row["state"]) == ("count", "paused")
    assert (
        "count: nothing works on it; to continue, type: the same command again (unbroken exec --name count ... -- "
        in shown.stdout
    )


def test_status_of_a_finished_run_names_its_results(paused):
    paused.call(*KEEP)

    assert "count: results: sum.txt" in unbroken(paused, "status").stdout
    assert "segment 2  finished" in unbroken(paused, "status", "count").stdout


def test_logs_and_verify(paused):
    assert "at 7\n" in unbroken(paused, "logs", "count").stdout

    whole = unbroken(paused, "verify")
    next(paused.store().glob("checkpoints/0*/kept/ckpt/state.json")).write_text("{}")
    spoilt = unbroken(paused, "verify")

    assert (whole.returncode, spoilt.returncode) == (0, 1)


def test_status_says_how_much_space_the_outputs_of_a_call_take(called):
    assert called.call("--keep", "ckpt/*", "--stdout", "printed", goal=3).returncode == 0

    size = (called.folder / "printed").stat().st_size
    assert f"count: output: 1 file, {size} bytes\n" in unbroken(called, "status").stdout


def test_verify_names_what_a_call_printed_if_it_is_not_as_it_is_listed(called):
    called.rest_at(7)
    assert called.call("--keep", "ckpt/*", "--stdout", "printed", "--minutes", "0.15").returncode == 85
    good = unbroken(called, "verify")
    printed = called.store() / "stdout"
    printed.write_text(printed.read_text().replace("at 7", "at 8"))

    bad = unbroken(called, "verify")

    assert (good.returncode, bad.returncode) == (0, 1), good.stdout
    assert "1 of 1 output files are as their newest checkpoint lists them" in good.stdout
    assert f"bad {printed.relative_to(called.folder)}: found " in bad.stdout
    assert "listed, with other content; put it back from a backup, or resume from an earlier checkpoint" in bad.stdout


def test_outputs_of_a_finished_call_are_the_user_s(called):
    assert called.call("--keep", "ckpt/*", "--outputs", "sum.txt", "--stdout", "printed", goal=3).returncode == 0
    (called.folder / "sum.txt").unlink()
    (called.folder / "printed").unlink()

    assert unbroken(called, "verify").returncode == 0


def test_back_goes_on_from_an_earlier_checkpoint(called):
    for number in (3, 6):
        called.rest_at(number)
        assert called.call(*KEEP, "--minutes", "0.15").returncode == 85
        called.go_on()
    kept = [kept["n"] for kept in called.kept()]

    done = unbroken(called, "back", "count")

    assert done.returncode == 0
    assert "with: the same command again" in done.stdout
    assert called.call(*KEEP).returncode == 0
    assert kept == [3, 6]
    assert (called.starts()[-1], called.result()) == (3, expected())


def test_back_among_numbered_files_moves_all_higher_ones_away_and_leaves_the_lower_ones(called):
    more = made(called, NUMBERED, goal=9)
    options = ("--outputs", "result.txt", "--save-minutes", "99", "--checkpoints", "9")
    for number in (3, 6, 7):
        called.rest_at(number)
        process = called.start(*options, "--keep", "restart.{progress}.json", **more)
        wait_for(called, f"rests-at-{number}")
        wait_for_moment(called, f"restart.{number}.json")
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 85
        called.go_on()
    first = min(path.name for path in called.store().glob("checkpoints/0*"))

    assert unbroken(called, "back", "count", "--to", first).returncode == 0

    assert called.call(*options, "--keep", "restart.{progress}.json", **more).returncode == 0
    assert called.starts() == [0, 3, 6, 3]
    assert called.replaced() == [f"restart.{number}.json" for number in (4, 5, 6, 7)]


def test_accept_takes_the_command_line_that_was_refused(paused):
    nothing = unbroken(paused, "accept", "count")
    assert paused.call(*KEEP, goal=30).returncode == 1

    done = unbroken(paused, "accept", "count")

    assert (nothing.returncode, done.returncode) == (1, 0)
    assert "no command line was refused, nothing to accept" in nothing.stderr
    assert paused.call(*KEEP, goal=30).returncode == 0
    assert (paused.starts(), paused.result()) == ([0, 7], expected(30))


def test_restart_begins_anew_and_deletes_nothing(paused):
    trackers = paused.store() / "live" / "trackers.json"
    before = json.loads(trackers.read_text())["wandb"]
    done = unbroken(paused, "restart", "count")

    assert done.returncode == 0
    assert "it begins anew with the same command again" in done.stdout
    assert paused.call(*KEEP).returncode == 0
    assert (paused.starts(), paused.result()) == ([0, 0], expected())
    assert json.loads(trackers.read_text())["wandb"] != before  # a new run in W&B, too
    assert list(paused.folder.glob(".unbroken/.restarted/count/*/checkpoints/0*")) and "state.json" in paused.replaced()


def test_what_restarts_set_aside_stays_however_many_there_are_and_is_no_run(called):
    for _ in range(3):
        assert called.call(*KEEP).returncode == 0
        assert unbroken(called, "restart", "count").returncode == 0

    assert len(list(called.folder.glob(".unbroken/.restarted/count/*"))) == 3
    assert [row["run"] for row in json.loads(unbroken(called, "status", "--json").stdout)] == ["count"]


def test_results_are_named_where_they_are_for_who_stands_elsewhere(called):
    called.call(*KEEP)
    words = [sys.executable, "-m", "unbroken", "status", "-d", str(called.folder)]

    shown = subprocess.run(words, text=True, capture_output=True, cwd="/").stdout

    assert f"count: results: {called.folder}/sum.txt" in shown


def test_a_spoilt_call_hides_no_other_run(paused):
    (paused.folder / ".unbroken/bad").mkdir()
    (paused.folder / ".unbroken/bad/exec.json").write_text("{")

    rows = json.loads(unbroken(paused, "status", "--json").stdout)

    assert {row["run"]: row["state"] for row in rows} == {"bad": "unreadable", "count": "paused"}


def test_a_run_of_a_config_with_the_same_name_comes_first(paused):
    (paused.folder / "results/count/lease").mkdir(parents=True)

    rows = json.loads(unbroken(paused, "status", "--json").stdout)

    assert {row["run"]: row["state"] for row in rows} == {"count": "not started", ".unbroken/count": "paused"}
    assert "at 7\n" in unbroken(paused, "logs", ".unbroken/count").stdout


def test_the_launcher_starts_this_unbroken_and_replaces_no_other_program(called):
    home = called.folder / "home"
    written = unbroken(called, "launcher", HOME=str(home))
    program = home / ".local/bin/unbroken"
    version = subprocess.run([program, "--version"], text=True, capture_output=True)
    again = unbroken(called, "launcher", HOME=str(home))
    program.write_text("#!/bin/sh\n")
    refused = unbroken(called, "launcher", HOME=str(home))

    assert (written.returncode, again.returncode, refused.returncode) == (0, 0, 1)
    assert version.stdout.startswith("unbroken ")
    assert "is there, and not made by unbroken launcher" in refused.stderr


def test_help_lists_it_and_shows_its_options(called):
    assert "exec" in unbroken(called, "--help").stdout
    assert "--saved-by" in unbroken(called, "exec", "--help").stdout


def test_it_loads_the_standard_library_alone(called):
    """Python without site-packages: what is not in the standard library is not there."""
    source = Path(__file__).parents[2] / "src"
    program = "import sys; sys.argv[0] = 'unbroken'; from unbroken.cli.begin import main; main()"
    words = [sys.executable, "-S", "-c", program, "exec", "--name", "bare", "--", "true"]

    done = subprocess.run(
        words, cwd=called.folder, env={**os.environ, "PYTHONPATH": str(source)}, text=True, capture_output=True
    )

    assert done.returncode == 0, done.stderr
