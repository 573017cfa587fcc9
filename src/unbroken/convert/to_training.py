"""A training that takes part by itself, with `unbroken.training`: engines torch and tensorflow."""

from __future__ import annotations

import re

from unbroken.convert.draft import Draft, Source, enter, export_all, modules
from unbroken.convert.words import Word

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_TORCHRUN = re.compile(r"torchrun")
_RANKS = re.compile(r"--nproc[-_]per[-_]node(?:=(\d+))?")
_OF_TRAINING = re.compile(r"^\s*(?:from|import)\s+unbroken\.training\.(\w+)", re.MULTILINE)
# The key of an engine whose script a launcher starts several times.
_PROCESSES = {"torch": "ranks"}
_GOALS = re.compile(r"--?(?:max[-_]|num[-_])?(epochs|steps)(?:=(\d+))?")
_ENGINES = {"tensorflow": "tensorflow"}


def training_script(source: Source) -> tuple[str, str] | None:
    """The engine and the script, if the program is a training that `unbroken.training` saves; else None."""
    for word in source.line.words[:4]:
        name = word.text or ""
        if name.endswith(".py") and source.is_file(name):
            text = (source.folder / name).read_text(errors="replace")
            found = _OF_TRAINING.search(text)
            return (_ENGINES.get(found[1], "torch"), name) if found else None
    return None


def training_run(source: Source, engine: str, script: str) -> Draft:
    """The run; its goal is asked where the command line does not say it."""
    line = source.start.line
    draft = Draft(engine, f"line {line}: {script} imports unbroken.training")
    export_all(source)
    modules(source, draft)
    enter(source, draft, with_launcher=source.job.tasks > 1)
    words = source.line.words
    at = next(number for number, word in enumerate(words) if word.text == script)
    args = [_argument(source, word) for word in words[at + 1 :]]
    draft.set("script", source.below(script), f"line {line}")
    goal, unit = _goal(args)
    if goal:
        draft.set("goal", goal, f"line {line}: --{unit}")
        if unit != "epochs":
            draft.set("goal_unit", unit, f"line {line}")
    else:
        draft.set("goal", 100, "how far it is to train", is_asked=True)
    if args:
        draft.set("args", args, f"line {line}")
    ranks = next((found for word in words[:at] if (found := _RANKS.fullmatch(word.source))), None)
    if ranks and ranks[1] and engine in _PROCESSES:
        draft.set(_PROCESSES[engine], int(ranks[1]), f"line {line}: {ranks[0]}")
    if _PYTHON.fullmatch(source.line.program) and ("/" in words[0].source or source.first.prologue):
        draft.set("python", words[0].source, f"line {line}")
    return draft


def _argument(source: Source, word: Word) -> str:
    return source.literal(word, source.start.line)


def _goal(args: list[str]) -> tuple[int, str]:
    for number, word in enumerate(args):
        if found := _GOALS.fullmatch(word):
            value = found[2] or (args[number + 1] if number + 1 < len(args) else "")
            if value.isdecimal():
                return int(value), found[1]
    return 0, ""
