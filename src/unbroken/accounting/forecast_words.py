"""The forecast in words, the same wherever it is shown."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence

from unbroken.accounting.forecast import Forecast
from unbroken.runs.history import Attempt
from unbroken.system.clock import duration

# Shorter than this, a time of the day says less than a length.
SOON_SECONDS = 600.0
WEEK_SECONDS = 6 * 86400.0
YEAR_SECONDS = 300 * 86400.0
# More than any run has.
MANY = 1_000_000_000
RECENT = 5
LONGEST_SECONDS = 10 * 365 * 86400.0


def least_segments(attempts: Sequence[Attempt], done: float, goal: float) -> int:
    """How many segments are left if each advances like the best of the last ones; `MANY` before one is settled.

    The forecast counts by time, and is wrong where a segment's advance does not depend on its time.
    """
    advance: dict[int, float] = defaultdict(float)
    for attempt in attempts:
        advance[attempt.segment] += attempt.progress_to - attempt.progress_from
    settled = [attempt.segment for attempt in attempts if attempt.kind.settles][-RECENT:]
    best = max((advance[segment] for segment in settled), default=0.0)
    return min(math.ceil(max(goal - done, 0.0) / best - 1e-9), MANY) if best > 0 else MANY


def finish_words(made: Forecast, now: float) -> str:
    """`done about Tue 14:00 (90 %: by Wed 09:00)`, in the local time of who reads it; `now` in Unix seconds."""
    likely, late = made.median_seconds, made.p90_seconds
    if made.segments_median == 0:
        return ""
    if likely > LONGEST_SECONDS:
        return "done in more than 10 years at this pace"
    if not made.knows_waits:
        by = f"90 %: {duration(late)}; waits for later segments come on top, none was seen yet"
        return f"done after about {duration(likely)} of work ({by})"
    if late < SOON_SECONDS:
        return f"done in about {duration(likely)} (90 %: {duration(late)})"
    return f"done about {moment(now + likely, likely)} (90 %: by {moment(now + late, late)})"


def budget_words(made: Forecast | None, used: int, segments: int, least: int = MANY) -> str:
    """`segments: 20` will not do: about 27; type `segments: 30`; empty unless more are likely to be needed.

    `used` is how many are settled, `segments` what the config allows, `least` what `least_segments` says.
    """
    if made is None or used + min(made.segments_median, least) <= segments:
        return ""
    likely, enough = used + made.segments_median, used + made.segments_p90
    return f"`segments: {segments}` will not do: about {likely}; type `segments: {enough}`"


def moment(unix: float, ahead: float) -> str:
    """`Tue 14:00`, `7 Mar` or `Mar 2028`, by how far ahead it is."""
    local = time.localtime(unix)
    if ahead < WEEK_SECONDS:
        return time.strftime("%a %H:%M", local)
    return f"{local.tm_mday} {time.strftime('%b' if ahead < YEAR_SECONDS else '%b %Y', local)}"
