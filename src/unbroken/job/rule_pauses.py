"""The pauses of a user's rule, each logged once: Snakemake knows one job, which takes many jobs of Slurm's."""

from __future__ import annotations

from contextlib import suppress

from unbroken.errors import FormatError
from unbroken.job.rule_state import read_state
from unbroken.runs.history import History
from unbroken.runs.progress import amount
from unbroken.runs.segment_end import EndKind


class RulePauses:
    """The pauses of the run that the jobs of a rule's chain work for."""

    def __init__(self, key: str, segments: int) -> None:
        self._key, self._segments = key, segments
        state = read_state(key)
        self._known = state.store, state.pauses

    def new_lines(self) -> list[str]:
        """Return a line for each pause since the last call; for the last one alone where the run is another one."""
        state, (store, pauses) = read_state(self._key), self._known
        self._known = state.store, state.pauses
        if state.note is None or self._known == (store, pauses):
            return []
        first = pauses if state.store == store else max(0, state.pauses - 1)
        with suppress(OSError, FormatError):
            attempts = History(state.folder(self._key).history).attempts()
            paused = [attempt for attempt in attempts if attempt.kind is EndKind.PAUSED]
            start = f"{state.note.name}: segment"
            return [
                f"{start} {number} of {self._segments} paused, {amount(attempt.progress_to)} {attempt.unit} done"
                for number, attempt in enumerate(paused[first:], first + 1)
            ]
        return []
