"""Read an input script of LAMMPS: its commands, their words, and the variables with one known value.

The rules of https://docs.lammps.org/Commands_parse.html: `&` continues a line, `#` begins a comment, quotes keep words
together and leave the `$` in them for later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unbroken.engines.script_edit import NotPlainError

# Commands that make the system.
BOX = frozenset({"create_box", "read_data"})
AVERAGES = frozenset(
    {"ave/atom", "ave/chunk", "ave/correlate", "ave/grid", "ave/histo", "ave/histo/weight", "ave/time"}
)
_SUFFIX = re.compile(r"/(omp|gpu|intel|opt|kk|kk/device|kk/host)$")
_TRIPLE = '"""'
# A formula in parentheses, which may hold two more levels of them.
FORMULA = re.compile(r"\$\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_WORD = re.compile(rf'#.*|"""(?:.*?)"""|"[^"]*"|\'[^\']*\'|(?:{FORMULA.pattern}|[^\s#])+', re.DOTALL)
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w)|\bv_(\w+)")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, as a set of names."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Command:
    """Hold a command of an input script: its words, with their quotes, and its lines in the file."""

    parts: tuple[str, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        """Return the command's first word."""
        return self.parts[0]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return all words without their quotes."""
        quotes = (
            (part, next((each for each in (_TRIPLE, '"', "'") if part.startswith(each)), "")) for part in self.parts
        )
        return tuple(part.removeprefix(quote).removesuffix(quote) for part, quote in quotes)

    @property
    def style(self) -> str:
        """Return the style of a `fix`, `compute` or `dump` without the suffix of an accelerator; "" for others."""
        is_styled = self.name in ("fix", "compute", "dump") and len(self.words) > 3
        return _SUFFIX.sub("", self.words[3]) if is_styled else ""

    def value(self, keyword: str, start: int = 1) -> str:
        """Return the word after a keyword at `start` or later; "" if it is not there."""
        words = self.words
        found = [words[at + 1] for at in range(start, len(words) - 1) if words[at] == keyword]
        return found[-1] if found else ""

    def changed(self, changes: Mapping[int, str]) -> str:
        """Return the command with some words, by their place, written in another way."""
        return " ".join(changes.get(at, part) for at, part in enumerate(self.parts))

    def refused(self, why: str) -> NotPlainError:
        """Return the error that names this line, what is wrong with it, and what to type."""
        shown = " ".join(self.parts)
        return NotPlainError(f"line {self.first + 1}: `{shown[:60]}{'...' * (len(shown) > 60)}`: {why}")


@dataclass(frozen=True)
class Variables:
    """Evaluate the variables of a script from their definitions."""

    definitions: Mapping[str, tuple[Command, ...]]

    @classmethod
    def of(cls, commands: Sequence[Command]) -> Variables:
        """Return the variables that the commands define."""
        found: dict[str, tuple[Command, ...]] = {}
        for command in commands:
            if command.name == "variable" and len(command.words) > 3:
                found[command.words[1]] = (*found.get(command.words[1], ()), command)
        return cls(found)

    def number(self, word: str) -> int | None:
        """Return the integer that a word means, also through a variable; None if the script does not define it."""
        text = self.expanded(word)
        return int(text) if text.isdecimal() else None

    def is_step(self, name: str) -> bool:
        """Return True for a variable that is the step."""
        return [each.words[2:] for each in self.definitions.get(name, ())] == [("equal", "step")]

    def expanded(self, text: str) -> str:
        """Return a text with the definition of each variable in its place; one that is not defined once stays."""
        for _ in range(len(self.definitions) + 1):
            text = _REFERENCE.sub(self._definition, text)
        return text

    def _definition(self, match: re.Match[str]) -> str:
        found = self.definitions.get(match[1] or match[2] or match[3], ())
        return " ".join(found[0].words[3:]) if len(found) == 1 else match[0]


def formulas(word: str) -> list[str]:
    """Return the formulas `$(...)` in a word, without their formats."""
    return [match[1].partition(":%")[0] for match in FORMULA.finditer(word)]


def commands_in(lines: Sequence[str]) -> Iterator[Command]:
    """Yield the commands of a script."""
    first, text = 0, ""
    for number, line in enumerate(lines):
        text += line.rstrip()
        if text.count(_TRIPLE) % 2:
            text += "\n"
            continue
        parts = [match[0] for match in _WORD.finditer(text)]
        parts = parts[:-1] if parts and parts[-1].startswith("#") else parts
        if parts and parts[-1].endswith("&"):
            text = " ".join(parts)[:-1]
            continue
        if parts:
            yield Command(tuple(parts), first, number)
        first, text = number + 1, ""


def active(commands: Sequence[Command]) -> tuple[Command, ...]:
    """Return the commands without those fixes and dumps that a later one of them removes."""
    removed = [
        ((each.name.removeprefix("un"), *each.words[1:2]), at)
        for at, each in enumerate(commands)
        if each.name in ("unfix", "undump")
    ]
    return tuple(
        each for at, each in enumerate(commands) if not any(each.words[:2] == key and at < end for key, end in removed)
    )


def is_input(path: Path) -> bool:
    """Return True for a script that begins a simulation of LAMMPS."""
    try:
        names = {command.name for command in commands_in(path.read_text().splitlines())}
    except (UnicodeDecodeError, OSError):
        return False
    return {"run", "units"} <= names and bool(names & BOX)
