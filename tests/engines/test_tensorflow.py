"""The tensorflow engine: its case for the conformance suite, and its command."""

import sys

import pytest
from engines.conformance import ROOT, Case

from unbroken.engines.found import read_checked_runs

# Where the tests of other engines run there is no TensorFlow.
MARKS = (pytest.mark.tensorflow,)
EPOCHS = 4
ARGS = ["--batch-size", 128]
# 48 batches, with rests that are long enough for somebody who kills by progress to see each of its moments.
PAUSE = ["--pause-seconds", 0.2]

CASE = Case(
    engine="tensorflow",
    settings={"script": "train.py", "goal": EPOCHS, "args": [*ARGS, *PAUSE]},
    whole_settings={"args": ARGS},
    segments=4,
    segment_minutes=20,
    save_minutes=0.01,
    final_files=("metrics.csv", "model.keras"),
    per_piece=("model.keras",),  # it has the time at which Keras saved it
    other_settings={"args": [*ARGS, *PAUSE, "--seed", 1]},
    further_goal=EPOCHS + 1,
    files=(ROOT / "examples" / "tensorflow" / "train.py",),
    kills=3,
    cuts=(0.25, 0.5),
)


def tensorflow_run(tasks=1, **settings):
    settings = {"script": "examples/tensorflow/train.py", "goal": 3, **settings}
    config = {"runs": {"demo": {"engine": "tensorflow", "segments": 1, "segment_minutes": 1, "settings": settings}}}
    config["runs"]["demo"]["tasks"] = tasks
    return read_checked_runs(config, ROOT)[0]


def test_the_command_is_the_users_script_with_the_users_arguments(load_script):
    command = load_script("tensorflow_segment").build_command(tensorflow_run(args=["--lr", 0.1, "--name", "a b"]))

    assert command == [sys.executable, "examples/tensorflow/train.py", "--lr", "0.1", "--name", "a b"]


def test_the_users_own_python_is_taken(load_script):
    command = load_script("tensorflow_segment").build_command(tensorflow_run(python="/opt/env/bin/python"))

    assert command[0] == "/opt/env/bin/python"


def test_several_workers_are_started_by_unbrokens_own_launcher_and_told_of_each_other(load_script):
    command = load_script("tensorflow_segment").build_command(tensorflow_run(workers=2, tasks=3, args=["--lr", 0.1]))

    launcher = [sys.executable, "-m", "unbroken.training.launch.ranks", "--ranks", "2", "--tasks", "3", "--tf-config"]
    assert command == [*launcher, sys.executable, "examples/tensorflow/train.py", "--lr", "0.1"]
