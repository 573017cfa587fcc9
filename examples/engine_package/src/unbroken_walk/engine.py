"""The engine: how the walk is started, asked to stop, and read."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines import (
    EXIT_FINISHED,
    EXIT_PAUSED,
    Child,
    Engine,
    HandedOver,
    Handover,
    Progress,
    RunSpec,
    Task,
    When,
    settings_as,
)

STATE = "state.json"


@dataclass(frozen=True)
class Settings:
    """Hold the settings that schema.yaml describes."""

    goal: int
    seed: int
    pause: float


class WalkEngine(Engine):
    """A walk in a folder of its own for each attempt; its `state.json` is the checkpoint."""

    name = "walk"

    def __init__(self, base: Path = Path()) -> None:
        super().__init__(base)
        self._saved_at = time.monotonic()
        self._drafts = 0

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str]]:
        """Yield what no schema of a single key can say."""
        if run.settings["seed"] == run.settings["goal"]:
            yield "seed", "is the goal, which is most likely a slip; allowed: any other number"

    def folder(self, task: Task) -> Path:
        return task.attempt_folder.root / "walk"

    def command(self, task: Task) -> list[str]:
        self.folder(task).mkdir(exist_ok=True)
        if task.origin:
            shutil.copyfile(task.origin.folder / STATE, self.folder(task) / STATE)
        walk = settings_as(task.run, Settings)
        return [sys.executable, "-m", "unbroken_walk.walk", str(walk.goal), str(walk.seed), str(walk.pause)]

    def ask_to_stop(self, task: Task, child: Child) -> None:
        child.terminate()

    def exit_meaning(self, task: Task, code: int) -> int:
        """Tell the two apart: it ends with 0 when it was asked to stop, and at its end."""
        progress = self.progress(task)
        is_there = progress is not None and progress.done >= (progress.goal or 0)
        return code if code else EXIT_FINISHED if is_there else EXIT_PAUSED

    def progress(self, task: Task) -> Progress | None:
        try:
            state = json.loads((self.folder(task) / STATE).read_text())
        except FileNotFoundError:
            return None
        return Progress(state["step"], task.run.goal, "steps", {"place": state["place"]})

    def states(self, task: Task, when: When) -> list[HandedOver]:
        """Copy the state as often as the run's `save_minutes` says, and when the walk is gone.

        What a killed attempt left is as good: the walk replaces its state by a rename.
        """
        if when is When.WORKS and time.monotonic() - self._saved_at < task.run.save_minutes * 60:
            return []
        self._saved_at = time.monotonic()
        return self._copied(task)

    def _copied(self, task: Task) -> list[HandedOver]:
        progress = self.progress(task)
        if progress is None:
            return []
        self._drafts += 1
        draft = task.attempt_folder.root / f"state-{self._drafts}"
        draft.mkdir()
        shutil.copyfile(self.folder(task) / STATE, draft / STATE)
        # Read again: the walk may have gone on between the two.
        step = json.loads((draft / STATE).read_text())["step"]
        return [HandedOver(draft, Handover(Progress(step, progress.goal, "steps", progress.metrics)))]
