"""Define an engine: it can start, stop and read one kind of program.

The base class keeps the environment contract (docs/contract.md), so an engine for a program that keeps it too has only
to give its command.  This is a whole one:

    from unbroken.engines.base import Engine, Task


    class Walk(Engine):
        name = "walk"

        def command(self, task: Task) -> list[str]:
            return ["python3", "walk.py", str(task.run.settings["steps"])]

with `schema.yaml` next to its module and an entry point (docs/engines/your-own.md).  An engine for a program that
differs overrides the methods in question.
"""

from __future__ import annotations

import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from unbroken.engines.exports import export_contract
from unbroken.engines.imports import ImportedFiles, ImportSource, import_contract
from unbroken.engines.starter import Starter
from unbroken.errors import Mistake
from unbroken.program.contract import FINAL, HANDOVER_FILE, AttemptFolder
from unbroken.program.handover import HandedOver, copied_states, loose_state, ready_states
from unbroken.program.process import Child, Streams
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import RunOutput
from unbroken.store.progress import Progress, read_progress
from unbroken.store.run import RunSpec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def _never() -> bool:
    return False


class When(Enum):
    """Name the moment at which an engine is asked for states."""

    WORKS = "works"  # several times a second
    LEFT = "left"  # the program has left by itself, as it should
    FAILED = "failed"  # it has ended in any other way
    KILLED = "killed"  # it was killed with its attempt, by whatever ended that; asked by the next attempt


@dataclass(frozen=True)
class Results:
    """Describe the results that `finish` leaves in `final/`.

    The run is finished only when the `files` are there, with these sizes in bytes where they are known.  `doubts` say
    why they may not be those of one uninterrupted run; `remarks` say how they lie, where that is not plain to see.
    """

    files: Mapping[str, int | None] = field(default_factory=dict)
    doubts: Sequence[str] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Task:
    """Describe one attempt at a segment to the engine."""

    run: RunSpec
    segment: int
    origin: Checkpoint | None
    attempt_folder: AttemptFolder
    deadline_unix: float
    stop_unix: float = math.inf  # when it will be asked, should it not have left by then
    is_warned: Callable[[], bool] = _never  # whether a signal has come that asks us, and maybe the program, to leave

    @property
    def run_folder(self) -> Path:
        """Return the run's own folder, in which `work` holds those of its attempts."""
        return self.attempt_folder.root.parents[1]


def settings_as(run: RunSpec, fields_of: type[S]) -> S:
    """Return the run's settings as an object of this dataclass, whose fields have the names of settings.

    The schema has checked them and filled in the defaults.
    """
    return fields_of(**{each.name: run.settings[each.name] for each in fields(fields_of)})


