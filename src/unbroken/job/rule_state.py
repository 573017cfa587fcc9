"""Keep the state of the chain of a user's rule (`resources: segments=N` with `unbroken exec`, or a training, in it).

Its tasks run the rule's job until that ends well.  The run is known once the job has begun, by its note.  So each task
writes here what the next one, and a driver, need to know.  `.snakemake/unbroken/chains/<key>/state.json`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unbroken.store.driver_start import STATE, state_path
from unbroken.store.exec_note import ATTEMPTS_WITHOUT_PROGRESS, ExecNote
from unbroken.store.history import EndKind
from unbroken.store.layout import CHAINS, NOTES, RunFolder
from unbroken.store.run import RunSpec

# An empty file next to the state: the rule's job has ended well.
DONE = "done"


@dataclass(frozen=True)
class RuleState:
    """The newest note of a job of the chain, and the pauses of its run so far.

    `failures` are those in a row that were no run's, since the start of snakemake that `start` names.
    """

    note: ExecNote | None = None
    pauses: int = 0
    failures: int = 0
    start: str = field(default="", compare=False)

    @property
    def segment(self) -> int:
        """Return the segment that the next job is at."""
        if self.note is None:
            return 1
        return max(1, self.note.segment + (self.note.kind is EndKind.PAUSED))

    @property
    def store(self) -> str:
        """Return the folder of the run; empty if none has begun."""
        return self.note.store if self.note else ""

    def folder(self, key: str) -> RunFolder:
        """Return the map of the run's files; of a folder that does not exist as long as no run has begun."""
        if self.note is None:
            return RunFolder(key, Path(), NOTES / "no-run-yet")
        return RunFolder(self.note.name, Path(), Path(self.note.store))

    def of_start(self, start: str) -> RuleState:
        """Return the state for jobs of this start, which counts failures from 0 if it is a new one."""
        return self if self.start == start else RuleState(self.note, self.pauses, start=start)

    def write(self, key: str) -> None:
        """Write it in one step."""
        STATE.update(state_path(key), asdict(self))


def read_state(key: str) -> RuleState:
    """Return what was written last; nothing known yet if nothing was, or it is corrupt."""
    with suppress(ValueError, TypeError, KeyError):
        data = STATE.found(state_path(key))
        note = ExecNote.parse(data["note"]) if data["note"] else None
        return RuleState(note, int(data["pauses"]), int(data["failures"]), data["start"])
    return RuleState()


def run_of(key: str) -> RunSpec:
    """Return what the policy asks of the run of a chain; what its jobs ask for is what the rule says."""
    attempts = ATTEMPTS_WITHOUT_PROGRESS
    return RunSpec(key, "exec", segments=0, segment_minutes=0, settings={}, attempts_without_progress=attempts)


def is_done(key: str) -> bool:
    """Return True if the rule's job has ended well."""
    return (CHAINS / key / DONE).exists()


def note_done(key: str) -> None:
    """Write that the rule's job has ended well."""
    (CHAINS / key).mkdir(parents=True, exist_ok=True)
    (CHAINS / key / DONE).touch()


def begin_again(key: str) -> None:
    """Forget that the rule's job had ended well: Snakemake asks for it again."""
    (CHAINS / key / DONE).unlink(missing_ok=True)


class RulePauses:
    """The pauses of the run that the jobs of a rule's chain work for, logged as they come."""

    def __init__(self, key: str, segments: int) -> None:
        self._key, self._segments = key, segments
        self._known = read_state(key)

    def new_lines(self) -> list[str]:
        """Return a line if the run has paused since the last call."""
        before, self._known = self._known, read_state(self._key)
        now = self._known
        if now.note is None or (now.store, now.pauses) == (before.store, before.pauses):
            return []
        return [f"{now.note.name}: segment {now.pauses} of {self._segments} paused"]
