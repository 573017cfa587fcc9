"""The line of a first start that says of which runs nobody knows yet whether they resume."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from unbroken.runs.layout import RunFolder
from unbroken.runs.rehearsal import Verdict, read_rehearsal
from unbroken.runs.run import Run

_BAD = (Verdict.DIFFERS, Verdict.FAILS, Verdict.LOSES_OUTPUT)
_MOST_NAMES = 3


def unrehearsed(runs: Iterable[Run], base: Path) -> list[str]:
    """One line for all that begin now and were not rehearsed, one for each whose rehearsal went badly."""
    new, told = [], []
    for run in runs:
        places = RunFolder(run.name, base)
        if places.history.exists() or places.checkpoints.exists():
            continue
        made = read_rehearsal(run.name, base)
        if made is None:
            new.append(run.name)
        elif made.verdict in _BAD:
            told.append(f"{run.name}: {made.line()}; it starts all the same")
    if new:
        names = ", ".join(new[:_MOST_NAMES]) + (f" and {len(new) - _MOST_NAMES} more" if new[_MOST_NAMES:] else "")
        told.insert(0, f"not rehearsed: {names}; `unbroken rehearse {new[0]}` shows within minutes whether it resumes")
    return told
