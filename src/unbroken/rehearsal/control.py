"""The control of a rehearsal: one more piece, with a wrong restore, which must be found different.

Without it a comparison that could find nothing would look like one that found nothing: a program that computes all
again from the beginning, or whose results do not depend on its state.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.rehearsal.compare import Difference
from unbroken.rehearsal.judgement import blamed_of
from unbroken.rehearsal.piece import Ended, Piece, Way, reason_of_end
from unbroken.rehearsal.results import Results
from unbroken.rehearsal.stage import Stage
from unbroken.rehearsal.wrong_restore import WrongRestore, made_wrong
from unbroken.runs.progress import amount
from unbroken.runs.segment_end import EndKind

# The name of the piece, and how much longer than twice the whole it may take.
CONTROL, MORE_SECONDS = "control", 30.0


@dataclass(frozen=True)
class Control:
    """Plays the piece; `run_root` is what the pieces left of their run, and is gone afterwards."""

    run_root: Path
    stage: Stage
    results: Results
    played: Callable[[Way, Path | None, float], tuple[Ended, Piece]]
    whole_seconds: float

    def doubt(self, itself: Sequence[Difference]) -> str:
        """Return why the comparison proves nothing; empty if the wrong restore is found."""
        wrong = made_wrong(self.run_root, self.results.state_of("pieces"))
        if wrong is None:
            return "all checkpoints hold the same, so nothing shows whether one is put back"
        ended, piece = self.played(Way.CONTROL, self.run_root, 2 * self.whole_seconds + MORE_SECONDS)
        if not _has_taken(piece, wrong) or (ended.is_met and ended.kind is not EndKind.FINISHED):
            self.stage.carry(piece.folder)
            return f"the control did not begin with {wrong.describe()}: {reason_of_end(ended, piece.attempts())}"
        found = self._found(ended, piece, itself)
        if not found:
            return f"with {wrong.describe()} it left the same results: they do not depend on what is put back"
        self.stage.tell(f"control: with {wrong.describe()} it was found in {ended.seconds:.0f} s: {found}")
        return ""

    def _found(self, ended: Ended, piece: Piece, itself: Sequence[Difference]) -> str:
        if not ended.is_met:
            said = _noticed(ended, piece)
            self.stage.carry(piece.folder)
            return said
        shutil.rmtree(self.results.keep(self.stage, piece, CONTROL))
        blamed = blamed_of(self.results.differences("whole", CONTROL), itself)
        return blamed[0].text() if blamed else ""


def _has_taken(piece: Piece, wrong: WrongRestore) -> bool:
    return piece.origin == float(amount(wrong.checkpoint.passport.progress.done))


def _noticed(ended: Ended, piece: Piece) -> str:
    if ended.is_behind and piece.first is not None and piece.origin is not None:
        return f"it said {piece.first[1]:.10g} soon after the start from {piece.origin:.10g}"
    return "it came to no end" if ended.is_out_of_time else reason_of_end(ended, piece.attempts())
