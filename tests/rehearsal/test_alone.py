"""Two rehearsals of one run, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from support.toyrun import until

pytestmark = pytest.mark.process

UNBROKEN = Path(sys.executable).with_name("unbroken")
RUN = {"engine": "toy", "segments": 9, "segment_minutes": 60, "settings": {"goal": 100_000}}


@pytest.fixture
def begun(tmp_path):
    """A rehearsal whose first piece is at work, and that program."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": RUN}}))
    words = [UNBROKEN, "rehearse", "demo", "--minutes", "30"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    work = tmp_path / "results/.rehearsal/demo/stage/01" / tmp_path.name / "results/demo/work"
    until(lambda: list(work.glob("*/progress.json")))
    children = psutil.Process(process.pid).children(recursive=True)
    yield process, children
    process.kill()
    process.wait()


def test_a_second_rehearsal_of_a_run_is_refused_and_the_first_goes_on(tmp_path, begun):
    process, children = begun
    second = subprocess.run([UNBROKEN, "rehearse", "demo"], cwd=tmp_path, capture_output=True, text=True)

    assert (second.returncode, second.stderr) == (
        1,
        "unbroken: demo: another process rehearses it now; wait for its end\n",
    )
    assert process.poll() is None
    assert all(child.is_running() for child in children)


def test_of_a_rehearsal_that_is_killed_nothing_runs_on_and_the_next_one_works(tmp_path, begun, rehearse):
    process, children = begun
    assert len(children) > 1

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))
    done = rehearse({**RUN, "settings": {"goal": 1}}, "--minutes", "5")
    assert done.verdict == "not tested"  # done before it could be killed
    assert json.loads((tmp_path / "results/.rehearsal/demo.json").read_text())["verdict"] == "not tested"
