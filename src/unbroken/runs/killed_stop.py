"""A stop that ended by a kill: of the program by us, or of the whole job by Slurm in the middle of it."""

from __future__ import annotations

from dataclasses import replace

from unbroken.runs.history import Attempt
from unbroken.runs.segment_end import EndCause
from unbroken.runs.times import Times
from unbroken.slurm.job import NOT_TO_BLAME, EndState

KEY = "first_margin_seconds"
# Ends of a job that say why it was killed: not because its time was up.
_OTHER_REASONS = NOT_TO_BLAME | {EndState.CANCELLED, EndState.OUT_OF_MEMORY}


def killed_words(seconds: float, times: Times) -> str:
    """Say in one line that a stop was killed, what follows by itself, and which key to raise."""
    said = f"killed {seconds:.1f} s after it was asked to stop"
    margin, following = times.stop_margin_seconds, times.next_margin_seconds
    if margin is None:
        return said
    if following is None:
        return f"{said}, {margin:.1f} s before its end; raise {KEY}, or segment_minutes"
    return f"{said}, {margin:.1f} s before its end; the next attempt is asked {following:.1f} s before; or raise {KEY}"


def with_killed_stop(died: Attempt, noted: Times) -> Attempt:
    """Return the line of a killed job with the stop in whose middle it was killed; unchanged if there was none.

    `noted` is what the attempt itself had written down.
    """
    asked, ended = noted.stop_asked, died.times.ended
    has_saved = noted.saved is not None and asked is not None and noted.saved >= asked
    if noted.stop_margin_seconds is None or asked is None or ended is None or has_saved:
        return died
    if died.job_state in _OTHER_REASONS:
        return died
    seconds = round(max(0.0, ended - asked), 3)
    message = f"{died.message}; {killed_words(seconds, noted)}"
    return replace(died, message=message, cause=EndCause.KILLED_STOPPING, killed_after_seconds=seconds)
