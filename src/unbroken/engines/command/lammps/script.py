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
_SUFFIX = re.compile(r"/(omp|gpu|intel|opt|kk|kk/device|kk/host)$")
_TRIPLE = '"""'
# A formula in parentheses, which may hold two more levels of them.
_FORMULA = re.compile(r"\$\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_WORD = re.compile(rf'#.*|"""(?:.*?)"""|"[^"]*"|\'[^\']*\'|(?:{_FORMULA.pattern}|[^\s#])+', re.DOTALL)
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
        quotes = [next((each for each in (_TRIPLE, '"', "'") if part.startswith(each)), "") for part in self.parts]
        return tuple(part.removeprefix(q).removesuffix(q) for part, q in zip(self.parts, quotes, strict=True))

    @property
    def style(self) -> str:
        """Return the style of a `fix` or `dump` without the suffix of an accelerator; "" for other commands."""
        return _SUFFIX.sub("", self.words[3]) if self.name in ("fix", "dump") and len(self.words) > 3 else ""

    def word(self, at: int) -> str:
        """Return a word by its place; "" if there are fewer."""
        return self.words[at] if at < len(self.words) else ""

    def value(self, *keywords: str, start: int = 1) -> str:
        """Return the word after the last of these keywords at `start` or later; "" if there is none."""
        found = [at + 1 for at in range(start, len(self.words) - 1) if self.words[at] in keywords]
        return self.words[found[-1]] if found else ""

    def changed(self, changes: Mapping[int, str]) -> str:
        """Return the command with some words, by their place, written in another way."""
        return " ".join(changes.get(at, part) for at, part in enumerate(self.parts))

    def refused(self, why: str) -> NotPlainError:
        """Return the error that names this line, what is wrong with it, and what to type."""
        shown = " ".join(self.parts)
        return NotPlainError(f"line {self.first + 1}: `{shown[:60]}{'...' * (len(shown) > 60)}`: {why}")


class Variables:
    """Evaluate the variables of a script from their definitions."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._definitions: dict[str, list[Command]] = {}
        for command in commands:
            if command.name == "variable" and len(command.words) > 3:
                self._definitions.setdefault(command.words[1], []).append(command)

    def number(self, word: str) -> int | None:
        """Return the integer that a word means, also through a variable; None if the script does not define it."""
        text = self.expanded(word)
        return int(text) if text.isdecimal() else None

    def is_step(self, name: str) -> bool:
        """Return True for a variable that is the step."""
        return [each.words[2:] for each in self._definitions.get(name, ())] == [("equal", "step")]

    def expanded(self, text: str) -> str:
        """Return a text with the definition of each variable in its place; one that is not defined once stays."""
        for _ in range(len(self._definitions) + 1):
            text = _REFERENCE.sub(self._definition, text)
        return text

    def changing_value(self, word: str) -> str:
        """Return a name in a word whose value LAMMPS takes when it reads the line; "" if each is a text or a number."""
        if word.startswith(("'", '"')):
            return ""
        for each in [*re.findall(r"\$\{\w+\}|\$\w", word), *formulas(word)]:
            found = re.search(r"[A-Za-z]\w*", re.sub(r"\d[eE][-+]?\d", "0", self.expanded(each)))
            if found and not self._is_text(each):
                return found[0]
        return ""

    def _is_text(self, reference: str) -> bool:
        name = re.fullmatch(r"\$\{?(\w+)\}?", reference)
        found = self._definitions.get(name[1], ()) if name else ()
        return name is not None and not any(each.words[2] in ("equal", "atom", "vector") for each in found)

    def _definition(self, match: re.Match[str]) -> str:
        found = self._definitions.get(match[1] or match[2] or match[3], ())
        return " ".join(found[0].words[3:]) if len(found) == 1 else match[0]


def formulas(word: str) -> list[str]:
    """Return the formulas `$(...)` in a word, without their formats."""
    return [match[1].partition(":%")[0] for match in _FORMULA.finditer(word)]


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


def active(commands: Sequence[Command]) -> list[Command]:
    """Return the commands without those fixes and dumps that a later one of them removes."""
    found: list[Command] = []
    for command in commands:
        if command.name in ("unfix", "undump"):
            removed = (command.name.removeprefix("un"), *command.words[1:2])
            found = [each for each in found if each.words[:2] != removed]
        else:
            found.append(command)
    return found


def is_input(path: Path) -> bool:
    """Return True for a script that begins a simulation of LAMMPS."""
    try:
        names = {command.name for command in commands_in(path.read_text().splitlines())}
    except (UnicodeDecodeError, OSError):
        return False
    return {"run", "units"} <= names and bool(names & BOX)
