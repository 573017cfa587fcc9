"""Before anything is queued: a second place that is not the run's is refused, a run that is lost is rebuilt."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from unbroken.copies.place import is_lost, number_of, place_of, refusal, said
from unbroken.copies.restore import restore
from unbroken.errors import UnbrokenError
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.runs.run_output import OutputsOf

# A file server that takes longer does not keep a campaign from starting.
ANSWER_SECONDS = 20.0
Tell = Callable[[Iterable[str]], None]
_T = TypeVar("_T")


def mistakes(runs: Iterable[Run], base: Path, tell: Tell) -> list[str]:
    """A line for each run whose second place belongs to something else; one that is out of reach is told."""
    found, silent = [], set[str]()
    for run in runs:
        if run.copies is None:
            continue
        problem, line = _looked(run, base, silent)
        if line:
            found.append(line)
        elif problem and number_of(RunFolder(run.name, base).root):
            tell([f"runs.{run.name}.copies: {problem}; the run goes on, and is copied again when that answers"])
        elif problem:
            unknown = "whether the run has copies, to go on from, cannot be known"
            found.append(f"runs.{run.name}.copies.folder: {problem}; {unknown}; start again when that answers")
    return found


def _looked(run: Run, base: Path, silent: set[str]) -> tuple[str, str]:
    """Why nothing can be said, or why the place is refused; no place is waited for twice."""
    folder = run.copies.folder if run.copies else ""
    try:
        line = None if folder in silent else _answered(lambda: refusal(run, base))
    except (OSError, UnbrokenError) as error:
        return said(error), ""
    if line is None:
        silent.add(folder)
        return f"{folder}: no answer in {ANSWER_SECONDS:g} s", ""
    return "", line


def rebuild_lost(runs: Iterable[Run], base: Path, tell: Tell, outputs_of: OutputsOf) -> None:
    """Rebuilds each run whose folder is gone, where the file system that it stood on answers, from its copies.

    An error or a silence of either place rebuilds nothing.  If a run cannot be rebuilt, it ends the process.
    """
    try:
        for run in runs:
            _rebuild_if_lost(run, base, lambda line: tell([line]), outputs_of)
    except UnbrokenError as error:
        tell(str(error).splitlines())
        sys.exit(1)
    except OSError as error:
        tell([f"{said(error)}; start again when that answers"])
        sys.exit(1)


def _rebuild_if_lost(run: Run, base: Path, tell: Callable[[str], None], outputs_of: OutputsOf) -> None:
    place, root = place_of(run, base), RunFolder(run.name, base).root
    if place is None or number_of(root):
        return
    note = _answered(place.note)
    if note is not None and is_lost(note, run, base):
        tell(f"{run.name}: {root} is gone; rebuilding it from {place.root}")
        restore(run.name, place.root, base, tell, outputs_of)


def _answered(ask: Callable[[], _T]) -> _T | None:
    """What it returns or raises; None if that takes too long."""
    answers: list[_T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(ask())
        except (OSError, UnbrokenError) as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="copies-look", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if errors:
        raise errors[0]
    return answers[0] if answers else None
