"""Planted faults of a program with a restart file of its own: each is found, and what is no fault is not."""

import re
import sys

import pytest

pytestmark = pytest.mark.process

IN_TABLE = r"table\.csv: column (value|lr), first in row \d+ \(step \d+\): \S+ instead of \S+"
EPOCHS_END = r"from (80|100|120|140|160|180|200|220) on: something that is used first there is not saved"
WENT_ON = r"it resumed from \d+ after a (polite stop|SIGKILL in mid-work|SIGKILL in a save), and differs"
# Beside the training: a restart file with a line a step, and a word in it that stays 0.
WRAPPER = """
import subprocess, sys
code = subprocess.run([sys.executable, "train.py", *sys.argv[1:]]).returncode
steps = [line.split(",")[0] for line in open("table.csv")][1:]
open("restart.txt", "w").writelines(f"saved 0 of {step}\\n" for step in steps)
sys.exit(code)
"""
# Saves three times, the last time at its end.
FEW_SAVES = """
import json, os, sys, time
from pathlib import Path
goal, stop, state = int(sys.argv[1]), Path(sys.argv[2]), Path("state.json")
step, value = json.loads(state.read_text()).values() if state.exists() else (0, 1)
def save():
    Path("state.tmp").write_text(json.dumps({"step": step, "value": value}))
    os.replace("state.tmp", state)
while step < goal:
    time.sleep(0.04)
    step, value = step + 1, (value * 1103515245 + step) % 2**31
    if step in (40, 70, goal):
        save()
    if stop.exists() and step < goal:
        save()
        sys.exit(85)
Path("summary.txt").write_text(f"{step} steps: {value}\\n")
"""
# Its saves are never seen growing: they come from elsewhere in one step.
UNSEEN_SAVES = """
import json, os, sys, tempfile, time
from pathlib import Path
goal, save, resume = int(sys.argv[1]), Path(os.environ["UNBROKEN_SAVE"]), os.environ["UNBROKEN_RESUME"]
step, value = map(int, (Path(resume) / "step").read_text().split()) if resume else (0, 1)
while step < goal:
    time.sleep(0.02)
    step, value = step + 1, (value * 1103515245 + step) % 2**31
    is_told = os.path.exists(os.environ["UNBROKEN_STOP"])
    if step % 20 == 0 or is_told:
        draft = Path(tempfile.mkdtemp())
        (draft / "step").write_text(f"{step} {value}")
        (draft / "progress.json").write_text(json.dumps({"done": step, "goal": goal, "unit": "steps"}))
        os.rename(draft, save / f"{step:06d}.ready")
    if is_told and step < goal:
        sys.exit(85)
"""
# The verdict, and what its reason says.
FAULTS = {
    "outside": ("differs", f"{IN_TABLE}; {WENT_ON}"),
    "off by one": (
        "differs",
        r"\d+ are missing, the first with step \d+; .*the number that is saved is off by one",
    ),
    "absolute path": ("fails", "after a polite stop: .*FileNotFoundError: "),  # a long path is cut
    "epoch's end": ("differs", f"{IN_TABLE}; {WENT_ON} {EPOCHS_END}"),
    "random state": ("differs", f"{IN_TABLE}; {WENT_ON}"),
    "scheduler": ("differs", f"{IN_TABLE}; {WENT_ON}"),
    "order": ("differs", f"{IN_TABLE}; {WENT_ON}"),
    "gradient accumulation": ("differs", f"{IN_TABLE}; {WENT_ON}"),
    "wall clock": ("differs", r"its state holds a time \(state\.json key started\)"),
    "resume ignored": ("fails", r"it was to resume from \d+, and said \d+ soon after: it starts from the beginning"),
    "cast": ("differs", f"{IN_TABLE}; {WENT_ON}"),
}


@pytest.mark.slow
def test_a_program_that_really_resumes_is_identical(with_fault):
    done = with_fault("")

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    left = sorted(path.name for path in (done.folder / "results" / ".rehearsal").iterdir())
    assert left == ["demo.json", "demo.lock"]
    assert re.search(r"^demo: whole: \d+ s; start [\d.]+ s, save [\d.]+ s$", done.said, re.M)
    assert re.search(r"^demo: a polite stop: saved at \d+, in [\d.]+ s$", done.said, re.M)
    assert re.search(r"^demo: a SIGKILL in a save of state\.tmp after ", done.said, re.M)
    matched = r"progress_pattern .* matched once in state\.json, '240' at line 1: .*"
    read = rf"progress was read: {matched}; it grew from \d+ to 240 steps"
    assert re.search(f"^demo: {read}$", done.said, re.M)
    assert re.fullmatch(read, done.noted["progress_read"])
    assert not (done.folder / "results" / "demo").exists()


