"""The pauses of a user's rule, each told once: Snakemake knows one job, which takes many jobs of Slurm's."""

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
        self._told = self._paused()

    def new_lines(self) -> list[str]:
        """Return a line for each pause since the last call; for the last one alone where the run is another one."""
        told, self._told = self._told, self._paused()
        if self._told == told:
            return []
        first = told[1] if self._told[0] == told[0] else self._told[1] - 1
        state = read_state(self._key)
        with suppress(OSError, FormatError):
            attempts = History(state.folder(self._key).history).attempts()
            paused = [attempt for attempt in attempts if attempt.kind is EndKind.PAUSED]
            return [
                f"{state.note.name if state.note else self._key}: segment {number} of {self._segments} paused, "
                f"{amount(attempt.progress_to)} {attempt.unit} done"
                for number, attempt in enumerate(paused, 1)
                if number > first
            ]
        return []

    def _paused(self) -> tuple[str, int]:
        state = read_state(self._key)
        return state.store, state.pauses
