"""Makes checkpoints of an attempt: while its program runs, when that is gone, and after it was killed."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.base import Task
from unbroken.engines.files.databases import is_beside
from unbroken.engines.files.holes import MissingRecordsError
from unbroken.engines.files.observed import ObservedFiles
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import Stamp, glob_pattern, may_hold, stamp_of
from unbroken.engines.files.tables import Outputs, ends_at
from unbroken.engines.files.tracker import OutputTracker
from unbroken.program.contract import HandedOver
from unbroken.system import fs

# What no program means as a result.
_NO_OUTPUT = re.compile(r"(?:.*/)?(?:core(?:\.\d+)?|__pycache__/.*|\.cache/.*)")


class Supervisor(ABC):
    """What of an attempt becomes checkpoints; its outputs are kept if the folder is the run's own."""

    def __init__(self, task: Task, program: Program, folder: Path) -> None:
        self.task, self.program, self.folder = task, program, folder
        self.last = task.origin.passport.progress.done if task.origin else None
        self.outputs = Outputs(
            program.outputs, folder, self.last, ends_at(task.origin), with_gaps=program.outputs_with_gaps
        )
        self.kinds = FileKinds(program)
        self.stop_asked_unix: float | None = None
        self.has_outputs = False
        self.observed = ObservedFiles(
            self.observed_root,
            task.attempt_folder.root,
            f"UNBROKEN_SAVE={task.attempt_folder.save.resolve()}",
            task.tell,
            self.is_state_event,
            self.is_watched,
            lambda name: self.kinds.is_output(name.removeprefix(self._prefix)),
        )
        self._tracker: OutputTracker | None = None
        if not program.folder:
            self._tracker = OutputTracker(
                folder,
                task.run_folder,
                task.segment,
                task.origin.passport.sequence if task.origin else 0,
                read_outputs(task.origin),
                self._is_output,
                self.kinds.is_finished_mark,
                task.tell,
                self.kinds.is_state,
                lambda name: self.observed.observer.is_rewritten(f"{self._prefix}{name}"),
                is_own=_is_own(task),
            )

    def _is_output(self, name: str) -> bool:
        """Return True for an output; a link in a folder that is an input is none."""
        is_input = self.kinds.is_below_input(name) and os.path.islink(self.folder / name)
        return not is_input and self.kinds.is_output(name)

    # --- observing ---

    def begin(self, restored: OutputList | None) -> None:
        """Begin to observe; the program starts after this.  `restored` are the outputs that were put back."""
        if self._tracker is None:
            self.observed.begin({})
            return
        if restored is not None:
            self._tracker.listed = restored
        self._tracker.begin()
        prefix = self._prefix
        lengths = {
            f"{prefix}{name}": stamp[1] for name in self._tracker.names() if (stamp := stamp_of(self.folder / name))
        }
        self.observed.begin(lengths)
        if self.observed.observer.is_blind:
            self.task.tell(f"{self.observed.observer.why_blind}; outputs that grow are compared by their times alone")

    @property
    def observed_root(self) -> Path:
        """The folder below which events are observed."""
        return self.folder

    def is_state_event(self, name: str) -> bool:
        """Return True for the name, below the observed folder, of a state."""
        return self.kinds.is_state(name)

    def is_watched(self, name: str) -> bool:
        """Return True for a folder in which events are observed: of a folder of the user's that holds states alone."""
        return not self.program.folder or any(may_hold(name, glob) for glob in self.program.files)

    @property
    def _prefix(self) -> str:
        """What stands before an output's name below the observed folder."""
        return "" if self.observed_root == self.folder else f"{self.folder.relative_to(self.observed_root)}/"

    def lengths_at(self, stamps: Mapping[str, Stamp]) -> tuple[Mapping[str, int] | None, str]:
        """Return the lengths of the outputs when these state files were complete; else which one is not known."""
        if self._tracker is None:
            return None, ""
        moment = self.observed.moment_of(stamps)
        if moment is not None and not moment.blurred:
            return moment.lengths, ""
        if name := self.observed.without_time(stamps):
            return None, name
        return self._lengths_by_time(max((stamp[2] for stamp in stamps.values()), default=0))

    def lengths_when(self, name: str) -> tuple[Mapping[str, int] | None, str]:
        """Return the lengths of the outputs when a state of that name was handed over; else which is not known."""
        if self._tracker is None:
            return None, ""
        self.observed.observer.settle()
        moment = self.observed.moment(name)
        if moment is None:
            return self._lengths_by_time(_changed_ns(self.observed_root / name))
        prefix = self._prefix
        lengths = {each.removeprefix(prefix): size for each, size in moment.lengths.items() if each.startswith(prefix)}
        return lengths, moment.blurred.removeprefix(prefix)

    def _lengths_by_time(self, mtime_ns: int) -> tuple[Mapping[str, int] | None, str]:
        """By the clock of the file system, which stands still for some milliseconds: an equal time says nothing."""
        lengths = {}
        for name in self._tracker.names() if self._tracker else ():
            stamp = stamp_of(self.folder / name)
            if stamp is None:
                continue
            if stamp[2] >= mtime_ns and not os.path.islink(self.folder / name):
                return None, name
            lengths[name] = stamp[1]
        return lengths, ""

    # --- making checkpoints ---

    @abstractmethod
    def while_running(self, is_urgent: bool = False) -> list[HandedOver]:
        """Return states that are complete, and whose outputs are; at once if it `is_urgent`, else when one is due."""

    @abstractmethod
    def at_end(self, has_left_well: bool, is_finished: bool) -> list[HandedOver]:
        """Return what counts now that the program is gone."""

    def salvage(self) -> list[HandedOver]:
        """Return what counts of an attempt that was killed; copied, because its program may live on a lost node."""
        return []

    def why_nothing_newer(self) -> str:
        """Return why what the program left is no newer checkpoint; empty if it is one, or nothing is known."""
        return ""

    def close(self) -> None:
        """Give back what is held open: the attempt is over."""
        self.observed.observer.close()

    def list_outputs(
        self,
        draft: Path,
        lengths: Mapping[str, int] | None,
        is_at_end: bool = False,
        is_finished: bool = False,
        has_saved_last: bool = False,
        doubts: Sequence[str] = (),
    ) -> None:
        """Write the list of outputs that belong to a state into its draft; UnsteadyOutputError if one changes."""
        if self._tracker is None:
            return
        was_open = {name for moment, _ in self.observed.known.values() for name in moment.opened}
        opened = [name for name in lengths or () if self.observed.observer.is_open(f"{self._prefix}{name}")]
        opened += [name for name in lengths or () if f"{self._prefix}{name}" in was_open]
        for doubt in doubts:
            self.task.tell(doubt)
            self._tracker.listed = self._tracker.listed.with_doubt(doubt)
        self._tracker.list_into(draft, lengths, opened, is_at_end, is_finished, has_saved_last)
        self.has_outputs = bool(self._tracker.listed.files)

    def hand_over_outputs(self, draft: Path, up_to: float, is_closed: bool, how: str = "") -> None:
        """Put the pieces of the tables into a draft; `how` is what says how far its restart files are."""
        try:
            self.outputs.hand_over(draft, up_to, is_closed)
        except MissingRecordsError as error:
            raise error.advised(self.task.run.name, how) from error


