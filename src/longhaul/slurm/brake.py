"""How often a run that nobody drives has failed, or come no step forward, in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longhaul.endings import is_to_blame, with_cause
from longhaul.history import Attempt
from longhaul.outcome import Outcome


def failures_in_a_row(attempts: Sequence[Attempt], segment: int) -> int:
    """How often the segment failed by its own fault, since it or another one last did not."""
    return _in_a_row(attempts, lambda attempt: attempt.segment == segment and attempt.outcome is Outcome.FAILED)


def idle_in_a_row(attempts: Sequence[Attempt], segment: int) -> int:
    """How often the segment was tried without a step forward, since it last made one."""
    return _in_a_row(
        attempts,
        lambda attempt: (
            attempt.segment == segment
            and not attempt.outcome.settles
            and not attempt.has_advanced
            and is_to_blame(with_cause(attempt))
        ),
    )


def _in_a_row(attempts: Sequence[Attempt], counts: Callable[[Attempt], bool]) -> int:
    count = 0
    for attempt in reversed(attempts):
        if not counts(attempt):
            break
        count += 1
    return count
