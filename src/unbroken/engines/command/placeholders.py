"""Fill placeholders, which the config may use in the words of a command, with the values of an attempt."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from unbroken.config.tasks import starts_tasks
from unbroken.engines.base import Task
from unbroken.engines.files.settings import Program
from unbroken.program.process import lead_seconds
from unbroken.store.checkpoint import Checkpoint

# Of the checkpoint that a program resumes from; at the start there is none.
OF_CHECKPOINT = ("checkpoint", "file", "last", "progress", "seed")
ALWAYS = (
    "save", "stop", "base", "seconds", "minutes", "hours", "hms", "threads", "tasks", "run", "segment", "goal",
    "remaining",
)  # fmt: skip
# Without a goal there are none.
OF_GOAL = ("goal", "remaining")
# A number may be divided, such as {remaining/0.002}: steps, where the progress is a time.
_IN_WORDS = re.compile(r"\{\{|\}\}|\{(\w+)(?:/(\d*\.?\d+(?:[eE][-+]?\d+)?))?\}|[{}]")
_DIVIDED = ("goal", "remaining", "progress", "seconds")
_IN_TEMPLATES = re.compile(r"@@(\w+)@@")
# Programs read a seed as a signed number of 32 bits.
_SEEDS = 2**31 - 2


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled; `{{` and `}}` become single braces."""

    def value(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0][0]
        known = values[found[1]]
        return f"{round(float(known) / float(found[2]))}" if found[2] and known else known

    return _IN_WORDS.sub(value, text)


def filled_template(text: str, values: Mapping[str, str]) -> str:
    """Return the text of a template with every `@@name@@` filled; all else stays as it is."""
    return _IN_TEMPLATES.sub(lambda found: values[found[1]], text)


def strange(text: str, known: Collection[str]) -> Iterator[str]:
    """Yield placeholders that are not known, and single braces."""
    for found in _IN_WORDS.finditer(text):
        is_divided_wrongly = found[2] and (found[1] not in _DIVIDED or not float(found[2]))
        if found[0] not in ("{{", "}}") and (found[1] not in known or is_divided_wrongly):
            yield found[0]


def strange_in_template(text: str, known: Collection[str]) -> Iterator[str]:
    """Yield placeholders of a template that are not known."""
    yield from (found[0] for found in _IN_TEMPLATES.finditer(text) if found[1] not in known)


def named(text: str) -> set[str]:
    """Return the names of the placeholders in a text."""
    return {found[1] for found in _IN_WORDS.finditer(text) if found[1]}


def values_of(
    task: Task, program: Program, base: Path, *, stop: Path, state: Path | None, last: str = ""
) -> dict[str, str]:
    """Return each placeholder's value in this attempt; those of the checkpoint are empty at the start."""
    left = seconds_left(task, program)
    goal, origin = task.run.goal, task.origin
    return {
        "checkpoint": str(origin.folder.resolve()) if origin else "",
        "file": str(state.resolve()) if state else "",
        "last": last,
        "progress": f"{origin.passport.progress.done:.15g}" if origin else "",
        "seed": f"{seed_after(origin)}" if origin else "",
        "save": str(task.attempt_folder.save.resolve()),
        "stop": str(stop.resolve()),
        "base": str(base.resolve()),
        "seconds": str(left),
        "minutes": f"{left / 60:.6f}",
        "hours": f"{left / 3600:.8f}",
        "hms": f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}",
        "threads": str(task.run.resources.threads),
        "tasks": str(task.run.resources.tasks),
        "run": task.run.name,
        "segment": str(task.segment),
        "goal": "" if goal is None else f"{goal:.15g}",
        "remaining": "" if goal is None else f"{remaining(goal, origin):.15g}",
    }


def seed_after(origin: Checkpoint) -> int:
    """Return a number from 1 on for what continues from a checkpoint, so that it does not draw the same numbers again.

    It is the same whenever this run resumes from there, and another one for a run with another input.
    """
    said = f"{origin.passport.identity} {origin.passport.progress.done:.15g}"
    return 1 + int(hashlib.sha256(said.encode()).hexdigest()[:16], 16) % _SEEDS


def remaining(goal: float, origin: Checkpoint | None) -> float:
    """Return how much of the goal is left, for a program that counts from its restart."""
    return max(0.0, goal - (origin.passport.progress.done if origin else 0.0))


def seconds_left(task: Task, program: Program) -> int:
    """Return the whole seconds after which a program that watches its own clock should begin to save; 1 at least."""
    left = min(task.stop_unix, task.deadline_unix) - time.time()
    is_launched = any(starts_tasks(task.run, words) for words in (program.start, program.resume))
    lead = program.margin_seconds
    if lead is None:
        lead = lead_seconds(left, is_launched=is_launched)
    return max(1, int(left - lead))
