"""The exceptions of unbroken, split by what the reader can do about them.

UnbrokenError
├── ConfigError         repair the config (or the command), start again; nothing was queued
│   └── AbsentFileError     a file that the config names is not there: on this node, or at this moment
├── IdentityError       the run is no longer the same computation: new name, or accept/restart
│   └── ChangedEnvironmentError  `environment: strict`, and what the program is started in has changed
├── CheckpointError     a checkpoint cannot be used
│   └── NoCheckpointError   none is left where one must be
├── FormatError         another unbroken wrote a file of the run: install that one; nothing is changed
├── LeaseError          another job writes this run: wait, or let it finish
│   └── FencedError         this job lost the run to another one and must not write any more
├── ForeignFolderError  something else is where a folder of the run was: put the folder back, start again
├── StorageError        the disk is full or not writable: free space, start again
│   └── OutageError         the disk or file server does not answer as it should, which may pass
└── SegmentError        the engine failed: read its log
    ├── InterruptedSegment  stopped early but saved: start again, the same segment resumes
    │   └── PartialSegment      Slurm gave its job less time than a segment: the same one resumes in the next job
    ├── ResultsError        all is computed, and final/ could not be made of it: fix it, the next start makes it alone
    ├── CancelledSegment    the Slurm job was canceled: start again when you want it to resume
    ├── DivergedError       the computation went wrong (NaN, out of limits): fix it, no attempt is made before
    └── StalledError        the engine made no progress, again and again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


class UnbrokenError(Exception):
    """Anything that unbroken says to its user; the text is complete without a traceback.

    `run` is the run that it is about, `log` where to read on, `todo` what to do before a new start.  `line` is all of
    that without the run, for callers that name it themselves.
    """

    def __init__(self, text: str = "", *, run: str = "", log: object = "", todo: str = "") -> None:
        more = [f"read {log}"] * bool(log) + [f"{todo}, then start again"] * bool(todo)
        self.run, self.text, self.log, self.todo = run, text, str(log), todo
        self.line = "; ".join([text, *more])
        super().__init__(f"runs.{run}: {self.line}" if run else self.line)


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a configuration; its line is `where: found, allowed: ...; todo`."""

    found: str
    allowed: str = ""
    todo: str = ""
    where: str = ""
    # True if a file is missing that the configuration names: on this node, or at this moment.
    is_absent: bool = False

    def at(self, where: str) -> Mistake:
        """Return the mistake with the place where it stands."""
        return replace(self, where=where)

    def __str__(self) -> str:
        """Return the line of the error."""
        allowed = f", allowed: {self.allowed}" if self.allowed else ""
        todo = f"; {self.todo}" if self.todo else ""
        return f"{self.where}: " * bool(self.where) + f"{self.found}{allowed}{todo}"


class ConfigError(UnbrokenError):
    """Mistakes in the configuration, all of them, one line each."""

    def __init__(self, mistakes: Sequence[str | Mistake]) -> None:
        self.mistakes = [str(mistake) for mistake in mistakes]
        super().__init__("\n".join(self.mistakes))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Return what pickles it, so that one rank of a training can send it to the others."""
        return type(self), (self.mistakes,)


class AbsentFileError(ConfigError):
    """Nothing is wrong with the configuration but that files are missing that it names."""


def config_error(mistakes: Sequence[Mistake]) -> ConfigError:
    """Return the error for mistakes: AbsentFileError if each of them is a missing file."""
    is_absent = all(mistake.is_absent for mistake in mistakes)
    return AbsentFileError(mistakes) if is_absent else ConfigError(mistakes)


class IdentityError(UnbrokenError):
    """Report that the identity of the run has changed since its first checkpoint."""


class ChangedEnvironmentError(IdentityError):
    """Report that the environment of a strict run differs from that of its last checkpoint."""


class CheckpointError(UnbrokenError):
    """A checkpoint is torn, altered, or belongs to something else."""


class NoCheckpointError(CheckpointError):
    """No good checkpoint is left although the run has already worked."""


class FormatError(UnbrokenError):
    """A file of a format that this unbroken does not know; it says nothing against the checkpoint, or the run."""


class LeaseError(UnbrokenError):
    """Another live job holds the run."""


class FencedError(LeaseError):
    """The run was taken over by another job while this one slept."""


class ForeignFolderError(UnbrokenError):
    """Report that something else is in the place of a folder of ours; nothing there was touched."""


class StorageError(UnbrokenError):
    """A file could not be written; what was there before is untouched."""


class OutageError(StorageError):
    """A file cannot be read now, although it may be as good as ever.

    `since` is when (time.monotonic()) it was first found so, where it has been waited for already.
    """

    since: float | None = None


class SegmentError(UnbrokenError):
    """The engine neither finished nor paused well."""


class InterruptedSegment(SegmentError):
    """Report that the segment had to stop before its time; its work is saved."""


class PartialSegment(InterruptedSegment):
    """The segment used all the time that Slurm gave its job, which was less than a whole segment; no failure."""


class ResultsError(SegmentError):
    """The goal is reached and its checkpoint is safe, but the results could not be made of it."""


class CancelledSegment(SegmentError):
    """Report that the segment's Slurm job was canceled."""


class DivergedError(SegmentError):
    """Report that the computation diverged (not a number, exploding); another attempt would do the same."""


class StalledError(SegmentError):
    """Several attempts in a row brought the run no progress."""
