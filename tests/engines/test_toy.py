"""The toy engine: its case for the conformance suite, and its command."""

import dataclasses
import sys

from engines.conformance import ROOT, Case

from unbroken.engines.found import read_checked_runs
from unbroken.engines.toy.engine import counting_command

CASE = Case(
    engine="toy",
    settings={"goal": 400, "seed": 7, "step_seconds": 0.01},
    whole_settings={"step_seconds": 0},
    segments=6,
    segment_minutes=0.06,
    save_minutes=0.005,
    final_files=("state.json", "trace.csv"),
    other_settings={"seed": 8},
    further_goal=500,
)


def toy_run(**settings):
    config = {"runs": {"demo": {"engine": "toy", "segments": 1, "segment_minutes": 1, "settings": settings}}}
    return read_checked_runs(config, ROOT)[0]


def test_the_command_carries_every_setting():
    command = counting_command(toy_run(goal=5, seed=3, step_seconds=0.5, save_steps=2))

    assert command == [
        *(sys.executable, "-m", "unbroken.engines.toy.program"),
        *("--goal", "5", "--seed", "3", "--step-seconds", "0.5", "--save-steps", "2"),
    ]


def test_importing_the_script_does_nothing(load_script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    load_script("segment")

    assert list(tmp_path.iterdir()) == []


def test_a_run_is_plain_values():
    assert dataclasses.is_dataclass(toy_run(goal=5))
    assert toy_run(goal=5).goal == 5
