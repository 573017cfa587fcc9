"""Words of a command line as far as they are known before any job runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What is known of a part of a word."""

    TEXT = "text"
    PLACEHOLDER = "placeholder"  # the name of one of the engine command's
    SHELL = "shell"  # source that a shell in the job expands, such as $USER
    COUNT = "count"  # a number that is known to be above 0, such as how often a job was requeued
    ARGUMENT = "argument"  # of the script, that nobody has typed: empty, but no program is started by it
    UNSURE = "unsure"  # known in the job alone, by what the script did there


@dataclass(frozen=True)
class Part:
    """A part of a word; `is_split` where bash would split it at blanks, `line` is where it was written."""

    kind: Kind
    text: str
    is_split: bool = False
    line: int = 0


@dataclass(frozen=True)
class Word:
    """One word; no parts are the empty word."""

    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, text: str) -> Word:
        """A word that is wholly known."""
        return cls((Part(Kind.TEXT, text),) if text else ())

    @property
    def text(self) -> str | None:
        """The word if it is wholly known."""
        known = all(part.kind is Kind.TEXT for part in self.parts)
        return "".join(part.text for part in self.parts) if known else None

    @property
    def source(self) -> str:
        """The word much as it was written, to be shown."""
        return "".join(_SHOWN.get(part.kind, "{}").format(part.text) for part in self.parts)

    def has(self, kind: Kind) -> bool:
        """True if a part of the word is of that kind."""
        return any(part.kind is kind for part in self.parts)

    def find(self, kind: Kind) -> Part | None:
        """The first part of that kind."""
        return next((part for part in self.parts if part.kind is kind), None)

    def with_facts(self, facts: Mapping[str, str]) -> Word:
        """The word with those placeholders filled whose values are given."""
        filled = [
            Part(Kind.TEXT, facts[part.text]) if part.kind is Kind.PLACEHOLDER and part.text in facts else part
            for part in self.parts
        ]
        return Word(tuple(filled))

    def mapped(self, change: Callable[[str], str]) -> Word:
        """The word with its text changed; only of a word that is wholly known, others stay."""
        return Word.of(change(self.text)) if self.text is not None else self


_SHOWN = {Kind.PLACEHOLDER: "{{{}}}"}


def joined(words: Iterable[Word]) -> Word:
    """The words without anything between them."""
    return Word(tuple(part for word in words for part in word.parts))


def split(word: Word) -> list[Word]:
    """What bash makes of it: known text that stood outside quotes is split at blanks; no word of nothing."""
    done: list[list[Part]] = []
    current: list[Part] | None = None
    for part in word.parts:
        if not part.is_split or part.kind is not Kind.TEXT:
            current = [*(current or []), part]
            continue
        pieces = part.text.split()
        if not pieces:
            continue
        if part.text[0].isspace() and current is not None:
            done, current = [*done, current], None
        current = [*(current or []), Part(Kind.TEXT, pieces[0])]
        for piece in pieces[1:]:
            done, current = [*done, current], [Part(Kind.TEXT, piece)]
        if part.text[-1].isspace():
            done, current = [*done, current], None
    return [Word(tuple(parts)) for parts in [*done, *([current] if current is not None else [])]]


def template(word: Word) -> str:
    """The word for the engine command: placeholders in braces, other braces twice."""
    return "".join(
        f"{{{part.text}}}" if part.kind is Kind.PLACEHOLDER else _braces_twice(part.text) for part in word.parts
    )


def shell_line(words: Sequence[Word]) -> str:
    """The words as a line for a shell in the job, for the engine command."""
    return " ".join(_shell_word(word) for word in words)


def needs_shell(words: Sequence[Word]) -> bool:
    """True if a shell in the job has to expand one of them."""
    return any(word.has(Kind.SHELL) for word in words)


def _shell_word(word: Word) -> str:
    return "".join(_shell_part(part) for part in word.parts) or "''"


def _shell_part(part: Part) -> str:
    if part.kind is Kind.SHELL:
        text = _braces_twice(part.text)
        return text if part.is_split or not part.text.startswith("$") else f'"{text}"'
    if part.kind is Kind.PLACEHOLDER:
        return f'"{{{part.text}}}"'
    return _braces_twice(shlex.quote(part.text))


def _braces_twice(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
