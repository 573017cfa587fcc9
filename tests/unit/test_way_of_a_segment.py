"""How many modules a reader has to know who follows one segment: those in which a function is called."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import PYTHONPATH

# Of all rooms, and of `job`.  Lower them when they are less; never raise them.
MOST, MOST_OF_JOB = 37, 7

FOLLOW = """
import json, sys, threading
from pathlib import Path
from support.toyrun import toy_job
from unbroken.engines.toy.engine import ToyEngine
from unbroken.job.lifecycle import run_segment

entered = set()

def follow(frame, event, argument):
    name = frame.f_globals.get("__name__", "")
    if event == "call" and name.startswith("unbroken.") and frame.f_code.co_name != "<module>":
        entered.add(name)

threading.setprofile(follow)
sys.setprofile(follow)
record = run_segment(toy_job(Path()), ToyEngine())
sys.setprofile(None)
print(json.dumps([record.kind, sorted(entered)]))
"""


@pytest.mark.process
def test_a_segment_in_one_process_enters_few_modules(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FOLLOW]
    found = subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": PYTHONPATH}, stdout=subprocess.PIPE, check=True)

    kind, entered = json.loads(found.stdout)

    assert kind == "finished"
    assert len(entered) <= MOST, entered
    assert len([name for name in entered if name.startswith("unbroken.job.")]) <= MOST_OF_JOB, entered
