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
├── ForeignFolderError  something else stands where a folder of the run was: put the folder back, start again
├── StorageError        the disk is full or not writable: free room, start again
│   └── OutageError         the disk or file server does not answer as it should, which may pass
└── SegmentError        the engine failed: read its log
    ├── InterruptedSegment  stopped early but saved: start again, the same segment goes on
    │   └── PartialSegment      Slurm gave its job less time than a segment: the same one goes on in the next job
    ├── ResultsError        all is computed, and final/ could not be made of it: fix it, the next start makes it alone
    ├── CancelledSegment    somebody cancelled the Slurm job: start again when you want it to go on
    ├── DivergedError       the computation went wrong (NaN, out of limits): fix it, no attempt is made before
    └── StalledError        the engine made no progress, again and again
"""

from __future__ import annotations


class UnbrokenError(Exception):
    """Anything that unbroken says to its user; the text is complete without a traceback.

    `log` is where to read on, `todo` what to do before a new start: both stand at the end of the line, and apart for
    whoever adds more.
    """

    def __init__(self, text: str = "", *, log: object = "", todo: str = "") -> None:
        more = [f"read {log}"] * bool(log) + [f"{todo}, then start again"] * bool(todo)
        super().__init__("; ".join([text, *more]))
        self.text, self.log, self.todo = text, str(log), todo


class ConfigError(UnbrokenError):
    """Mistakes in the configuration, all of them, one line each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """As one rank of a training hands it to the others."""
        return type(self), (self.mistakes,)


class AbsentFileError(ConfigError):
    """Nothing is wrong with the configuration but that files are missing that it names."""


class IdentityError(UnbrokenError):
    """What defines the run has changed since its first checkpoint."""


class ChangedEnvironmentError(IdentityError):
    """What the program of a strict run is started in is not what its last checkpoint was made in."""


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
    """Something else stands in the place of a folder of ours; nothing there was touched."""


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
    """The segment was told to leave before its time; what it had done is saved."""


class PartialSegment(InterruptedSegment):
    """The segment used all the time that Slurm gave its job, which was less than a whole segment; no failure."""


class ResultsError(SegmentError):
    """The goal is reached and its checkpoint is safe, but the results could not be made of it."""


class CancelledSegment(SegmentError):
    """Somebody cancelled the segment's Slurm job."""


class DivergedError(SegmentError):
    """What is computed has gone wrong (not a number, exploding); trying again would bring the same."""


class StalledError(SegmentError):
    """Several attempts in a row brought the run no progress."""
