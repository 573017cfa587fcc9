"""What a walk through a script has come across."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from unbroken.convert.words import Word


class World(Enum):
    """The two jobs that a script is read for: the first one, and one that finds what an earlier one has saved."""

    FRESH = "fresh"
    RESUMED = "resumed"


@dataclass(frozen=True)
class Remark:
    """A line of the script, what stands there, and what became of it."""

    line: int
    what: str
    why: str


@dataclass(frozen=True)
class Launched:
    """The program's command line, every word as far as it is known."""

    words: tuple[Word, ...]
    line: int
    stdin: Word | None = None
    stdout: Word | None = None
    environment: tuple[tuple[str, Word], ...] = ()


@dataclass(frozen=True)
class SavedFile:
    """A file that a later job looks for, by its name or pattern as the script has it."""

    pattern: Word
    line: int


@dataclass(frozen=True)
class Step:
    """What a shell in the job does before the program starts; `key` of a run says the same, where there is one."""

    text: str
    line: int
    key: str = ""
    value: str = ""


@dataclass(frozen=True)
class HandedOn:
    """`cp CONTCAR POSCAR` in a trap: a file of the program that the next job begins with under another name."""

    source: str
    target: str
    line: int
    text: str


@dataclass
class Seen:
    """All of it, each with its line."""

    programs: list[Launched] = field(default_factory=list)
    grompp: list[Launched] = field(default_factory=list)
    modules: list[tuple[str, int]] = field(default_factory=list)
    prologue: list[Step] = field(default_factory=list)
    is_strict: bool = False  # by `set -e`, a step that fails ends the script
    environment: dict[str, tuple[Word, int]] = field(default_factory=dict)
    gmxrc: tuple[Word, int] | None = None
    dropped: list[Remark] = field(default_factory=list)  # because unbroken does it
    lost: list[Remark] = field(default_factory=list)  # could not be carried over
    resubmitted: list[int] = field(default_factory=list)
    saved: list[SavedFile] = field(default_factory=list)
    finished: list[SavedFile] = field(default_factory=list)
    stop_signal: tuple[str, int] | None = None
    stop_file: tuple[Word, int] | None = None
    stop_text: str = ""
    handed_on: list[HandedOn] = field(default_factory=list)
    paused: tuple[int, int] | None = None  # an exit code after which the script submits itself again, and the line
    goal: tuple[float, int, str] | None = None
    submitted: list[tuple[tuple[Word, ...], int]] = field(default_factory=list)
    place: str = ""  # below the folder where the script is submitted, where it has gone to
    staged: list[tuple[str, int]] = field(default_factory=list)  # files that it copies to where it works

    def drop(self, line: int, what: str, why: str) -> None:
        """Left out because unbroken does it."""
        remark = Remark(line, what, why)
        if remark not in self.dropped:
            self.dropped.append(remark)

    def lose(self, line: int, what: str, why: str) -> None:
        """Could not be carried over."""
        remark = Remark(line, what, why)
        if remark not in self.lost:
            self.lost.append(remark)
