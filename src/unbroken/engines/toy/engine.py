"""Count in a program of its own, which keeps the contract: the toy is the pattern for other engines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbroken.engines.base import Engine, Task, settings_as
from unbroken.engines.starter import Starter
from unbroken.engines.toy.starter import starters
from unbroken.store.run import RunSpec


@dataclass(frozen=True)
class ToySettings:
    """Hold the settings of schema.yaml."""

    goal: int
    seed: int
    step_seconds: float
    save_steps: int


class ToyEngine(Engine):
    """Run the toy, which keeps the environment contract: `unbroken.program.contract` reads what it leaves."""

    name = "toy"
    fits_container = False

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        return starters(is_named=is_named)

    def command(self, task: Task) -> list[str]:
        return counting_command(task.run)


def counting_command(run: RunSpec) -> list[str]:
    """Return the argument list of the counting program; it finds its last state by itself (UNBROKEN_RESUME)."""
    settings = settings_as(run, ToySettings)
    command = [sys.executable, "-m", "unbroken.engines.toy.program"]
    command += ["--goal", str(settings.goal), "--seed", str(settings.seed)]
    return [*command, "--step-seconds", str(settings.step_seconds), "--save-steps", str(settings.save_steps)]
