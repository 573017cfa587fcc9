"""Pass a run's settings and an attempt's folder to the supervisor, and its answers back (docs/contract.md)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.dmtcp.programs import Programs
from unbroken.program.contract import HANDOVER_FILE, READY, AttemptFolder
from unbroken.store.progress import Handover
from unbroken.store.run import RunSpec

LIVE = "live"
# Files in the attempt folder: when the supervisor began to leave (for the learned margin), and why it failed.
LEAVING, WHY = "leaving", "why"
# As many checkpoints as may lie there unpublished.
_WAITING = 2


def words_of(run: RunSpec, name: str) -> list[str]:
    """Return a setting that is a list, as text."""
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []


def supervisor_command(run: RunSpec, base: Path, root: Path) -> list[str]:
    """Return the command that starts the supervisor of a run whose program lives below `root`.

    It uses the Python that runs unbroken, with `-I`, because a module's PYTHONPATH is for the program alone.
    """
    settings = run.settings
    words = [sys.executable, "-I", "-m", "unbroken.engines.dmtcp.supervisor", "--live", str(root / LIVE)]
    words += [word for name in words_of(run, "inputs") for word in ("--input", str(base / name))]
    words += ["--programs", str(base / str(settings["dmtcp"]))] if settings["dmtcp"] else []
    words += [f"--option={word}" for word in words_of(run, "options")]
    seconds = settings["restart_seconds"]
    words += [] if seconds is None else ["--restart-seconds", f"{seconds}"]
    words += ["--compress"] if settings["compress"] is True else []
    words += ["--machine-may-differ"] if settings["machine_may_differ"] is True else []
    return [*words, "--", *words_of(run, "command")]


class Options(argparse.Namespace):
    """Hold one run's settings, as the supervisor needs them."""

    live: Path
    input: list[Path]
    programs: Programs
    option: list[str]
    restart_seconds: float | None
    compress: bool
    machine_may_differ: bool
    command: list[str]


def read_options(arguments: Sequence[str]) -> Options:
    """Read the supervisor's command line; paths become absolute, because the program works in another folder."""
    parser = argparse.ArgumentParser(prog="unbroken.engines.dmtcp.supervisor")
    parser.add_argument("--live", type=_absolute, required=True)
    parser.add_argument("--input", type=_absolute, action="append", default=[])
    parser.add_argument("--programs", type=lambda name: Programs(str(_absolute(name))), default=Programs())
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--restart-seconds", type=float)
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--machine-may-differ", action="store_true")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments, Options())


def _absolute(name: str) -> Path:
    return Path(name).absolute()


@dataclass(frozen=True)
class Told:
    """Hold what unbroken passes in the environment: a checkpoint to resume from, the attempt's folder, the interval."""

    resume: Path | None
    attempt: AttemptFolder
    save_seconds: float

    @property
    def draft(self) -> Path:
        """Return the folder of a checkpoint that is being made; no other process reads it."""
        return self.attempt.save / "draft"

    def left_seconds(self) -> float:
        """Return the seconds to the current deadline."""
        return float(self.attempt.deadline.read_text()) - time.time()

    def may_save(self) -> bool:
        """Return False while unbroken has not published the earlier checkpoints."""
        return sum(path.name.endswith(READY) for path in self.attempt.save.iterdir()) < _WAITING

    def hand_over(self, handover: Handover, number: int) -> None:
        """Make the draft the supervisor's checkpoint of that number."""
        (self.draft / HANDOVER_FILE).write_text(json.dumps(handover.to_json()))
        os.rename(self.draft, self.attempt.save / f"{number:06d}{READY}")

    def say_leaving(self) -> None:
        """Record that the supervisor begins its last save."""
        (self.attempt.root / LEAVING).write_text(f"{time.monotonic()}\n")

    def say_why(self, line: str) -> None:
        """Write what failed, in one line for the user."""
        (self.attempt.root / WHY).write_text(f"{line}\n")


def told_by(environment: Mapping[str, str]) -> Told:
    """Read the environment of a program that unbroken started."""
    resume = environment["UNBROKEN_RESUME"]
    attempt = AttemptFolder(Path(environment["UNBROKEN_SAVE"]).parent)
    return Told(Path(resume) if resume else None, attempt, float(environment["UNBROKEN_SAVE_SECONDS"]))
