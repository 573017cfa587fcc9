"""How far a training is: lines in a log, from the step that a restart goes on from."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.training.core.guard import Guard
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.run_log import FIRST_LINE_SECONDS, LINE_SECONDS, Book, ProgressLines

PROGRAM = """
import os, signal, sys
import torch
from unbroken.training.torch import Training

stop, goal = map(int, sys.argv[1:])
model = torch.nn.Linear(1, 1)
training = Training(state={"model": model}, folder="run")
training.progress()
loader = training.loader(torch.utils.data.TensorDataset(torch.arange(10.0)[:, None]), batch_size=1)
step = 0
for epoch in training.epochs(goal):
    for (batch,) in training.batches(loader):
        step += 1
        training.log(loss=float(epoch))
        if step == stop:
            os.kill(os.getpid(), signal.SIGUSR1)
training.finish({})
"""


def train(base: Path, stop: int) -> tuple[int, list[str]]:
    """Runs the program; its exit code, and the lines of its progress."""
    (base / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(stop), "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, timeout=250)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("unbroken: step ")]


@pytest.mark.slow
def test_the_lines_of_a_log_begin_at_the_step_of_a_restart(tmp_path: Path) -> None:
    stopped, first = train(tmp_path, 7)
    finished, second = train(tmp_path, 0)

    assert (stopped, finished) == (85, 0)
    assert first[0] == "unbroken: step 0 of 20 (0%), epoch 0"
    assert re.fullmatch(r"unbroken: step 7 of 20 \(35%\), \S+ steps/s, \S+ s left, epoch 0, loss 0", first[-1])
    assert second[0].startswith("unbroken: step 7 of 20 (35%)")
    assert re.fullmatch(r"unbroken: step 20 of 20 \(100%\), \S+ steps/s, 0 s left, epoch 2, loss 1", second[-1])


@pytest.mark.parametrize(("rank", "told"), [(0, ["unbroken: step 0 of 9 (0%), epoch 0"]), (1, [])])
def test_of_several_ranks_the_first_one_tells(rank: int, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    book = Book(Guard(), None, Processes(rank, 2), {})
    book.print_progress(Course(goal=9, unit="steps"))

    book.show_steps()
    book.close(0)

    assert capsys.readouterr().out.splitlines() == told


def test_a_log_gets_a_line_soon_then_one_a_minute_and_one_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    second = [0]
    lines = ProgressLines(lambda: (second[0], f"step {second[0]}"), lambda: float(second[0]))
    for second[0] in range(200):
        lines.show()
    lines.close()
    lines.close()

    told = [int(line.split()[2]) for line in capsys.readouterr().out.splitlines()]
    assert told == [0, *(FIRST_LINE_SECONDS + LINE_SECONDS * number for number in range(4)), 199]
