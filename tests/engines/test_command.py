"""The command engine: its case for the conformance suite, whole runs with kills, and its command."""

import itertools
import re
import signal
import subprocess
import sys

import pytest
import yaml
from engines.conformance import ROOT, Case, Chain
from support.command_jobs import (
    WALKER,
    command_job,
    command_run,
    command_segment,
    start_command_segment,
    task_at,
    walker_settings,
)
from support.toyrun import flip_byte, history, until

from unbroken.engines.base import When
from unbroken.engines.command.engine import CommandEngine
from unbroken.engines.command.placeholders import filled
from unbroken.engines.files.outputs import read_outputs
from unbroken.engines.files.settings import program_of
from unbroken.engines.found import read_checked_runs
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind

WALK = ("trace.csv",)
CASE = Case(
    engine="command",
    settings=walker_settings(step_seconds=0.03),
    whole_settings=walker_settings(step_seconds=0),
    segments=8,
    segment_minutes=0.06,
    save_minutes=0.003,
    final_files=WALK,
    other_settings=walker_settings(step_seconds=0.03, seed=8),
    further_goal=260,
    kills=5,
)


# --- whole = pieces = pieces with kills, for each way to save ---

WAYS = {
    "numbered, the next one begun": {"style": "numbered"},
    "renamed": {"style": "rename"},
    "marked": {"style": "marker", "save_steps": 40},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table of one walk of 200 steps without unbroken around it."""
    return walk(tmp_path_factory.mktemp("whole"), goal=200)


def walk(folder, **options):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    subprocess.run([sys.executable, "-I", "-S", str(WALKER), *words], cwd=folder, check=True)
    return (folder / "trace.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_twelve_kills_at_random_moments_leave_the_table_of_one_run(tmp_path, way):
    chain = Chain(tmp_path / "chain", Case("command", {}, 4, 20, 0.003, WALK, {}, 0, kills=12))
    chain.configure({**walker_settings(step_seconds=0.05, hurry=chain.hurry, **WAYS[way]), "goal": 3000})

    kills = chain.run_with_kills(seed=way)

    assert kills == 12
    assert chain.final()["trace.csv"] == walk(tmp_path / "chain", goal=3000)


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_pieces_leave_the_table_of_one_run(tmp_path, way, whole):
    settings = walker_settings(step_seconds=0.03, limit=0, **WAYS[way])
    short = {"segment_minutes": 0.06, "first_margin_seconds": 0.1, "save_minutes": 0.001}
    job = command_job(tmp_path, settings)

    for segment in itertools.count(1):
        if command_segment(tmp_path, settings, segment, **short).kind is EndKind.FINISHED:
            break

    assert (job.places.final / "trace.csv").read_bytes() == whole
    assert [attempt.kind for attempt in history(job)][:1] == [EndKind.PAUSED]
    assert max(attempt.saves for attempt in history(job)) >= 2


@pytest.mark.process
def test_a_killed_segment_loses_only_what_the_program_had_not_saved(tmp_path, whole):
    settings = walker_settings(step_seconds=0.01)
    job = command_job(tmp_path, settings, save_minutes=0.5)
    process = start_command_segment(tmp_path, settings, save_minutes=0.5)
    program = job.places.work / "000001" / "program"
    until(lambda: (program / "walk.000100.json").exists())
    process.kill()
    process.end()

    record = command_segment(tmp_path, settings, attempt=2)

    died, finished = history(job)
    assert (died.kind, finished.kind) == (EndKind.DIED, EndKind.FINISHED)
    assert died.progress_to == finished.progress_from > 50
    assert record.progress.done == 200
    assert (job.places.final / "trace.csv").read_bytes() == whole


@pytest.mark.process
def test_bit_rot_in_the_newest_restart_file_falls_back_to_the_one_before(tmp_path, whole):
    settings = walker_settings(step_seconds=0.01)
    job = command_job(tmp_path, settings, segment_minutes=0.05)
    command_segment(tmp_path, settings, segment_minutes=0.05)
    newest = sorted(job.places.checkpoints.glob("[0-9]*"))[-1]
    flip_byte(next(newest.glob("walk.*.json")), at=500)

    while command_segment(tmp_path, settings, segment=2).kind is not EndKind.FINISHED:
        pass

    reasons = list((job.places.checkpoints / ".quarantine").glob("*.reason.json"))
    assert "the content changed since it was published" in reasons[0].read_text()
    assert (job.places.final / "trace.csv").read_bytes() == whole


# --- what it is given ---


@pytest.mark.process
def test_templates_inputs_and_environment_are_filled_for_each_segment(tmp_path):
    (tmp_path / "job.in").write_text("restart='@@file@@' seconds=@@seconds@@ {braces} stay @@ @ \n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "points.txt").write_text("1 2 3\n")
    script = 'cat job.in points.txt > state.txt; echo "$SIZE $UNBROKEN_SEGMENT $OMP_NUM_THREADS" >> state.txt; exit 85'
    settings = {
        "start": ["sh", "-c", script],
        "files": ["state.txt"],
        "templates": ["job.in"],
        "inputs": ["data/points.txt"],
        "environment": {"SIZE": "{threads}x{segment}"},
    }

    command_segment(tmp_path, settings)
    command_segment(tmp_path, settings, segment=2)

    first, second = sorted(command_job(tmp_path, settings).places.checkpoints.glob("[0-9]*"))
    assert (first / "state.txt").read_text() in [
        f"restart='' seconds={seconds} {{braces}} stay @@ @ \n1 2 3\n1x1 1 1\n" for seconds in range(60)
    ]
    assert f"restart='{(first / 'state.txt').resolve()}'" in (second / "state.txt").read_text()


@pytest.mark.process
def test_rows_of_a_program_that_keeps_the_contract_are_joined_too(tmp_path):
    script = """
        n=0; [ -n "$UNBROKEN_RESUME" ] && n=$(cat "$UNBROKEN_RESUME/n")
        for i in 1 2 3; do n=$((n + 1)); echo "$n 7" >> rows.txt; done
        echo $n > "$UNBROKEN_SAVE/n"
        echo "{{\\"done\\": $n, \\"goal\\": 6}}" > "$UNBROKEN_SAVE/progress.json"
        [ $n -eq 6 ] && exit 0
        echo "$((n + 1)) 8" >> rows.txt
        exit 85"""
    settings = {"start": ["sh", "-c", script], "goal": 6, "outputs": {"rows.txt": "rows"}}

    outcomes = [command_segment(tmp_path, settings, segment=each).kind for each in (1, 2)]

    assert outcomes == [EndKind.PAUSED, EndKind.FINISHED]
    rows = (command_job(tmp_path, settings).places.final / "rows.txt").read_text()
    assert rows == "".join(f"{n} 7\n" for n in range(1, 7))


HANDED_OVER = """
import json, os, time
save, resume = os.environ["UNBROKEN_SAVE"], os.environ["UNBROKEN_RESUME"]
n = int(open(f"{resume}/n").read()) if resume else 0
with open("rows.log", "a", buffering=1) as log:
    while n < 60:
        n += 1
        log.write(f"{n}\\n")
        if n % 10 == 0:
            os.mkdir(f"{save}/draft{n}")
            open(f"{save}/draft{n}/n", "w").write(str(n))
            json.dump({"done": n, "goal": 60}, open(f"{save}/draft{n}/progress.json", "w"))
            os.rename(f"{save}/draft{n}", f"{save}/{n:04d}.ready")
        time.sleep(0.03)
"""


@pytest.mark.process
def test_a_state_that_is_handed_over_has_the_rows_of_then(tmp_path):
    settings = {"start": [sys.executable, "-I", "-c", HANDED_OVER.replace("{", "{{").replace("}", "}}")], "goal": 60}

    command_segment(tmp_path, settings)

    places = command_job(tmp_path, settings).places
    listed = {each.passport.progress.done: read_outputs(each) for each in Store(places.checkpoints).readable()}
    rows = {done: "".join(f"{n}\n" for n in range(1, int(done) + 1)) for done in listed}
    assert len(listed) > 1
    assert {done: each.files["rows.log"].resume_bytes for done, each in listed.items()} == {
        done: len(text) for done, text in rows.items()
    }
    assert [each.doubts for each in listed.values()] == [()] * len(listed)


def test_the_command_is_the_users_words_with_the_placeholders_filled():
    run = command_run(start=["lmp", "-in", "a b.in"], resume=["lmp", "-r", "{file}", "${{x}}"], files=["a"])
    program = program_of(run)

    started = [filled(word, {}) for word in program.start]
    resumed = [filled(word, {"file": "/c/a.rst"}) for word in program.resume]

    assert started == ["lmp", "-in", "a b.in"]
    assert resumed == ["lmp", "-r", "/c/a.rst", "${x}"]


@pytest.mark.process
def test_progress_is_told_while_it_works(tmp_path):
    settings = walker_settings(step_seconds=0.01, buffer_bytes=20)
    process = start_command_segment(tmp_path, settings, save_minutes=0.5)
    job = command_job(tmp_path, settings)
    said = job.places.work / "000001" / "progress.json"

    text = until(lambda: said.exists() and said.read_text())

    process.kill(signal.SIGKILL)
    process.end()
    assert '"goal": 200' in str(text)


def test_a_log_that_the_program_writes_tells_how_far_it_is(tmp_path):
    settings = {**walker_settings(), "files": ["out.log"], "progress_file": "out.log", "outputs": {}}
    settings |= {"saved_by": "exit", "progress_pattern": r"^Step (\d+)"}
    job = command_job(tmp_path, settings)
    task = task_at(job)
    folder = CommandEngine(tmp_path).folder(task)
    folder.mkdir(parents=True)
    (folder / "out.log").write_text("Step 1\nStep 250\nstopping in Step 3\n")
    engine = CommandEngine(tmp_path)

    engine.states(task, When.WORKS)

    assert engine.progress(task).done == 250


def test_the_example_configs_are_accepted():
    for name in ("command", "lammps", "c", "r", "matlab"):
        folder = ROOT / "examples" / name
        config = yaml.safe_load((folder / "config" / "config.yaml").read_text())
        assert {run.engine for run in read_checked_runs(config, folder)} == {"command"}


# --- the page ---


def recipes():
    """The configs on the engine's page; those of the recipes are settings alone."""
    page = (ROOT / "docs" / "engines" / "command.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    head = "runs:\n  recipe:\n    engine: command\n    segments: 9\n    segment_minutes: 60\n    settings:\n"
    return [yaml.safe_load(text if text.startswith("runs:") else head + text) for text in blocks]


def test_every_config_on_the_page_is_accepted(tmp_path):
    found = recipes()

    for config in found:
        (run,) = config["runs"].values()
        for name in (*run["settings"].get("inputs", ()), *run["settings"].get("templates", ())):
            (tmp_path / name).touch()
        assert [each.engine for each in read_checked_runs(config, tmp_path)] == ["command"]
    assert len(found) == 2