class FileKinds:
    """Says of each name in the program's folder what it is: state, output, or neither."""

    def __init__(self, program: Program) -> None:
        marker = program.saved_marker
        self._states = [glob_pattern(each) for each in program.files]
        self._dropped = [glob_pattern(each) for each in program.discard]
        self._finished = [glob_pattern(program.finished_file)] if program.finished_file else []
        self._others = {output.name for output in program.outputs}
        self._others |= {Path(name).name for name in (*program.inputs, *program.templates)}
        self._inputs = {Path(name).name for name in program.inputs}
        self._others |= set(program.put_back_as.values())
        self._others |= {program.stop_file} if program.stop_file else set()
        self._patterns = [glob_pattern(marker)] if marker else []

    def is_state(self, name: str) -> bool:
        """Return True for a restart file."""
        return _matches(self._states, name) and not is_beside(name, self.is_state)

    def is_output(self, name: str) -> bool:
        """Return True for a file that belongs to the result."""
        is_other = name in self._others or _matches(self._patterns, name) or fs.is_unique_name(Path(name).name)
        is_other = is_other or is_beside(name, self.is_state)
        return not (is_other or self.is_state(name) or self.is_dropped(name) or _NO_OUTPUT.fullmatch(name))

    def is_below_input(self, name: str) -> bool:
        """Return True for a file in a folder that is an input: a link is the input, a file is the program's."""
        return "/" in name and name.split("/")[0] in self._inputs

    def is_dropped(self, name: str) -> bool:
        """Return True for a file that the user does not want (`discard`)."""
        return _matches(self._dropped, name)

    def is_finished_mark(self, name: str) -> bool:
        """Return True for the file that says that the program is done."""
        return _matches(self._finished, name)


def _is_own(task: Task) -> bool:
    """Return True if the attempt has made the checkpoint itself, and did not resume from it: it was killed."""
    return task.origin is not None and task.attempt_folder.root.name == f"{task.origin.passport.token:06d}"


def _changed_ns(path: Path) -> int:
    stamp = stamp_of(path)
    return 0 if stamp is None else stamp[2]


def _matches(patterns: list[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
