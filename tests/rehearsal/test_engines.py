"""The rehearsal of each engine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unbroken.config.package_files import root_folder

pytestmark = pytest.mark.process

UNBROKEN = Path(sys.executable).with_name("unbroken")
COUNT = """
import sys, time
with open("numbers.txt", "w") as file:
    for n in range(1, int(sys.argv[1]) + 1):
        print(n, file=file, flush=True)
        time.sleep(0.02)
"""


# A training that resumes, with a table and a best value of its own that its author kept in variables.
STUDENT = """
import json, os, sys, time
from pathlib import Path
goal, save, resume = 300, Path(os.environ["UNBROKEN_SAVE"]), os.environ["UNBROKEN_RESUME"]
step, value = map(int, (Path(resume) / "state").read_text().split()) if resume else (0, 1)
log, best = open("log.csv", "MODE"), -1
while step < goal:
    time.sleep(0.02)
    step, value = step + 1, (value * 1103515245 + step) % 2**31
    print(f"{step},{value}", file=log, flush=True)
    if value > best:
        best = value
        Path("best.txt").write_text(f"{step} {value}")
    is_told = os.path.exists(os.environ["UNBROKEN_STOP"])
    if step % 20 == 0 or is_told:
        draft = save.with_name(f"draft-{step}")
        draft.mkdir()
        (draft / "state").write_text(f"{step} {value}")
        (draft / "progress.json").write_text(json.dumps({"done": step, "goal": goal, "unit": "steps"}))
        os.rename(draft, save / f"{step:06d}.ready")
    if is_told and step < goal:
        sys.exit(85)
"""


@pytest.fixture
def dmtcp(rehearse):
    """Rehearses a program under DMTCP, or what stands in for it."""
    from support.dmtcp_here import PROGRAMS

    def dmtcp(*command):
        run = {"engine": "dmtcp", "segments": 9, "segment_minutes": 5, "save_minutes": 0.01}
        # So many minutes where a busy machine needs them.
        return rehearse({**run, "settings": {"command": list(command), "dmtcp": str(PROGRAMS)}}, "--minutes", "9")

    return dmtcp


@pytest.fixture
def plain_torch(tmp_path, rehearse):
    """Rehearses a training that saves by itself, broken in one way."""

    def plain_torch(fault):
        shutil.copy(root_folder() / "tests" / "support" / "torch_state.py", tmp_path / "train.py")
        run = {"engine": "torch", "segments": 9, "segment_minutes": 5, "save_minutes": 0.01}
        settings = {"script": "train.py", "goal": 300, "goal_unit": "steps", "args": fault.split()}
        return rehearse({**run, "settings": settings})

    return plain_torch


@pytest.mark.slow
def test_a_table_that_each_start_empties_and_a_best_value_in_a_variable_are_named(rehearse, tmp_path):
    (tmp_path / "train.py").write_text(STUDENT.replace("MODE", "w"))
    settings = {"script": "train.py", "goal": 300, "goal_unit": "steps"}
    run = {"engine": "torch", "segments": 9, "segment_minutes": 5, "save_minutes": 0.01}

    done = rehearse({**run, "settings": settings})

    assert (done.code, done.verdict) == (1, "differs"), done.said
    assert re.search(r"log\.csv \(next to results/\): \d+ rows instead of 300", done.said), done.said
    assert "best.txt (next to results/)" in done.said


@pytest.mark.slow
def test_a_plain_training_that_saves_all_of_its_state_is_identical(plain_torch):
    done = plain_torch("")

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    control = r"^demo: control: with a wrong state\.pt at \d+ steps it was found in \d+ s: state\.pt: \S+: .* differ"
    assert re.search(control, done.said, re.M), done.said


@pytest.mark.slow
def test_an_optimizer_that_is_not_put_back_is_named_by_the_keys_of_the_state(plain_torch):
    done = plain_torch("optimizer")

    assert (done.code, done.verdict) == (1, "differs"), done.said
    assert any(line.startswith("state.pt: optimizer.state.0.exp_avg: ") for line in done.noted["findings"]), done.said
    assert re.match(r"state\.pt: \S+: .* values differ, by \S+ at most", done.reason)


@pytest.mark.slow
def test_layers_that_stay_frozen_after_a_restart_are_named_by_their_parameters(plain_torch):
    done = plain_torch("unfrozen once")

    assert (done.code, done.verdict) == (1, "differs"), done.said
    assert any(line.startswith("state.pt: model.0.weight: ") for line in done.noted["findings"]), done.said


@pytest.mark.slow
def test_a_process_under_dmtcp_goes_on_after_each_way_of_ending(dmtcp):
    done = dmtcp(sys.executable, "-c", COUNT, "900")

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    # Of an image; where a busy machine shows more of the save at once, of what was last written or made of it.
    assert re.search(r"^demo: a SIGKILL in a save of \S+ after ", done.said, re.M), done.said


def test_a_program_that_fails_by_itself_is_no_fault_of_the_resume(dmtcp):
    done = dmtcp("sh", "-c", "exit 3")

    assert (done.code, done.verdict) == (1, "fails"), done.said
    assert done.reason.startswith("the whole run, without any stop: ")
    assert "the program ended with its own exit code 3" in done.reason


def test_the_toy_is_identical_and_status_shows_it(rehearse):
    done = rehearse({"engine": "toy", "segments": 9, "segment_minutes": 1, "settings": {"goal": 300}})
    status = subprocess.run([UNBROKEN, "status"], cwd=done.folder, capture_output=True, text=True, check=True)
    config = done.folder / "config" / "config.yaml"
    config.write_text(config.read_text().replace("settings:", "settings:\n      seed: 7"))
    changed = subprocess.run([UNBROKEN, "status"], cwd=done.folder, capture_output=True, text=True, check=True)

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    assert re.search(
        r"^demo: control: with a wrong state\.json at \d+ steps it was found in \d+ s: trace", done.said, re.M
    )
    assert "demo: rehearsed: identical\n" in status.stdout
    assert "demo: rehearsed in an earlier version: identical\n" in changed.stdout