class Engine(ABC):
    """Define how one kind of program is started, stopped and read.  One object serves one attempt, or one question.

    `base` is the folder in which snakemake was started.  The file `schema.yaml` next to the module describes the
    settings.
    """

    name: str
    # False where the program puts its results to where the user wants them.
    fills_final = True
    # False where what is started is our own Python, which is not in the image of a run.
    fits_container = True
    # True where the program may be a Python training that logs to W&B or MLflow.
    may_log_to_trackers = False

    def __init__(self, base: Path = Path()) -> None:
        self.base = base

    # --- before anything is queued ---

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str | Mistake]]:
        """Yield each setting that does not fit the others, and what is wrong with it.

        The schema has checked each key alone.  A `Mistake` may say more than text: that a file is missing, which may
        come.
        """
        return iter(())

    # Globs of results that show how a run was cut: a rehearsal compares none of them, and its verdict names them.
    results_of_pieces: tuple[str, ...] = ()
    # True where a checkpoint can be gone on from only under the path where it was made.
    is_tied_to_its_folder = False

    def hears_a_wish(self, run: RunSpec) -> bool:
        """Return False if the program knows only its deadline, and cannot be asked to leave sooner."""
        return True

    def progress_evidence(self, run: RunSpec, checkpoint: Path) -> str:
        """Return the source of a checkpoint's progress, as a rehearsal prints it."""
        return f"the program itself says it ({HANDOVER_FILE})"

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        """Return the runs that `unbroken init` can create in `base`; `words` are the user's file or command line.

        If `is_named`, the user asked for this engine, and unrecognized words are accepted too.  Raise ConfigError in
        one line if something is missing.
        """
        return iter(())

    # The folder, in the run's own, of what is made once before its first segment; empty if nothing is.
    prepared = ""

    def prepare(self, run: RunSpec) -> bool:
        """Make what `prepared` names if it is missing; return False if nothing has to be made."""
        return False

    # --- import and export ---

    def import_files(self, run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
        """Fill the new folder `draft`, which becomes the run's first checkpoint, and say how far the files are.

        A folder `output` next to it becomes that of the run.  Nothing of the source is written, moved, or run as code.
        Raise ConfigError or CheckpointError with one line on what does not fit.
        """
        return import_contract(run, source, draft)

    def export(self, run: RunSpec, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Fill the new folder so that `resume.sh` in it resumes the program without unbroken; return lines about it.

        Raise ConfigError if that is not possible.
        """
        task = Task(run, checkpoint.passport.segment + 1, checkpoint, AttemptFolder(folder), math.inf)
        return export_contract(run, checkpoint, self.command(task), self.environment(task), folder)

    # --- an attempt ---

    @abstractmethod
    def command(self, task: Task) -> list[str]:
        """Return the argument list that starts the program, or resumes it from `task.origin`."""

    def environment(self, task: Task) -> dict[str, str]:
        """Return the environment variables that the program receives."""
        resume = str(task.origin.folder.resolve()) if task.origin else ""
        goal = task.run.goal
        return {
            "UNBROKEN_RUN": task.run.name,
            "UNBROKEN_SEGMENT": str(task.segment),
            "UNBROKEN_RESUME": resume,
            "UNBROKEN_SAVE": str(task.attempt_folder.save.resolve()),
            "UNBROKEN_DEADLINE": f"{task.deadline_unix:.3f}",
            "UNBROKEN_DEADLINE_FILE": str(task.attempt_folder.deadline.resolve()),
            "UNBROKEN_STOP": str(task.attempt_folder.stop.resolve()),
            "UNBROKEN_PROGRESS": str(task.attempt_folder.progress.resolve()),
            "UNBROKEN_LIVE": str(task.attempt_folder.live.resolve()),
            "UNBROKEN_VERDICT": str(task.attempt_folder.verdict.resolve()),
            "UNBROKEN_GOAL": "" if goal is None else f"{goal:.15g}",
            "UNBROKEN_GOAL_UNIT": str(task.run.settings.get("goal_unit", "")),
            "UNBROKEN_SAVE_SECONDS": f"{task.run.save_minutes * 60:g}",
            "UNBROKEN_MTBF_HOURS": "" if task.run.mtbf_hours is None else f"{task.run.mtbf_hours:.15g}",
            # Sums depend on the number of threads, and the log should be there while one waits for it.
            "OMP_NUM_THREADS": str(task.run.resources.threads),
            "PYTHONUNBUFFERED": "1",
        }

    def folder(self, task: Task) -> Path | None:
        """Return the program's working directory, or None for the folder in which snakemake was started."""
        return None

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        """Open the program's input and outputs.  None sends both outputs into the log and gives no input."""
        return nullcontext()

    def remarks(self, task: Task) -> list[str]:
        """Return what the user should know about this attempt before the program starts, one line each."""
        return []

    def exit_meaning(self, task: Task, code: int) -> int:
        """Translate the program's own exit code into one of the contract: 0, 85, or any other."""
        return code

    def leaving_since(self, task: Task) -> float | None:
        """Return the monotonic time at which a program that watches the deadline itself began to leave, or None."""
        return None

    def states(self, task: Task, when: When) -> list[HandedOver]:
        """Return complete states that wait to become checkpoints, oldest first.

        Once the program is gone, files that it left loose count only if it has `LEFT`.  Of a killed attempt `task` is
        that attempt's; its program may still run on a node that is lost to us, so its files are copied, never moved.
        """
        if when is When.KILLED:
            return [found for found in copied_states(task.attempt_folder) if found.handover is not None]
        found = ready_states(task.attempt_folder)
        loose = loose_state(task.attempt_folder) if when is When.LEFT else None
        return [*found, loose] if loose else found

    def why_nothing_newer(self, task: Task) -> str:
        """Return why the program left no newer checkpoint, for the line of a failed attempt; "" if unknown."""
        return ""

    def reclaim(self, task: Task, *, is_program_gone: bool) -> None:
        """Take out of the attempt folder of a killed attempt what outlives it, before that folder is removed.

        `is_program_gone` is False where its program may still live, on a node that is lost to us.
        """
        return

    # The name of the program's folder in an attempt's, where `outputs` lie while it works.
    output_folder = ""

    def outputs(self, checkpoint: Checkpoint) -> Sequence[RunOutput]:
        """Return the files that belong to a checkpoint and lie outside of it, in the run's folder.

        They are copied to the run's `copies`, and put back from there, with the checkpoint.
        """
        return ()

    def progress(self, task: Task) -> Progress | None:
        """Return the program's current progress as it reports it, or None."""
        return read_progress(task.attempt_folder.progress)

    def ask_to_stop(self, task: Task, child: Child) -> None:
        """Ask the program to save and leave by itself."""
        task.attempt_folder.stop.touch()

    def versions(self) -> Mapping[str, str]:
        """Return the program's versions, as far as they are known without starting it."""
        return {}

    def finish(self, run: RunSpec, checkpoint: Checkpoint, final: Path) -> None:
        """Fill the new folder `final` with the results: the checkpoint's `final/`, or all of its files."""
        source = checkpoint.folder / FINAL
        if source.is_dir():
            shutil.copytree(source, final, dirs_exist_ok=True)
            return
        for name in checkpoint.passport.files:
            (final / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint.folder / name, final / name)

    def results(self, run: RunSpec, checkpoint: Checkpoint) -> Results:
        """Return what `finish` makes of a checkpoint; of an engine with a `finish` of its own nothing is known."""
        if type(self).finish is not Engine.finish:
            return Results()
        sizes = {name: entry.size_bytes for name, entry in checkpoint.passport.files.items()}
        own = {name.removeprefix(f"{FINAL}/"): size for name, size in sizes.items() if name.startswith(f"{FINAL}/")}
        return Results(own if (checkpoint.folder / FINAL).is_dir() else sizes)
