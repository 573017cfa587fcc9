"""The control of a rehearsal: a wrong restore is found, and where it is not the verdict says that nothing is proven."""

import re
import sys

import pytest

# Keeps the contract; OPTION says what is wrong.
COUNT = """
import json, os, sys, time
from pathlib import Path
goal, option = 150, sys.argv[1]
save, resume = Path(os.environ["UNBROKEN_SAVE"]), os.environ["UNBROKEN_RESUME"]
state, rows = {"step": 0, "value": 1}, []
if resume and option != "begins again":
    state = json.loads(Path(resume, "state.json").read_text())
    rows = Path(resume, "final", "table.csv").read_text().splitlines(keepends=True)[1:]

def hand_over():
    is_last = option == "begins again" and state["step"] == goal  # that it is done says its exit code alone
    draft = save if is_last else save / "draft"
    (draft / "final").mkdir(parents=True)
    (draft / "state.json").write_text(json.dumps(state))
    (draft / "final" / "table.csv").write_text("step,value\\n" + "".join(rows))
    if option != "begins again":
        (draft / "progress.json").write_text(json.dumps({"done": state["step"], "goal": goal, "unit": "steps"}))
    if is_last:
        return
    draft.rename(save / f"{time.time_ns():020d}.ready")

while state["step"] < goal:
    time.sleep(0.02)
    state["step"] += 1
    state["value"] = (state["value"] * 1103515245 + state["step"]) % 2**31
    shown = state["step"] % 7 if option == "steps alone" else state["value"]
    rows.append(f"{state['step']},{shown}\\n")
    is_told = os.path.exists(os.environ["UNBROKEN_STOP"])
    if state["step"] % 10 == 0 or is_told:
        hand_over()
    if is_told and state["step"] < goal:
        sys.exit(85)
"""


@pytest.fixture
def count(rehearse, tmp_path):
    def count(option):
        (tmp_path / "count.py").write_text(COUNT)
        settings = {"start": [sys.executable, "count.py", option], "inputs": ["count.py"]}
        return rehearse({"engine": "command", "segments": 9, "segment_minutes": 60, "settings": settings})

    return count


@pytest.mark.slow
def test_a_wrong_restore_of_a_program_that_resumes_is_found_at_the_step_after_it(count):
    done = count("resumes")

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    found = re.search(
        r"^demo: control: with a wrong state\.json at (\d+) steps it was found in \d+ s: (.+)$", done.said, re.M
    )
    assert found, done.said
    after = int(found[1]) + 1
    assert found[2].startswith(f"table.csv: column value, first in row {after} (step {after}): "), done.said


@pytest.mark.slow
def test_a_program_that_does_all_again_is_not_proven(count):
    done = count("begins again")

    assert (done.code, done.verdict) == (1, "not proven"), done.said
    assert re.fullmatch(
        r"with a wrong state\.json at \d+ checkpoints it left the same results: they do not depend on what is put back",
        done.reason,
    )


@pytest.mark.slow
def test_results_that_do_not_depend_on_the_state_are_not_proven(count):
    done = count("steps alone")

    assert (done.code, done.verdict) == (1, "not proven"), done.said
    assert "with a wrong state.json at " in done.reason and "they do not depend on what is put back" in done.reason
