"""How far a training is: a bar at a real terminal, whole lines in a file, from the step that a restart goes on from."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.training.core.guard import Guard
from unbroken.training.core.position import Course
from unbroken.training.core.process_group import Processes
from unbroken.training.core.progress_bar import FIRST_LINE_SECONDS, LINE_SECONDS, Lines, Standing
from unbroken.training.core.run_log import Book

PROGRAM = """
import os, signal, sys
import torch
from unbroken.training.torch import Training

stop, goal = map(int, sys.argv[1:])
model = torch.nn.Linear(1, 1)
training = Training(model=model, folder="run")
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


def train(base: Path, *words: object, terminal: bool = False) -> tuple[int, str]:
    """Runs the program; its exit code, and everything that it showed, at a terminal or in a file."""
    (base / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if not terminal:
        with (base / "log").open("w") as log:
            done = subprocess.run(command, cwd=base, env=environment, stdout=log, stderr=log, timeout=250)
        return done.returncode, (base / "log").read_text()
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    child = subprocess.Popen(command, cwd=base, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    seen = b""
    while piece := _read(ours):
        seen += piece
    os.close(ours)
    return child.wait(timeout=60), seen.decode()


def _read(terminal: int) -> bytes:
    """The next bytes; none when the program has closed its side."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO, on Linux
        return b""


@pytest.mark.slow
def test_a_bar_and_the_lines_of_a_log_begin_at_the_step_of_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("tqdm", reason="missing: tqdm (pip install unbroken[progress])")

    stopped, log = train(tmp_path, 7, 2)
    finished, bar = train(tmp_path, 0, 2, terminal=True)

    told = [line for line in log.splitlines() if line.startswith("unbroken: step ")]
    assert (stopped, finished) == (85, 0)
    assert "\r" not in log and "\x1b" not in log
    assert told[0] == "unbroken: step 0 of 20 (0%), epoch 0"
    assert re.fullmatch(r"unbroken: step 7 of 20 \(35%\), \S+ steps/s, \S+ s left, epoch 0, loss 0", told[-1])
    assert re.findall(r"\b(\d+)/20\b", bar)[0] == "7"
    assert "20/20" in bar and "epoch 1, loss 1" in bar and "unbroken: step" not in bar


@pytest.mark.parametrize(("rank", "told"), [(0, ["unbroken: step 0 of 9 (0%), epoch 0"]), (1, [])])
def test_of_several_ranks_the_first_one_tells(rank: int, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    book = Book(Guard(), None, Processes(rank, 2), {})
    book.has_bar = True

    book.show_steps(Course(goal=9, unit="steps"))
    book.close(0)

    assert capsys.readouterr().out.splitlines() == told


def test_a_log_gets_a_line_soon_then_one_a_minute_and_one_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    lines = Lines(Standing(100, None, 3, {}, None), lambda: clock[0])
    for second in range(1, 200):
        clock[0] = float(second)
        lines.show(Standing(100 + second, 3700, 3, {"loss": 0.12345}, 1.0))
    lines.close()
    lines.close()

    told = capsys.readouterr().out.splitlines()
    due = [FIRST_LINE_SECONDS + LINE_SECONDS * number for number in range(4)]
    assert told[0] == "unbroken: step 100, epoch 3"
    assert told[1] == "unbroken: step 110 of 3,700 (3%), 1 steps/s, 60 min left, epoch 3, loss 0.1235"
    assert [int(line.split()[2]) for line in told[1:]] == [*(100 + round(at) for at in due), 299]
