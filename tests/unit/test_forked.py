"""A function in a child process: it ends, and answers signals, as a program of its own would."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.toyrun import until

from unbroken.job.segment_process import Forked

pytestmark = pytest.mark.process


def in_child(work: Callable[[], int], **environment: str) -> Forked:
    return Forked(work, environment, [signal.SIGTERM, signal.SIGINT])


def text_of(child: Forked) -> str:
    with child.stderr as stderr:
        return stderr.read().decode()


def fail() -> int:
    raise ValueError("no such file")


def interrupt() -> int:
    signal.raise_signal(signal.SIGINT)
    return 0


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (lambda: 7, 7),
        (lambda: sys.exit(), 0),
        (lambda: sys.exit(85), 85),
        (lambda: sys.exit("no disk"), 1),
        (fail, 1),
        (interrupt, 1),
        (lambda: os.kill(os.getpid(), signal.SIGTERM) or 0, -signal.SIGTERM),
        (lambda: os.kill(os.getpid(), signal.SIGKILL) or 0, -signal.SIGKILL),
    ],
    ids=["returns", "leaves", "leaves with a code", "leaves with a line", "fails", "interrupted", "TERM", "KILL"],
)
def test_it_ends_as_a_program_does(work: Callable[[], int], code: int) -> None:
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        child = in_child(work)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert child.wait(20.0) == code
    child.stderr.close()


@pytest.mark.parametrize(
    ("work", "said"), [("sys.exit('no disk')", "no disk"), ("int('a')", "ValueError: invalid literal")]
)
def test_it_prints_what_a_program_prints(work: str, said: str) -> None:
    code = f"import sys; from unbroken.job.segment_process import Forked; child = Forked(lambda: {work}, {{}}, []); "
    tail = "child.wait(20); print(child.stderr.read().decode().splitlines()[-1])"

    found = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=60)

    assert found.stdout.startswith(said) and found.stderr == ""


def test_it_finds_its_variables_and_nothing_to_read(tmp_path: Path) -> None:
    found = tmp_path / "found"

    def work() -> int:
        found.write_text(os.environ["RUN"] + os.read(0, 10).decode())
        return subprocess.run(["sh", "-c", f'printf " $RUN" >> {found}']).returncode

    child = in_child(work, RUN="demo")

    assert (child.wait(20.0), text_of(child)) == (0, "")
    assert found.read_text() == "demo demo"
    assert "RUN" not in os.environ


def test_one_that_still_works_can_be_looked_at_again() -> None:
    child = in_child(lambda: time.sleep(60) or 0)

    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    os.kill(child.pid, signal.SIGTERM)

    assert child.wait(20.0) == -signal.SIGTERM
    assert (child.wait(0.0), text_of(child)) == (-signal.SIGTERM, "")


def test_a_process_that_it_leaves_behind_is_not_waited_for() -> None:
    child = in_child(lambda: subprocess.Popen(["sleep", "30"]).pid * 0)

    assert child.wait(20.0) == 0
    child.stderr.close()


def test_it_ends_its_work_if_its_parent_is_killed(tmp_path: Path) -> None:
    """What it prints then goes into a pipe that nobody reads: it is told so, and does not wait for room in it."""
    code = """
import contextlib, os, pathlib, signal, sys, time
from unbroken.job.segment_process import Forked

def work():
    while os.getppid() == PARENT:
        time.sleep(0.01)
    with contextlib.suppress(BrokenPipeError):
        os.write(2, b"." * 200_000)
    pathlib.Path("saved").write_text("all of it")
    return 0

PARENT = os.getpid()
Forked(work, {}, [signal.SIGTERM])
os.kill(PARENT, signal.SIGKILL)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60)

    assert found.returncode == -signal.SIGKILL
    until(lambda: (tmp_path / "saved").exists() and (tmp_path / "saved").read_text() == "all of it")
