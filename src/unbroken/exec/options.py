"""Parse the command line of `unbroken exec`: options, then `--`, then the program; all defaults are here."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from unbroken.config.found import near
from unbroken.engines.files.settings import SavedBy
from unbroken.errors import ConfigError
from unbroken.job.deadline import NO_LIMIT_MINUTES

USAGE = "unbroken exec [OPTIONS] -- PROGRAM ARGUMENTS..."
_ABOUT = (
    "Runs a program so that it resumes after time limits, kills and new starts.  "
    "Exit code 0: done. 85: saved, more to do; call it again. Else: the program's own, or 1 with the reason."
)
GROMACS, DMTCP = "gromacs", "dmtcp"
PRESET = "command"  # the engine of a preset
# Parts of a path below the store; none begins with a point, as the store's own folders do.
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")
_ALLOWED_NAME = "letters, digits and ._=- in parts between /, none of which begins with a point"
_INTERPRETER = re.compile(r"(python|Rscript|julia|perl|ruby|node|bash|sh)[0-9.]*")
# Options without effect for an engine: they say how a program without one is kept.
_OF_FILES = ("keep", "saved_by", "resume", "progress", "goal", "done_if")
_OF_PRESETS = tuple(name for name in _OF_FILES if name != "goal")
_BESIDE = {"": (), GROMACS: (*_OF_FILES, "stdout", "preset"), DMTCP: (*_OF_FILES, "preset"), PRESET: _OF_PRESETS}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _path(word: str) -> str:
    """Return a path or glob.  An unset variable of a shell is an empty word, and would mean the working directory."""
    if not word:
        raise argparse.ArgumentTypeError("found an empty word; allowed: the path of a file")
    return word


def _number(allowed: str, is_good: Callable[[float], bool]) -> Callable[[str], float]:
    """Return what reads a number of these."""

    def number(word: str) -> float:
        if not is_good(found := float(word)):
            raise argparse.ArgumentTypeError(f"found {word}, allowed: {allowed}")
        return found

    return number


def _file_and_pattern(word: str) -> tuple[str, str]:
    file, _, pattern = word.partition(":")
    try:
        if file and re.compile(pattern).groups == 1:
            return file, pattern
    except re.error:
        pass
    allowed = "FILE:PATTERN, a regular expression with one group around the number"
    raise argparse.ArgumentTypeError(f"found {word}, allowed: {allowed}")


def _some(words: str, metavar: str = "FILE", nargs: str = "*") -> Any:
    return field(default_factory=list, metadata={"help": words, "nargs": nargs, "type": _path, "metavar": metavar})


def _one(words: str, default: object, **more: object) -> Any:
    return field(default=default, metadata={"help": words, "default": default, **more})


_MINUTES = _number("more than 0, at most a year", lambda number: 0 < number <= NO_LIMIT_MINUTES)
_SAVE_MINUTES = _number("0 or more", lambda number: 0 <= number <= NO_LIMIT_MINUTES)
_CHECKPOINTS = _number("2 or more", lambda number: number >= 2 and number % 1 == 0)
_GOAL = _number("more than 0", lambda number: 0 < number < math.inf)
_WAYS = [way.value for way in SavedBy]
_SIGNALS = ["none", "HUP", "INT", "TERM", "USR1", "USR2"]


@dataclass
class Options:
    """Hold what was asked for; paths as they were typed."""

    name: str = _one("the run's name; the name of the program or script if none is given", "")
    store: Path | None = _one("the folder of its runs (.unbroken)", None, type=Path, metavar="FOLDER")  # noqa: RUF009
    inputs: Sequence[str] = _some("if one of these changes, the run begins from zero")
    outputs: Sequence[str] = _some("what it makes; put back when it is called again")
    keep: Sequence[str] = _some("the files from which the program resumes", "GLOB", "+")
    saved_by: SavedBy = _one("when a kept file is complete", SavedBy.OBSERVED, choices=_WAYS)  # noqa: RUF009
    marker: str = _one("with --saved-by marker or stage: what is written after the kept files", "", metavar="FILE")
    resume: Sequence[str] = _one("the command line that resumes, if it is another one", (), type=shlex.split)
    minutes: float | None = _one("how long it may take; else Slurm says it, or there is no limit", None, type=_MINUTES)
    stall_minutes: float | None = _one("it failed if it makes no progress for so long", None, type=_MINUTES)
    save_minutes: float = _one("how often kept files are copied (%(default)g)", 5.0, type=_SAVE_MINUTES)
    checkpoints: float = _one("how many stay (%(default)s)", 2, type=_CHECKPOINTS)
    progress: tuple[str, str] = _one(
        "how far it is: the last match of one group in FILE", ("", ""), type=_file_and_pattern, metavar="FILE:PATTERN"
    )
    goal: float | None = _one("it is done when it is so far", None, type=_GOAL)
    unit: str = _one("what is counted (%(default)s)", "steps")
    done_if: str = _one("it is done when this file is there", "", metavar="FILE")
    stop_signal: str = _one("what makes it save and leave (TERM with --keep)", "", choices=_SIGNALS)
    stdout: str = _one("what it prints is a result: FILE, without a line lost or doubled", "", metavar="FILE")
    ignore: list[str] = field(
        default_factory=list,
        metadata={"help": "options that may differ, as --threads,--mem", "action": "append", "metavar": "WORDS"},
    )
    on_change: str = _one("if the command line differs (%(default)s)", "refuse", choices=["refuse", "anew"])
    engine: str = _one("what keeps it: mdrun's own checkpoints, or DMTCP", "", choices=[GROMACS, DMTCP])
    preset: str = _one("what is known of the program: see unbroken presets", "", metavar="NAME")
    anew: bool = _one("begin from zero; what was saved is set aside", default=False, action="store_true")
    requeue: bool = _one("in a batch script: requeue the job when it has paused", default=False, action="store_true")
    program: Sequence[str] = ()


class _Parser(argparse.ArgumentParser):
    """Refuse a command line in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError([f"exec: {message.removeprefix('argument ')}; type: unbroken exec --help"])


