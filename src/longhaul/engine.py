"""An engine: what knows how to start, stop and read one kind of program.

The base class keeps the environment contract (docs/contract.md), so an engine for a program that keeps it too has only
its command to say.  An engine for a program with habits of its own overrides what differs.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from longhaul.child import Child
from longhaul.contract import Desk, Found, loose_state, ready_states
from longhaul.progress import Progress, read_progress
from longhaul.run import Run
from longhaul.store import Checkpoint


@dataclass(frozen=True)
class Task:
    """One attempt at a segment, as the engine is given it."""

    run: Run
    segment: int
    origin: Checkpoint | None
    desk: Desk
    deadline_unix: float


class Engine(ABC):
    """How one kind of program is started, stopped and read."""

    name: str

    @abstractmethod
    def command(self, task: Task) -> list[str]:
        """The argument list that starts the program, or makes it go on from `task.origin`."""

    def environment(self, task: Task) -> dict[str, str]:
        """What the program is told by its environment."""
        resume = str(task.origin.folder.resolve()) if task.origin else ""
        goal = task.run.goal
        return {
            "LONGHAUL_RUN": task.run.name,
            "LONGHAUL_SEGMENT": str(task.segment),
            "LONGHAUL_RESUME": resume,
            "LONGHAUL_SAVE": str(task.desk.save.resolve()),
            "LONGHAUL_DEADLINE": f"{task.deadline_unix:.3f}",
            "LONGHAUL_STOP": str(task.desk.stop.resolve()),
            "LONGHAUL_PROGRESS": str(task.desk.progress.resolve()),
            "LONGHAUL_GOAL": "" if goal is None else f"{goal:.15g}",
            "LONGHAUL_GOAL_UNIT": str(task.run.settings.get("goal_unit", "")),
            "LONGHAUL_SAVE_SECONDS": f"{task.run.save_minutes * 60:g}",
            # Sums depend on the number of threads, and the log should be there while one waits for it.
            "OMP_NUM_THREADS": str(task.run.threads),
            "PYTHONUNBUFFERED": "1",
        }

    def states(self, task: Task) -> list[Found]:
        """Complete states that wait to become checkpoints, oldest first; asked again and again while it runs."""
        return ready_states(task.desk)

    def last_states(self, task: Task, has_left_well: bool) -> list[Found]:
        """The same once the program is gone; what it left loose counts only if it left well."""
        found = ready_states(task.desk)
        loose = loose_state(task.desk, task.desk.root / "loose") if has_left_well else None
        return [*found, loose] if loose else found

    def progress(self, task: Task) -> Progress | None:
        """How far the program says it is, now."""
        return read_progress(task.desk.progress)

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """The gentle way: the program saves and leaves by itself."""
        task.desk.stop.touch()

    def versions(self) -> Mapping[str, str]:
        """Versions of the program, as far as they are known without asking it."""
        return {}

    def finish(self, checkpoint: Checkpoint, final: Path) -> None:
        """Fills the new folder `final` with what the user came for: the checkpoint's `final/`, or all of its files."""
        source = checkpoint.folder / "final"
        if source.is_dir():
            shutil.copytree(source, final, dirs_exist_ok=True)
            return
        for name in checkpoint.passport.files:
            (final / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint.folder / name, final / name)