@pytest.mark.slow
def test_a_program_that_saves_twice_more_is_killed_at_one_of_them(with_fault, tmp_path):
    (tmp_path / "few.py").write_text(FEW_SAVES)
    own = {"start": [sys.executable, "few.py", "{goal}", "{stop}"], "inputs": ["few.py"], "outputs": {}}

    done = with_fault("", goal=100, **own)

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said


@pytest.mark.slow
def test_a_program_whose_saves_are_too_quick_to_be_seen_is_killed_right_after_one(rehearse, tmp_path):
    (tmp_path / "unseen.py").write_text(UNSEEN_SAVES)
    settings = {"start": [sys.executable, "unseen.py", "{goal}"], "inputs": ["unseen.py"], "goal": 400}

    done = rehearse({"engine": "command", "segments": 9, "segment_minutes": 60, "settings": settings})

    assert (done.code, done.verdict, done.reason) == (0, "identical", ""), done.said
    assert re.search(r"^demo: a SIGKILL in a save of \S+ after ", done.said, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(with_fault, fault):
    verdict, reason = FAULTS[fault]
    done = with_fault(fault)

    assert (done.code, done.verdict) == (1, verdict), done.said
    assert re.search(reason, done.reason), done.said


@pytest.mark.slow
def test_a_progress_that_never_grows_is_found_by_what_was_read(with_fault):
    done = with_fault("lying progress", progress_pattern=r'"done": (\d+)')

    assert (done.code, done.verdict) == (1, "fails"), done.said
    assert "its restart files say 0 steps, as at the start: progress_pattern" in done.reason
    assert "; it never grew" in done.reason


@pytest.mark.slow
def test_a_pattern_that_matches_something_else_says_how_often_what_last_and_where(with_fault, tmp_path):
    (tmp_path / "wrapper.py").write_text(WRAPPER)
    own = {"start": [sys.executable, "wrapper.py", "{goal}", "{stop}"], "inputs": ["train.py", "wrapper.py"]}
    own |= {"files": ["state.json", "restart.txt"], "saved_by": "exit", "progress_file": "restart.txt"}
    done = with_fault("", progress_pattern=r"^saved (\d+)", goal=65, **own)

    assert (done.code, done.verdict) == (1, "fails"), done.said
    matched = r"progress_pattern ^saved (\d+) matched 65 times in restart.txt, last '0' at line 65: 'saved 0 of 65'"
    assert f"as at the start: {matched}; it never grew" in done.reason


@pytest.mark.slow
def test_a_progress_that_a_command_says_is_told_and_the_command_may_write_beside(with_fault):
    command = ["sh", "-c", """date >> seen; sed -n 's/.*"step": \\([0-9]*\\).*/\\1/p' state.json"""]
    done = with_fault("", progress_file="", progress_pattern="", progress_command=command)

    said = "but for what each piece writes for itself: seen"  # the times that the command has written
    assert (done.code, done.verdict, done.reason) == (0, "identical", said), done.said
    assert " printed 240; it grew from " in done.noted["progress_read"]


@pytest.mark.slow
def test_a_table_that_is_appended_to_where_no_checkpoint_holds_it_is_found(with_fault):
    done = with_fault("", outputs={}, environment={"TABLE": "{base}/table.csv"})

    assert (done.code, done.verdict) == (1, "differs"), done.said
    assert re.search(r"table\.csv \(next to results/\): \d+ rows instead of 240; \d+ come twice", done.reason)
    assert "the table is not cut to what was saved" in done.reason


@pytest.mark.slow
def test_a_program_that_differs_from_itself_is_not_blamed(with_fault):
    done = with_fault("differs from itself")

    assert (done.code, done.verdict) == (0, "resumes, not comparable"), done.said
    assert "two whole runs differ in " in done.reason and "table.csv column value" in done.reason
    assert "step" not in done.reason  # that column is equal, and was compared


@pytest.mark.slow
def test_a_program_that_never_saves_is_not_tested(with_fault):
    done = with_fault("never saves", "--minutes", "0.5")

    assert (done.code, done.verdict) == (1, "not tested"), done.said
    assert re.match(r"a polite stop: it saved nothing \(.*\); type --minutes 1\.5$", done.reason), done.reason


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_rehearsed_to_a_smaller_goal(with_fault):
    done = with_fault("", "--minutes", "0.1", goal=100_000)

    shorter = re.search(r"^demo: 100000 takes longer than 0\.1 minutes: rehearsed to (\d+) ", done.said, re.M)
    assert shorter, done.said
    assert (done.code, done.verdict, done.noted["goal"]) == (0, "identical", int(shorter[1])), done.said