def parser() -> argparse.ArgumentParser:
    """Return the parser of all options."""
    found = _Parser(prog="unbroken exec", usage=USAGE, allow_abbrev=False, description=_ABOUT)
    for each in fields(Options):
        if each.metadata:
            found.add_argument(_flag(each.name), **each.metadata)
    return found


def parse(words: Sequence[str]) -> Options:
    """Return the options of a command line after `unbroken exec`; raise ConfigError with what is wrong."""
    own, program = _split(list(words))
    asked = parser()
    options, unknown = asked.parse_known_args(own, Options())
    if unknown:
        guess = near(unknown[0], [_flag(each.name) for each in fields(Options)])
        asked.error(f"no such option: {unknown[0]}" + (f"; did you mean `{guess}`?" if guess else ""))
    if not program:
        raise ConfigError([f"exec: no program behind --; type: {USAGE}"])
    options.program, options.saved_by = program, SavedBy(options.saved_by)
    options.name = options.name or _name_of(program)
    options.ignore = [word for words in options.ignore for word in words.split(",")]
    options.stop_signal = options.stop_signal or ("TERM" if options.keep else "none")
    if mistakes := [f"exec: {line}" for line in _mistakes(options)]:
        raise ConfigError(mistakes)
    return options


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the own words and the program's.  What --ignore names looks like an option of ours, and is none."""
    at = words.index("--") if "--" in words else len(words)
    own, program = words[:at], words[at + 1 :]
    while "--ignore" in own[:-1]:
        found = own.index("--ignore")
        own[found : found + 2] = [f"--ignore={own[found + 1]}"]
    return own, program


def _name_of(program: Sequence[str]) -> str:
    """Return what -deffnm names, what an interpreter runs, else the program's own name."""
    word = program[0]
    if "-deffnm" in program[:-1]:
        word = program[program.index("-deffnm") + 1]
    elif _INTERPRETER.fullmatch(Path(word).name):
        word = next((each for each in program[1:] if not each.startswith("-")), word)
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", Path(word).name).strip("-") or "run"


def _mistakes(options: Options) -> Iterator[str]:
    """Yield what is wrong with options together; each has been read by itself."""
    has_numbers, without = any("{progress}" in name for name in options.keep), Options()
    if not _NAME.fullmatch(options.name):
        yield f"--name: found {options.name!r}, allowed: {_ALLOWED_NAME}"
    if bool(options.marker) != (options.saved_by in (SavedBy.MARKER, SavedBy.STAGE)):
        yield "--marker FILE and --saved-by marker, or stage, go together; give both or neither"
    if options.saved_by is SavedBy.NEXT and not has_numbers:
        yield "--saved-by next: no {progress} in --keep; write it where the number stands in the files' names"
    if options.progress[0] and has_numbers:
        yield "--progress: found beside {progress} in --keep, whose numbers say how far it is; allowed: one"
    if options.goal is not None and not (options.progress[0] or has_numbers or options.preset):
        yield "--goal: nothing says how far the program is; add --progress FILE:PATTERN"
    engine = options.engine or (PRESET if options.preset else "")
    if given := [name for name in _BESIDE[engine] if getattr(options, name) != getattr(without, name)]:
        found = ", ".join(map(_flag, given))
        named = f"--engine {options.engine}" if options.engine else f"--preset {options.preset}"
        yield f"{named}: {found} does nothing beside it; leave it out"
