"""A folder in which `unbroken exec` runs a small program that saves by itself, as somebody else would write it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.toyrun import PYTHONPATH, until

# Counts to its goal and saves every number.  It rests at each number for which there is a file `rest-at-N`, and saves
# and leaves with 0 at a TERM, as well-behaved programs do.
PROGRAM = """
import json, os, signal, sys, time

goal, out = int(sys.argv[1]), sys.argv[2]
state, told = {"n": 0, "sum": 0}, []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))

def save():
    os.makedirs("ckpt", exist_ok=True)
    with open("ckpt/state.json", "w") as file:
        json.dump(state, file)

if os.path.exists("ckpt/state.json"):
    state = json.load(open("ckpt/state.json"))
with open("starts", "a") as starts:
    starts.write(f"{state['n']}\\n")
while state["n"] < goal and not told:
    state["n"] += 1
    state["sum"] += state["n"] ** 2
    print("at", state["n"], flush=True)
    save()
    while os.path.exists(f"rest-at-{state['n']}") and not told:
        time.sleep(0.02)
if told:
    save()
    print("saved and left", file=sys.stderr, flush=True)
    sys.exit(0)
with open(out, "w") as file:
    file.write(f"{state['sum']}\\n")
"""

DYING = """
import runpy
from support.killed_publishing import dies_while_publishing

dies_while_publishing()
runpy.run_module("unbroken", run_name="__main__")
"""


class Called:
    """A folder with the program, and what calls it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        (folder / "program.py").write_text(PROGRAM)

    def words(self, *options: str, goal: int = 20, program: tuple[str, ...] = (), name: str = "count") -> list[str]:
        """The command line; the program of this folder if no other is named."""
        program = program or (sys.executable, "program.py", str(goal), "sum.txt")
        return [sys.executable, "-m", "unbroken", "exec", "--name", name, *options, "--", *program]

    def call(
        self, *options: str, environment: dict[str, str] | None = None, **more
    ) -> subprocess.CompletedProcess[str]:
        """To its end."""
        words, told = self.words(*options, **more), {**os.environ, **(environment or {})}
        return subprocess.run(
            words, cwd=self.folder, env=told, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600
        )

    def killed_while_publishing(self, *options: str) -> None:
        """The call dies when its next checkpoint only has to be renamed into the store."""
        words = [sys.executable, "-c", DYING, *self.words(*options)[3:]]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    def start(self, *options: str, **more) -> subprocess.Popen[str]:
        """In the background."""
        words = self.words(*options, **more)
        process = subprocess.Popen(words, cwd=self.folder, text=True, stdout=-1, stderr=-1, stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def rest_at(self, number: int) -> None:
        (self.folder / f"rest-at-{number}").touch()

    def go_on(self) -> None:
        for path in self.folder.glob("rest-at-*"):
            path.unlink()

    def wait_for_state(self, number: int) -> None:
        """Until the program has saved that number where it was called."""
        self.wait_until(lambda: self.state().get("n") == number)

    def wait_for_checkpoint(self, number: int, name: str = "count") -> None:
        """Until a checkpoint with that number is published."""
        self.wait_until(lambda: any(kept.get("n") == number for kept in self.kept(name)))

    def wait_until(self, is_so, seconds: float = 300.0) -> None:
        until(is_so, seconds)

    def state(self) -> dict[str, int]:
        return _json(self.folder / "ckpt/state.json")

    def kept(self, name: str = "count") -> list[dict[str, int]]:
        """The states in the checkpoints, oldest first."""
        found = sorted(self.store(name).glob("checkpoints/0*/kept/ckpt/state.json"))
        return [_json(path) for path in found]

    def store(self, name: str = "count") -> Path:
        return self.folder / ".unbroken" / name

    def starts(self) -> list[int]:
        """From which number the program went on, each time that it was started."""
        path = self.folder / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def result(self) -> str:
        return (self.folder / "sum.txt").read_text()

    def replaced(self, name: str = "count") -> list[str]:
        """The names of what had to make room."""
        root = self.store(name) / "replaced"
        return sorted(path.name for path in root.rglob("*") if path.is_file())


def _json(path: Path) -> dict[str, int]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def expected(goal: int = 20) -> str:
    return f"{sum(number**2 for number in range(goal + 1))}\n"


KEEP = ("--keep", "ckpt/*", "--save-minutes", "0", "--outputs", "sum.txt")
