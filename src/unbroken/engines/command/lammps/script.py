"""Reads an input script of LAMMPS: its commands, their words, and the variables with one known value.

The rules of https://docs.lammps.org/Commands_parse.html: `&` continues a line, `#` begins a comment, quotes keep words
together and leave the `$` in them for later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from unbroken.engines.script_edit import NotPlainError

# Commands that make the system.
BOX = frozenset({"create_box", "read_data"})
_TRIPLE = '"""'
# A formula in parentheses, which may hold two more levels of them.
IMMEDIATE = r"\$\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
_QUOTED = r'"""(?P<triple>.*?)"""|"(?P<double>[^"]*)"|\'(?P<single>[^\']*)\''
_WORD = re.compile(rf"{_QUOTED}|(?P<plain>(?:{IMMEDIATE}|[^\s#])+)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w)")
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
# What a formula may name and still have the same value at every step and in every box.
_CONSTANT_NAMES = frozenset(
    {
        "PI",
        "version",
        "dt",
        "sqrt",
        "exp",
        "ln",
        "log",
        "abs",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "ceil",
        "floor",
        "round",
        "ternary",
        "yes",
        "no",
        "on",
        "off",
    }
)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, as a set of names."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Word:
    """A word of a command, and where it stands in the command's text, quotes included."""

    text: str
    start: int
    end: int
    is_quoted: bool


@dataclass(frozen=True)
class Command:
    """A command of an input script: its text on one line, its words, and the lines of the file that it stands in."""

    text: str
    parts: tuple[Word, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        """Return the command's first word."""
        return self.parts[0].text

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return all words without their quotes."""
        return tuple(word.text for word in self.parts)

    def value(self, keyword: str, start: int = 1) -> str:
        """Return the word after a keyword that stands at `start` or later, empty if it is not there."""
        words = self.words
        found = [words[at + 1] for at in range(start, len(words) - 1) if words[at] == keyword]
        return found[-1] if found else ""

    def changed(self, changes: Mapping[int, str]) -> str:
        """Return the text with some words, by their place, written in another way."""
        text = self.text
        for at in sorted(changes, reverse=True):
            text = text[: self.parts[at].start] + changes[at] + text[self.parts[at].end :]
        return text

    def refused(self, why: str) -> NotPlainError:
        """Return the error that names this line, what is wrong with it, and what to type."""
        shown = " ".join(self.text.split())
        return NotPlainError(f"line {self.first + 1}: `{shown[:60]}{'...' * (len(shown) > 60)}`: {why}")


@dataclass(frozen=True)
class Variables:
    """The variables of a script, by what their definitions say."""

    definitions: Mapping[str, tuple[Command, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, commands: Sequence[Command]) -> Variables:
        """Return the variables that the commands define."""
        found: dict[str, tuple[Command, ...]] = {}
        for command in commands:
            if command.name == "variable" and len(command.words) > 3:
                found[command.words[1]] = (*found.get(command.words[1], ()), command)
        return cls(found)

    def number(self, word: str) -> int | None:
        """Return the whole number that a word stands for, also by a variable; None if the script does not say it."""
        if word.isdecimal():
            return int(word)
        name = _REFERENCE.fullmatch(word)
        defined = self.definitions.get((name[1] or name[2]) if name else word.removeprefix("v_"), ())
        if len(defined) != 1 or (name is None and not word.startswith("v_")) or len(defined[0].words) != 4:
            return None
        return self.number(defined[0].words[3]) if defined[0].words[3] != word else None

    def is_step(self, name: str) -> bool:
        """Return True for a variable that is the step."""
        defined = self.definitions.get(name, ())
        return len(defined) == 1 and defined[0].words[2:] == ("equal", "step")

    def names_in(self, formula: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """Return the keywords and functions that a formula needs, through all variables that it names."""
        names: set[str] = set()
        for reference in _REFERENCE.finditer(formula):
            names |= self._names_of(reference[1] or reference[2], seen)
        for each in _IDENTIFIER.findall(_REFERENCE.sub(" ", formula)):
            names |= self._names_of(each[2:], seen) if each.startswith("v_") else {each}
        return names

    def _names_of(self, variable: str, seen: frozenset[str]) -> set[str]:
        if variable in seen:
            return set()
        formulas = [
            " ".join(each.words[3:])
            for each in self.definitions.get(variable, ())
            if each.words[2] in ("equal", "atom", "vector")
        ]
        return {name for each in formulas for name in self.names_in(each, seen | {variable})}

    def measured_in(self, command: Command) -> str:
        """Return what of the system's state the command puts into its own text when it is read; empty if nothing.

        `variable L0 equal ${length}` keeps a length of the moment.  Read once more on a resume, it would keep another.
        """
        for word in command.parts:
            formulas = (
                () if word.is_quoted else (*(each[0] for each in _REFERENCE.finditer(word.text)), *_formulas(word))
            )
            for formula in formulas:
                if names := self.names_in(formula) - _CONSTANT_NAMES:
                    return min(names)
        return ""

    def needed_by(self, command: Command) -> set[str]:
        """Return the keywords and functions in a command's formulas, now or later."""
        texts = [formula for word in command.parts for formula in _formulas(word)]
        texts += [each[0] for word in command.parts for each in _REFERENCE.finditer(word.text)]
        texts += [word for word in command.words if word.startswith("v_")]
        if command.name == "variable" and len(command.words) > 3 and command.words[2] in ("equal", "atom", "vector"):
            texts.append(" ".join(command.words[3:]))
        return {name for text in texts for name in self.names_in(text)}


def _formulas(word: Word) -> list[str]:
    return [match[1].partition(":%")[0] for match in re.finditer(IMMEDIATE, word.text)]


def commands_in(lines: Sequence[str]) -> Iterator[Command]:
    """Yield the commands of a script, each on one line."""
    first, text = 0, ""
    for number, line in enumerate(lines):
        text += line.rstrip()
        if text.count(_TRIPLE) % 2:
            text += "\n"
            continue
        text, words = _split(text)
        if text.endswith("&"):
            text = text[:-1]
            continue
        if words:
            yield Command(text, words, first, number)
        first, text = number + 1, ""


def _split(text: str) -> tuple[str, tuple[Word, ...]]:
    """Return the text without its comment, and its words."""
    words: list[Word] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == "#":
            return text[:at].rstrip(), tuple(words)
        else:
            match = _WORD.match(text, at)
            if match is None:
                break
            kind = next(name for name, found in match.groupdict().items() if found is not None)
            words.append(Word(match[kind], match.start(), match.end(), kind != "plain"))
            at = match.end()
    return text.rstrip(), tuple(words)


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
