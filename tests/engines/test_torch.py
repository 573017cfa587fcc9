"""The torch engine: its case for the conformance suite, and its command."""

import sys

from engines.conformance import ROOT, Case

from longhaul.config import read_runs
from longhaul.plan import schemas

EPOCHS = 5
ARGS = ["--batch-size", 128]

CASE = Case(
    settings={"script": "train.py", "goal": EPOCHS, "args": [*ARGS, "--pause-seconds", 0.1]},
    whole_settings={"args": ARGS},
    segments=12,
    segment_minutes=0.14,
    save_minutes=0.01,
    final_files=("model.pt", "metrics.csv"),
    other_settings={"args": [*ARGS, "--pause-seconds", 0.1, "--seed", 1]},
    further_goal=EPOCHS + 1,
    example_files=("train.py",),
    kills=5,
    longest_pause_seconds=8,
)


def torch_run(**settings):
    settings = {"script": "examples/torch/train.py", "goal": 3, **settings}
    config = {"runs": {"demo": {"engine": "torch", "segments": 1, "segment_minutes": 1, "settings": settings}}}
    return read_runs(config, schemas(), ROOT)[0]


def test_the_command_is_the_users_script_with_the_users_arguments(load_script):
    command = load_script("torch_segment").build_command(torch_run(args=["--lr", 0.1, "--name", "a b"]))

    assert command == [sys.executable, "examples/torch/train.py", "--lr", "0.1", "--name", "a b"]


def test_the_users_own_python_is_taken(load_script):
    command = load_script("torch_segment").build_command(torch_run(python="/opt/env/bin/python"))

    assert command[0] == "/opt/env/bin/python"
