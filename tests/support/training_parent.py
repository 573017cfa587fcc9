"""A stand-in for unbroken's own process, for tests of training programs without a workflow around them."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.prefork import TORCH, Started, start_script


@dataclass
class TrainingParent:
    """A stand-in for unbroken's own process: tells, takes what is handed over, starts again from it."""

    root: Path
    program: str
    arguments: list[str] = field(default_factory=list)
    ranks: int = 0  # 0: the program by itself
    launcher_words: tuple[str, ...] = ()
    told: dict[str, str] = field(default_factory=dict)  # by the environment, besides the contract
    save_seconds: float = 1000.0
    deadline_seconds: float = 1000.0
    codes: list[int] = field(default_factory=list)
    handovers: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root.mkdir()
        (self.root / "program.py").write_text(self.program)

    @property
    def latest(self) -> Path | None:
        names = sorted(self.root.glob("checkpoint-*"))
        return names[-1] if names else None

    @property
    def attempt_folder(self) -> Path:
        return self.root / f"desk-{len(self.codes)}"

    def run(self, kill_after: float | None = None) -> int:
        """One attempt; returns its exit code.  `kill_after` is in seconds from its first checkpoint."""
        child, began, first = self.start(), time.monotonic(), None
        with child:
            while child.poll() is None:
                if self.take() and first is None:
                    first = time.monotonic()
                is_stuck = time.monotonic() - began > 280
                if is_stuck or (kill_after is not None and first and time.monotonic() - first > kill_after):
                    with suppress(ProcessLookupError):  # killed in the round before, and not heard of yet
                        os.killpg(child.pid, signal.SIGKILL)
                assert not is_stuck, "the program hangs"
                time.sleep(0.005)
        return self.take_last(child)

    def take_last(self, child: Started) -> int:
        code = child.wait(200)
        self.take()
        self.codes.append(code)
        return code

    @property
    def environment(self) -> dict[str, str]:
        """What the next attempt is told."""
        return {
            "UNBROKEN_RUN": "demo",
            "UNBROKEN_SEGMENT": "1",
            "UNBROKEN_RESUME": str(self.latest or ""),
            "UNBROKEN_SAVE": str(self.attempt_folder / "save"),
            "UNBROKEN_DEADLINE": str(time.time() + self.deadline_seconds),
            "UNBROKEN_STOP": str(self.attempt_folder / "stop"),
            "UNBROKEN_PROGRESS": str(self.attempt_folder / "progress.json"),
            "UNBROKEN_GOAL": "3",
            "UNBROKEN_SAVE_SECONDS": str(self.save_seconds),
            "OMP_NUM_THREADS": "1",
            **self.told,
        }

    def start(self) -> Started:
        (self.attempt_folder / "save").mkdir(parents=True)
        launcher = ["-m", "unbroken.training.launch.ranks", "--ranks", str(self.ranks)]
        launcher += [*self.launcher_words, sys.executable]
        command = [sys.executable, *(launcher if self.ranks else []), str(self.root / "program.py"), *self.arguments]
        with (self.root / "log").open("ab") as log:
            return start_script(command, TORCH, Path.cwd(), {**os.environ, **self.environment}, log)

    def take(self) -> int:
        """Takes what was handed over, as unbroken does: in name order, by a rename."""
        found = sorted((self.attempt_folder / "save").glob("*.ready"))
        for folder in found:
            self.handovers.append(json.loads((folder / "progress.json").read_text()))
            (folder / "progress.json").unlink()
            folder.rename(self.root / f"checkpoint-{len(self.handovers):04d}")
        return len(found)

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    def result(self) -> dict[str, bytes]:
        """Every byte of the last checkpoint."""
        assert self.latest is not None, self.log
        return {
            str(path.relative_to(self.latest)): path.read_bytes()
            for path in sorted(self.latest.rglob("*"))
            if path.is_file()
        }

    def run_to_the_end(self) -> None:
        while self.run() == 85:
            assert len(self.codes) < 40
        assert self.codes[-1] == 0, self.log
