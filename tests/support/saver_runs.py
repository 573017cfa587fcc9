"""Runs of savers.py: whole, in pieces, and with kills, each attempt as a process of its own."""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.command_jobs import command_job
from support.prefork import Started, start_script
from support.toyrun import PYTHONPATH

from unbroken.engines.testing.kills import children_of, programs_of
from unbroken.store.history import EndKind

SAVERS = Path(__file__).with_name("savers.py")
ATTEMPT = Path(__file__).with_name("saver_attempt.py")
MODULES = ("unbroken.engines.command.engine", "unbroken.job.lifecycle", "unbroken.cli.main")
VICTIMS = ("all", "job", "program")
NUMBERS = r"^step (\d+)$"
# What names the state of each way; nothing says how it is saved.
FILES: Mapping[str, Mapping[str, object]] = {
    "saver": {"files": ["state.txt"], "progress_file": "state.txt", "progress_pattern": NUMBERS},
    "renamed": {"files": ["state.txt"]},
    "alternating": {"files": ["?.chk"]},
    "snapshots": {"files": ["state.txt"], "progress_file": "state.txt", "progress_pattern": NUMBERS},
    "appended": {"files": ["state.txt"]},
    "buffered": {"files": ["state.txt"], "progress_file": "state.txt", "progress_pattern": NUMBERS},
    "log": {"files": ["state.txt"], "progress_file": "state.txt", "progress_pattern": NUMBERS},
    "latest": {"files": ["save_{progress}/state.txt"]},
    "burst": {
        "files": ["coordinates.txt", "velocities.txt", "box.txt"],
        "progress_file": "coordinates.txt",
        "progress_pattern": NUMBERS,
    },
    "times": {"files": ["{progress}/U", "{progress}/p"]},
    "status": {"files": ["state.txt"]},
    "database": {"files": ["book.db"]},
    "logged": {"files": ["book.db"]},
}
SAVE_EACH_LOOK = {"save_minutes": 0.0005, "first_margin_seconds": 0.3}
# An attempt that has not advanced for so long is of no use to a test.
PATIENCE_SECONDS = 600.0


@dataclass
class SaverRun:
    """A run of one way, in a folder of its own."""

    base: Path
    way: str
    goal: int
    step_seconds: float = 0.02
    keys: Mapping[str, object] = field(default_factory=dict)
    segment: int = 1
    attempt: int = 0
    _began_with: str = ""  # the newest checkpoint when the program was started
    _vain: int = 0  # attempts in a row that ended before they were killed

    @property
    def hurry(self) -> Path:
        return self.base / "hurry"

    @property
    def settings(self) -> dict[str, object]:
        words = [sys.executable, "-I", "-S", str(SAVERS), self.way, str(self.goal), str(self.step_seconds)]
        own = {**FILES[self.way], "goal": self.goal} if "progress_file" in FILES[self.way] else FILES[self.way]
        return {"start": [*words, "{stop}", str(self.hurry)], "exit_paused": [3], **own}

    @property
    def root(self) -> Path:
        return command_job(self.base, self.settings).places.root

    def files(self) -> dict[str, bytes]:
        """The content of all files in `final`, our summary excepted; of a link, where it leads."""
        return files_below(self.root / "final", ("summary.json",))

    def start(self) -> Started:
        self.attempt += 1
        what = {"base": str(self.base), "settings": self.settings, "segment": self.segment, "attempt": self.attempt}
        around = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
        words = [
            sys.executable,
            str(ATTEMPT),
            json.dumps({**what, **SAVE_EACH_LOOK, "segment_minutes": 20, **self.keys}),
        ]
        with (self.base / "attempts.log").open("a") as log:
            return start_script(words, MODULES, self.base, {**around, "PYTHONPATH": PYTHONPATH}, log)

    def said(self) -> str:
        return (self.base / "attempts.log").read_text()

    def run_on(self) -> None:
        """Runs to the end."""
        for _ in range(100):
            if self._ended(self.start()):
                return
        raise AssertionError(self.said()[-3000:])

    def run_with_kills(self, kills: int, seed: str) -> Counter[str]:
        """Runs to the end; returns how often each victim was met."""
        dice, met, is_vain = random.Random(seed), Counter[str](), False
        while met.total() < kills:
            assert self._vain < 10, self.said()[-3000:]
            job, victim = self.start(), dice.choice(VICTIMS)
            self._vain += 1
            if self._advances(job, is_vain=is_vain):
                is_vain = self.newest() == self._began_with
                self._vain = 0
                time.sleep(dice.uniform(0, 0.5))
                met[victim] += _kill(victim, job)
            if self._ended(job):
                return met
        self.hurry.touch()
        self.run_on()
        return met

    def _ended(self, job: Started) -> bool:
        """True if the run is done; else the next segment, or attempt, follows."""
        code = job.wait(PATIENCE_SECONDS)
        outcome = {0: EndKind.FINISHED, 85: EndKind.PAUSED}.get(code)
        if outcome is EndKind.PAUSED:
            self.segment, self.attempt = self.segment + 1, 0
        return outcome is EndKind.FINISHED

    def _advances(self, job: Started, *, is_vain: bool) -> bool:
        """True once the program has saved in this attempt; False if that has ended before.

        Where the attempt before was killed before it had published anything, only once this one has: a run whose
        attempts do not come forward is ended.
        """
        give_up, seen = time.monotonic() + PATIENCE_SECONDS, 0.0
        while job.poll() is None and time.monotonic() < give_up:
            for program in programs_of(job.pid):
                if not seen:
                    seen, self._began_with = time.time(), self.newest()
                with suppress(OSError):
                    written = [path.stat().st_mtime for path in Path(f"/proc/{program}/cwd").rglob("*.*")]
                    if max(written, default=0.0) > seen + 0.15 and (not is_vain or self.newest() != self._began_with):
                        return True
            time.sleep(0.01)
        return False

    def newest(self) -> str:
        """The name of the newest checkpoint; empty if there is none."""
        folder = self.root / "checkpoints"
        return max(path.name for path in [folder / "0", *folder.glob("[0-9]*")])


def _kill(victim: str, job: Started) -> int:
    below = _descendants(job.pid)
    victims = {"all": [*below, job.pid], "job": [job.pid], "program": programs_of(job.pid)}[victim]
    met = 0
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            met = 1
    return met


def _descendants(pid: int) -> list[int]:
    return [each for child in children_of(pid) for each in (child, *_descendants(child))]


def files_below(folder: Path, without: Sequence[str] = ()) -> dict[str, bytes]:
    """The content of all files below a folder; of a link, where it leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(os.readlink(path))
        elif path.is_file() and name not in without:
            found[name] = path.read_bytes()
    return found
