"""Create the run of `unbroken init toy`, which counts for 15 s."""

from __future__ import annotations

from collections.abc import Iterator

from unbroken.engines.starter import Starter

_SETTINGS = ("goal: 300  # steps; raise it later and start again", "step_seconds: 0.02")


def starters(*, is_named: bool) -> Iterator[Starter]:
    """Yield one run, if the toy was asked for: it needs no file."""
    if is_named:
        yield Starter("demo", "", _SETTINGS, 0.05)
