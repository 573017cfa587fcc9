"""A run that can be rehearsed, by the command that people type."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from unbroken.config.package_files import root_folder

UNBROKEN = Path(sys.executable).with_name("unbroken")
FAULTS = root_folder() / "tests" / "support" / "faults.py"


class Rehearsed:
    """What a rehearsal said, and what it left."""

    def __init__(self, folder, run, done):
        self.code, self.said, self.folder = done.returncode, done.stdout + done.stderr, folder
        path = folder / "results" / ".rehearsal" / f"{run}.json"
        self.noted = json.loads(path.read_text()) if path.exists() else {}
        self.verdict, self.reason = self.noted.get("verdict"), self.noted.get("reason", "")


@pytest.fixture
def rehearse(tmp_path):
    """Rehearses the only run of a config."""

    def rehearse(run, *words, folder=tmp_path):
        (folder / "config").mkdir(exist_ok=True)
        (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UNBROKEN_")}
        command = [UNBROKEN, "rehearse", "demo", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200, env=environment)
        return Rehearsed(folder, "demo", done)

    return rehearse


@pytest.fixture
def with_fault(tmp_path, rehearse):
    """Rehearses the small training, broken in one way."""

    def with_fault(fault, *words, goal=240, **settings):
        shutil.copy(FAULTS, tmp_path / "train.py")
        own = {
            "start": [sys.executable, "train.py", "{goal}", "{stop}", *fault.split()],
            "inputs": ["train.py"],
            "goal": goal,
            "goal_unit": "steps",
            "files": ["state.json"],
            "saved_by": "rename",
            "progress_file": "state.json",
            "progress_pattern": r'"step": (\d+)',
            "outputs": {"table.csv": "rows"},
        }
        run = {"engine": "command", "segments": 9, "segment_minutes": 60, "save_minutes": 0.001}
        return rehearse({**run, "settings": {**own, **settings}}, *words)

    return with_fault
