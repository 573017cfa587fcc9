"""Describe a program: the settings of a run of `command`, typed, or what an engine of its own says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from unbroken.engines.imports import COUNTED
from unbroken.store.run import RunSpec

# A table: a line a row, which begins with a number that grows.
_BEGIN = rb"^[ \t]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
ROWS = _BEGIN + rb"(?=[\s,;])"
# The same where a separator, another number, or the end of the line follows.  In a file that has such rows,
# `  4000 atoms` is none.
ROWS_OF_NUMBERS = re.compile(_BEGIN + rb"(?=[ \t]*[,;\t\r\n]|[ \t]+[-+]?(?:\.?\d|(?:nan|inf)\b))", re.MULTILINE)
ROWS_KIND = "rows"


class SavedBy(Enum):
    """Name the way by which the program shows that a restart file is complete."""

    OBSERVED = "observed"  # its own way, learned from the events of its files
    EXIT = "exit"  # it has left well
    RENAME = "rename"  # it writes under another name first
    MARKER = "marker"  # it makes one more file afterwards
    NEXT = "next"  # it has begun the one after
    STAGE = "stage"  # it makes a marker after each stage, and begins the next one at once


@dataclass(frozen=True)
class OutputSetting:
    """Define a table that grows from segment to segment, and what begins a record in it."""

    name: str
    record: re.Pattern[bytes]


class When(Enum):
    """Name the starts before which an input file is edited."""

    START = "start"  # from nothing
    RESUME = "resume"  # from a checkpoint
    ALWAYS = "always"


@dataclass(frozen=True)
class Edit:
    """Define a change of an input file before a start; the user's own file stays as it is.

    `find` is a regular expression; each match becomes `put`, in which placeholders are filled and `\\1` is a group.  If
    nothing matches, `put` is a new line after the first match of `after`.  Where `unless` matches nothing is changed.
    """

    file: str
    find: str
    put: str
    when: When = When.ALWAYS
    after: str = ""
    is_optional: bool = False
    unless: str = ""


@dataclass(frozen=True)
class Program:
    """Describe a program, as the config or an engine of its own does.

    Patterns are text, because they are filled or compiled where they are used.
    """

    start: tuple[str, ...]
    resume: tuple[str, ...] = ()  # as `start`, if there is none
    inputs: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    stdout: str = ""
    files: tuple[str, ...] = ()
    saved_by: SavedBy = SavedBy.OBSERVED
    saved_marker: str = ""
    keep_older: bool = False
    put_back_as: Mapping[str, str] = field(default_factory=dict)
    progress_file: str = ""
    progress_pattern: str = ""
    progress_command: tuple[str, ...] = ()
    progress_adds: bool = False  # the number begins at 0 with each start
    check_command: tuple[str, ...] = ()
    path_files: tuple[str, ...] = ()
    outputs: tuple[OutputSetting, ...] = ()
    discard: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    continued: tuple[str, ...] = ()
    stop_file: str = ""
    stop_text: str = ""
    stop_signal: str = ""
    stop_signal_to: str = "program"
    margin_seconds: float | None = None
    exit_finished: frozenset[int] = frozenset({0})
    exit_paused: frozenset[int] = frozenset({85})
    finished_file: str = ""
    finished_pattern: str = ""
    error_pattern: str = ""
    messages: tuple[str, ...] = ()
    goal_unit: str = "steps"

    def __post_init__(self) -> None:
        if not self.resume:
            object.__setattr__(self, "resume", self.start)

    @property
    def keeps_the_contract(self) -> bool:
        """Return True for a program that hands its states over by itself (docs/contract.md): no files are named."""
        return not self.files

    @property
    def has_numbered_files(self) -> bool:
        """Return True if the names of the restart files say how far they are."""
        return any("{progress}" in name for name in self.files)

    @property
    def says_progress(self) -> bool:
        """Return True if a restart file says how far it is."""
        return self.has_numbered_files or bool(self.progress_file or self.progress_command) or self.keeps_the_contract

    @property
    def unit(self) -> str:
        """Return what the progress of its files is counted in: where nothing says it, they are counted themselves."""
        return self.goal_unit if self.files and self.says_progress else COUNTED


def program_of(run: RunSpec) -> Program:
    """Return the settings of a run, whose kinds the schema has checked."""
    return Program(**{each.name: _typed(each.name, run.settings[each.name]) for each in fields(Program)})


def _typed(name: str, value: object) -> Any:
    """Return a value of the config as the field of that name holds it."""
    if name == "saved_by":
        return SavedBy(value)
    if name == "edits":
        return tuple(map(_edit, value)) if isinstance(value, (list, tuple)) else ()
    if name == "outputs":
        return tuple(OutputSetting(each, record_of(kind)) for each, kind in texts(value).items())
    if name in ("exit_finished", "exit_paused"):
        return frozenset(map(int, words(value)))
    if isinstance(value, Mapping):
        return texts(value)
    return words(value) if isinstance(value, (list, tuple)) else value


def _edit(value: Mapping[str, Any]) -> Edit:
    more = {name: value[name] for name in ("after", "unless") if name in value}
    when = When(value.get("when", When.ALWAYS))
    return Edit(value["file"], value["find"], value["put"], when, is_optional=bool(value.get("optional")), **more)


def record_of(kind: str) -> re.Pattern[bytes]:
    """Return what begins a record of a table; re.error if the user's own expression is none."""
    return re.compile(ROWS if kind == ROWS_KIND else kind.encode(), re.MULTILINE)


def words(value: object) -> tuple[str, ...]:
    """Return a list of the config as words."""
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()


def texts(value: object) -> dict[str, str]:
    """Return a mapping of the config with its values as text."""
    return {str(key): str(each) for key, each in value.items()} if isinstance(value, Mapping) else {}
