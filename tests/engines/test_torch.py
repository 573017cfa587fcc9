"""The torch engine: its case for the conformance suite, and its command."""

import sys
from pathlib import Path

import pytest
from engines.conformance import ROOT, Case

from unbroken.engines.base import Task
from unbroken.engines.found import read_checked_runs
from unbroken.engines.torch.engine import TorchEngine
from unbroken.engines.training import threads_of_each
from unbroken.program.contract import AttemptFolder

EPOCHS = 5
ARGS = ["--batch-size", 128]
# 60 batches, with rests that are long enough for somebody who kills by progress to see each of its moments.
PAUSE = ["--pause-seconds", 0.1]

CASE = Case(
    engine="torch",
    settings={"script": "train.py", "goal": EPOCHS, "args": [*ARGS, *PAUSE]},
    whole_settings={"args": ARGS},
    segments=4,
    segment_minutes=20,
    save_minutes=0.01,
    final_files=("model.pt", "metrics.csv"),
    other_settings={"args": [*ARGS, *PAUSE, "--seed", 1]},
    further_goal=EPOCHS + 1,
    files=(ROOT / "examples" / "torch" / "train.py",),
    kills=5,
    cuts=(0.25, 0.5),
)


def torch_run(tasks=1, threads=1, **settings):
    settings = {"script": "examples/torch/train.py", "goal": 3, **settings}
    config = {"runs": {"demo": {"engine": "torch", "segments": 1, "segment_minutes": 1, "settings": settings}}}
    config["runs"]["demo"] |= {"tasks": tasks, "threads": threads}
    return read_checked_runs(config, ROOT)[0]


def test_the_command_is_the_users_script_with_the_users_arguments(load_script):
    command = load_script("torch_segment").build_command(torch_run(args=["--lr", 0.1, "--name", "a b"]))

    assert command == [sys.executable, "examples/torch/train.py", "--lr", "0.1", "--name", "a b"]


def test_the_users_own_python_is_taken(load_script):
    command = load_script("torch_segment").build_command(torch_run(python="/opt/env/bin/python"))

    assert command[0] == "/opt/env/bin/python"


def test_several_ranks_are_started_by_unbrokens_own_launcher(load_script):
    command = load_script("torch_segment").build_command(torch_run(ranks=4, tasks=2, args=["--lr", 0.1]))

    launcher = [sys.executable, "-m", "unbroken.training.launch.ranks", "--ranks", "4", "--tasks", "2"]
    assert command == [*launcher, sys.executable, "examples/torch/train.py", "--lr", "0.1"]


def test_the_ranks_of_a_task_share_its_threads():
    shares = [threads_of_each(torch_run(ranks=ranks, threads=8), "ranks") for ranks in (1, 4, 16)]

    assert shares == [8, 2, 1]


@pytest.mark.parametrize(("count", "origin", "lines"), [("2", None, 1), ("0", None, 0), ("2", "a checkpoint", 0)])
def test_a_requeued_job_without_a_checkpoint_is_told_loudly(load_script, monkeypatch, count, origin, lines):
    monkeypatch.setenv("SLURM_RESTART_COUNT", count)
    task = Task(torch_run(), 1, origin, AttemptFolder(Path("attempt")), 0.0)

    remarks = TorchEngine().remarks(task)

    assert len(remarks) == lines
    assert all(
        line.startswith("WARNING: Slurm has started this job 3 times, and there is NO checkpoint") for line in remarks
    )
