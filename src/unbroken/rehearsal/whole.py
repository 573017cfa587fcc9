"""Hold what the whole run showed, by which its pieces are ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from unbroken.engines.base import Engine
from unbroken.errors import ConfigError
from unbroken.rehearsal.piece import Piece, Way
from unbroken.store.progress import amount
from unbroken.store.run import RunSpec

# So many saves are in the length of the whole run, so that pieces have some to resume from.
SAVES = 20
LEAST_SAVE_SECONDS = 0.05
# About so long a segment works before and after its program.
JOB_SECONDS = 1.0


@dataclass(frozen=True)
class Whole:
    """Hold what the whole run showed."""

    seconds: float
    reached: float
    unit: str
    says_progress: bool
    start_seconds: float
    save_seconds: float
    evidence: str  # by what the progress of a checkpoint is known, in the words of the engine

    @classmethod
    def of(cls, piece: Piece, engine: Engine) -> Whole:
        attempt, checkpoints = piece.attempts()[-1], piece.checkpoints()
        begun, first_step = attempt.times.program_started, attempt.times.first_step
        return cls(
            seconds=piece.seconds,
            reached=piece.done(),
            unit=checkpoints[-1].passport.progress.unit,
            says_progress=piece.first is not None,
            start_seconds=first_step - begun if first_step and begun else 0.0,
            save_seconds=max(attempt.save_seconds, *(each.passport.save_seconds or 0.0 for each in checkpoints)),
            evidence=engine.progress_evidence(piece.run, checkpoints[-1].folder),
        )

    def set_end(self, piece: Piece, engine: Engine, share: float) -> None:
        """Let a piece save often enough to be resumed, and end it when it has done this share of the work."""
        seconds = self._work_seconds(share)
        saves = max(self.seconds / SAVES, 5 * self.save_seconds, LEAST_SAVE_SECONDS) / 60
        piece.run = replace(piece.run, save_minutes=min(piece.run.save_minutes, saves))
        if piece.way is Way.STOP and not engine.hears_a_wish(piece.run):
            margin = piece.run.first_margin_seconds or min(60.0, max(1.0, seconds / 9))
            piece.run = replace(piece.run, segment_minutes=(JOB_SECONDS + seconds + margin) / 60)
        elif piece.way in (Way.STOP, Way.KILL, Way.KILL_SAVE) and self.says_progress:
            piece.end_progress = share * self.reached
        elif piece.way in (Way.STOP, Way.KILL, Way.KILL_SAVE):
            piece.end_seconds = seconds

    def _work_seconds(self, share: float) -> float:
        """Return how many seconds after its start a program has done this share of the work.

        Its first step is seen up to a second late.
        """
        start = max(self.start_seconds - 1.0, 0.0)
        return start + share * max(self.seconds - JOB_SECONDS - start, 0.1)

    def progress_line(self, origins: Iterable[float]) -> str:
        """Return by what progress was read, and from where to where it grew."""
        least = amount(min(origins, default=0.0))
        return f"progress was read: {self.evidence}; it grew from {least} to {amount(self.reached)} {self.unit}"


def with_goal(run: RunSpec, goal: float) -> RunSpec:
    """Return the run to another goal; raise ConfigError if its engine knows none."""
    if "goal" not in run.settings:
        raise ConfigError([f"{run.name}: engine {run.engine} has no goal; rehearse without --goal"])
    value = int(goal) if float(goal).is_integer() else goal
    return replace(run, settings={**run.settings, "goal": value}, metric_goals={})
