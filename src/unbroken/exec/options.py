"""The command line of `unbroken exec`: options, then `--`, then the program; every default stands here."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

from unbroken.config.found import near
from unbroken.engines.files.settings import SavedBy
from unbroken.errors import ConfigError
from unbroken.segment.deadline import NO_LIMIT_MINUTES

USAGE = "unbroken exec [OPTIONS] -- PROGRAM ARGUMENTS..."
# Where a name stands for a folder below the store; the store's own way to call folders is not among them.
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")
_INTERPRETER = re.compile(r"(python|Rscript|julia|perl|ruby|node|bash|sh)[0-9.]*")
_ALLOWED_NAME = "letters, digits and ._=- in parts between /, none of which begins with a point"
SAVE_MINUTES = 5.0


class OnChange(Enum):
    """What happens when the command line is another one."""

    REFUSE = "refuse"
    ANEW = "anew"


@dataclass(frozen=True)
class Options:
    """What was asked for; paths as they were typed."""

    program: tuple[str, ...]
    name: str
    store: Path | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    keep: tuple[str, ...]
    saved_by: SavedBy
    marker: str
    resume: str
    minutes: float | None
    save_minutes: float
    checkpoints: int
    progress_file: str
    progress_pattern: str
    goal: float | None
    unit: str
    done_if: str
    stop_signal: str
    stdout: str
    ignore: tuple[str, ...]
    on_change: OnChange
    is_anew: bool
    is_requeued: bool
    engine: str = ""
    settings: str = ""


class _Parser(argparse.ArgumentParser):
    """One line instead of the usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError([f"exec: {message.removeprefix('argument ')}; type: unbroken exec --help"])


def parse(words: Sequence[str]) -> Options:
    """The options of a command line behind `unbroken exec`; ConfigError names what is wrong with it."""
    own, program = _parted(list(words))
    asked = parser()
    found, unknown = asked.parse_known_args(own)
    if unknown:
        guess = near(unknown[0], [name for action in asked._actions for name in action.option_strings])
        asked.error(f"no such option: {unknown[0]}" + (f"; did you mean `{guess}`?" if guess else ""))
    if not program:
        raise ConfigError([f"exec: no program behind --; type: {USAGE}"])
    file, _, pattern = (found.progress or "").partition(":")
    options = Options(
        program=tuple(program),
        name=found.name or KINDS[found.engine].name_of(program),
        store=Path(found.store) if found.store else None,
        inputs=tuple(found.inputs),
        outputs=tuple(found.outputs),
        keep=tuple(found.keep),
        saved_by=SavedBy(found.saved_by),
        marker=found.marker,
        resume=found.resume,
        minutes=found.minutes,
        save_minutes=found.save_minutes,
        checkpoints=found.checkpoints,
        progress_file=file,
        progress_pattern=pattern,
        goal=found.goal,
        unit=found.unit,
        done_if=found.done_if,
        stop_signal=found.stop_signal or ("TERM" if found.keep else "none"),
        stdout=found.stdout,
        ignore=tuple(word for words in found.ignore for word in words.split(",") if word),
        on_change=OnChange(found.on_change),
        is_anew=found.anew,
        is_requeued=found.requeue,
        engine=found.engine,
        settings=found.settings,
    )
    if mistakes := [f"exec: {line}" for line in _mistakes(options)]:
        raise ConfigError(mistakes)
    return options


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """The own words and the program's.  What --ignore names looks like options of ours, and is none."""
    at = words.index("--") if "--" in words else len(words)
    own, program = words[:at], words[at + 1 :]
    while "--ignore" in own[:-1]:
        found = own.index("--ignore")
        own[found : found + 2] = [f"--ignore={own[found + 1]}"]
    return own, program


def _name_of(program: Sequence[str]) -> str:
    """The program's own name, of `python train.py` the script's: all that an interpreter runs is not one run."""
    word = program[0]
    if _INTERPRETER.fullmatch(Path(word).name):
        word = next((each for each in program[1:] if not each.startswith("-")), word)
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", Path(word).name).strip("-") or "run"


def _stem_of(program: Sequence[str]) -> str:
    """What mdrun calls its files: all that gmx runs is not one run."""
    words = [*program, ""]
    return _name_of([words[words.index("-deffnm") + 1] if "-deffnm" in words else "mdrun"])


@dataclass(frozen=True)
class Kind:
    """What --engine changes of the options: the name where none is given, and whether --stdout means something."""

    name_of: Callable[[Sequence[str]], str]
    has_stdout: bool


# By the name of the engine; without one, the empty word.
KINDS = {
    "": Kind(_name_of, has_stdout=True),
    "gromacs": Kind(_stem_of, has_stdout=False),
    "dmtcp": Kind(_name_of, has_stdout=True),
}


def _mistakes(options: Options) -> list[str]:
    found = []
    if not _NAME.fullmatch(options.name):
        found.append(f"--name: found {options.name!r}, allowed: {_ALLOWED_NAME}")
    if options.minutes is not None and not 0 < options.minutes <= NO_LIMIT_MINUTES:
        found.append(f"--minutes: found {options.minutes:g}, allowed: more than 0, at most a year")
    if not 0 <= options.save_minutes <= NO_LIMIT_MINUTES:
        found.append(f"--save-minutes: found {options.save_minutes:g}, allowed: 0 or more")
    if options.checkpoints < 2:
        found.append(f"--checkpoints: found {options.checkpoints}, allowed: 2 or more")
    if bool(options.marker) != (options.saved_by is SavedBy.MARKER):
        found.append("--marker FILE and --saved-by marker go together; give both or neither")
    if options.saved_by is SavedBy.NEXT and not any("{progress}" in name for name in options.keep):
        found.append("--saved-by next: no {progress} in --keep; write it where the number stands in the files' names")
    if options.progress_file and not _is_pattern(options.progress_pattern):
        found.append(
            f"--progress: found {options.progress_file}:{options.progress_pattern}, allowed: FILE:PATTERN, a regular "
            "expression with one group around the number"
        )
    if options.goal is not None and not (options.progress_file or any("{progress}" in name for name in options.keep)):
        found.append("--goal: nothing says how far the program is; add --progress FILE:PATTERN")
    if options.goal is not None and not (math.isfinite(options.goal) and options.goal > 0):
        found.append(f"--goal: found {options.goal:g}, allowed: more than 0")
    try:
        shlex.split(options.resume)
    except ValueError as error:
        found.append(f"--resume: found {options.resume}, allowed: a command line ({error})")
    found += [f"{flag}: found an empty word; allowed: the path of a file" for flag in _empty(options)]
    if options.engine and (others := _beside_engine(options)):
        found.append(f"--engine {options.engine}: {', '.join(others)} does nothing beside it; leave it out")
    return found


def _beside_engine(options: Options) -> list[str]:
    """What says how a program is kept that has no engine."""
    given = {
        "--keep": bool(options.keep),
        "--saved-by": options.saved_by is not SavedBy.OBSERVED,
        "--resume": bool(options.resume),
        "--progress": bool(options.progress_file),
        "--goal": options.goal is not None,
        "--done-if": bool(options.done_if),
        "--stdout": bool(options.stdout) and not KINDS[options.engine].has_stdout,
    }
    return [option for option, is_given in given.items() if is_given]


def _empty(options: Options) -> list[str]:
    """An unset variable of a shell is an empty word, and would mean the working directory."""
    named = {"--inputs": options.inputs, "--outputs": options.outputs, "--keep": options.keep}
    return [flag for flag, words in named.items() if "" in words]


def _is_pattern(pattern: str) -> bool:
    try:
        return re.compile(pattern).groups == 1
    except re.error:
        return False


def parser() -> argparse.ArgumentParser:
    """All options, and their defaults."""
    found = _Parser(
        prog="unbroken exec",
        usage=USAGE,
        allow_abbrev=False,
        description="Runs a program so that it goes on where it was, after time limits, kills and new starts. "
        "Exit code 0: done. 85: saved, more to do; call it again. Else: the program's own, or 1 with the reason.",
    )
    add = found.add_argument
    add("--name", default="", help="what the run is called; the name of the program or script if none is given")
    add("--store", default="", metavar="FOLDER", help="where its checkpoints lie; .unbroken/NAME if none is given")
    add("--inputs", nargs="*", default=[], metavar="FILE", help="where one has changed, the run begins anew")
    add("--outputs", nargs="*", default=[], metavar="FILE", help="what it makes; put back when it is called again")
    add("--keep", nargs="+", default=[], metavar="GLOB", help="the files from which the program goes on")
    choices = [each.value for each in SavedBy]
    add("--saved-by", choices=choices, default="observed", help="when a kept file is complete (%(default)s)")
    add("--marker", default="", metavar="FILE", help="with --saved-by marker: what is written after the kept files")
    add("--resume", default="", metavar="'PROGRAM ...'", help="the command line that goes on, where it is another one")
    add("--minutes", type=float, help="how long it may take; else Slurm says it, or there is no limit")
    add("--save-minutes", type=float, default=SAVE_MINUTES, help="how often kept files are copied (%(default)g)")
    add("--checkpoints", type=int, default=2, help="how many stay (%(default)s)")
    add("--progress", default="", metavar="FILE:PATTERN", help="how far it is: the last match of one group in FILE")
    add("--goal", type=float, help="it is done when it is so far")
    add("--unit", default="steps", help="what is counted (%(default)s)")
    add("--done-if", default="", metavar="FILE", help="it is done when this file is there")
    signals = ["none", "HUP", "INT", "TERM", "USR1", "USR2"]
    add("--stop-signal", choices=signals, default="", help="what makes it save and leave (TERM with --keep)")
    add("--stdout", default="", metavar="FILE", help="what it prints is a result: FILE, without a line lost or doubled")
    add("--ignore", action="append", default=[], metavar="WORDS", help="options that may differ, as --threads,--mem")
    add("--on-change", choices=[each.value for each in OnChange], default="refuse", help="if the command line differs")
    add(
        "--engine",
        choices=[name for name in KINDS if name],
        default="",
        help="what keeps it: mdrun's own checkpoints, or DMTCP",
    )
    add("--settings", default="", metavar="FILE", help="YAML: what else a run of a config can say, as stall_minutes")
    add("--anew", action="store_true", help="begin anew; what was saved is set aside")
    add("--requeue", action="store_true", help="in a batch script: put the job back into the queue when it has paused")
    return found


def number_of(name: str) -> signal.Signals | None:
    """The signal of --stop-signal; None for `none`."""
    return None if name == "none" else signal.Signals[f"SIG{name}"]
