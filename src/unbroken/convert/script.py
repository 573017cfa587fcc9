"""Read a script of bash as commands with their places in the text; nothing is run and nothing is expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.errors import ConfigError

_OPERATOR = re.compile(r"&&|\|\||\|&|;;&?|;&|<<<|<<-?|&>>?|\d*[<>]&[\d-]*|\d*>>|\d*>\||\d*[<>]|[|&;()\n]")
_REDIRECT = re.compile(r"&>|\d*[<>]")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=")
_OPENS = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}"}
_CLOSES = {*_OPENS.values()}
_KEYWORDS = {*_OPENS, *_CLOSES, "then", "else", "elif", "do", "function"}


@dataclass(frozen=True)
class Script:
    """A script, and the folder in which its user submits it."""

    name: str
    text: str
    folder: Path

    def line_at(self, offset: int) -> int:
        """Return the number of the line in which an offset lies."""
        return self.text.count("\n", 0, offset) + 1

    def is_file(self, name: str) -> bool:
        """Return True if its folder has a file of this name."""
        return bool(name) and (self.folder / name).is_file()

    def refused(self, line: int, why: str) -> ConfigError:
        """Return the error that names a line."""
        return ConfigError([f"{self.name} line {line}: {why}"])


@dataclass(frozen=True)
class Token:
    """A word or an operator as it is written."""

    text: str
    start: int
    end: int
    is_word: bool


@dataclass
class Command:
    """A simple command: `lead` are the keywords before it, `before` and `after` the operators around it."""

    before: str
    start: int
    line: int
    lead: list[str] = field(default_factory=list)
    assignments: list[Token] = field(default_factory=list)
    words: list[Token] = field(default_factory=list)
    redirects: list[tuple[str, Token]] = field(default_factory=list)
    end: int = 0
    after: str = ""
    depth: int = 0

    @property
    def name(self) -> str:
        """Return the first word of the command."""
        return self.words[0].text if self.words else ""

    @property
    def written(self) -> str:
        """Return the words of the command, separated by blanks."""
        return " ".join(word.text for word in [*self.assignments, *self.words])


@dataclass
class Statement:
    """Commands that belong together: one, some that are joined by `&&`, `||` or `|`, or a block."""

    commands: list[Command]
    start: int
    end: int
    line: int

    @property
    def kind(self) -> str:
        """Return the keyword of a block, such as `if`; of a function `function`; else nothing."""
        return next((word for command in self.commands for word in command.lead), "")


def element_end(text: str, at: int) -> int:
    """Return the end of what begins here: a quoted text, an expansion, or a single character."""
    if text[at] == "\\":
        return at + 2
    if text[at] == "'":
        return text.index("'", at + 1) + 1
    if text[at] in '"`':
        return _closed(text, at + 1, text[at])
    if text.startswith(("$(", "${"), at):
        return _closed(text, at + 2, ")" if text[at + 1] == "(" else "}")
    return at + 1


def _closed(text: str, at: int, closing: str) -> int:
    """Return the end of a text that a bracket or quote closes; raise IndexError if none does."""
    while text[at] != closing:
        if text[at] == "(" and closing == ")":
            at = _closed(text, at + 1, ")")
        else:
            at = at + 1 if text[at] == "'" and closing == '"' else element_end(text, at)
    return at + 1


def parse(script: Script) -> list[Statement]:
    """Return the statements of a script; ConfigError by line if it is no bash, or no script for Slurm."""
    for number, line in enumerate(script.text.splitlines(), 1):
        if number == 1 and (found := re.match(r"#!.*\b(t?csh|fish|zsh|python[\d.]*|perl)\b", line)):
            raise script.refused(1, f"a script of {found[1]}; convert reads bash")
        if found := re.match(r"#(PBS|BSUB)\s", line):
            raise script.refused(number, f"a script for {found[1]}; convert reads scripts for Slurm (#SBATCH)")
    commands = list(_commands(script, _tokens(script)))
    statements, first = list[Statement](), 0
    for at, command in enumerate(commands):
        if command.depth == 0 and command.after in (";", "\n", "&"):
            group = commands[first : at + 1]
            statements.append(Statement(group, group[0].start, command.end, group[0].line))
            first = at + 1
    if first < len(commands):
        raise script.refused(commands[first].line, "this block is not closed, or not understood as bash")
    return statements


def _tokens(script: Script) -> list[Token]:
    text, at, found, ends = script.text.replace("\\\n", "  "), 0, list[Token](), list[str]()
    try:
        while at < len(text):
            if text[at].isspace() and text[at] != "\n":
                at += 1
                continue
            if text[at] == "#":
                at = _line_end(text, at)
                continue
            end = _word_end(text, at)
            operator = _OPERATOR.match(text, at) if end == at else None
            end = operator.end() if operator else end
            found.append(Token(text[at:end], at, end, not operator))
            at = end
            if len(found) > 1 and found[-2].text in ("<<", "<<-"):
                ends.append(found[-1].text.strip("'\"\\"))
            while found[-1].text == "\n" and ends:
                line, at = text[at : _line_end(text, at)], _line_end(text, at) + 1
                ends = ends[1:] if line.strip() == ends[0] or at >= len(text) else ends
    except (ValueError, IndexError) as error:
        raise script.refused(script.line_at(at), "a quote or bracket is not closed") from error
    return [*found, Token("\n", len(text), len(text), is_word=False)]


def _line_end(text: str, at: int) -> int:
    return (text + "\n").index("\n", at)


def _word_end(text: str, at: int) -> int:
    """Return the end of the word that begins here; the same place if it is an operator."""
    for opening, closing in (("[[ ", "]]"), ("((", "))")):
        if text.startswith(opening, at):
            return text.index(closing, at) + 2
    end = at
    while not _OPERATOR.match(text, end) if end == at else end < len(text) and not re.match(r"[\s;&|<>()]", text[end]):
        end = element_end(text, end)
        if text.startswith("(", end) and ASSIGNMENT.fullmatch(text, at, end):
            end = _closed(text, end + 1, ")")
    return end


def _commands(script: Script, tokens: list[Token]) -> Iterator[Command]:
    """Yield the commands between the operators, each with the depth of the block that it ends in."""
    depth, before, at = 0, "", 0
    while at < len(tokens):
        command = Command(before, tokens[at].start, script.line_at(tokens[at].start))
        while tokens[at].is_word or _REDIRECT.match(tokens[at].text):
            token, at = tokens[at], at + 1
            if not token.is_word:
                if "&" not in token.text[1:]:
                    command.redirects.append((token.text, tokens[at]))
                    at += 1
            elif not command.words and not command.assignments and token.text in _KEYWORDS:
                command.lead.append(token.text)
                depth += (token.text in _OPENS) - (token.text in _CLOSES)
            elif not command.words and ASSIGNMENT.match(token.text):
                command.assignments.append(token)
            else:
                command.words.append(token)
            if (token.text == "in" and command.lead[-1:] == ["case"]) or (
                command.words and command.lead == ["function"]
            ):
                break
        operator, command.end = tokens[at].text, tokens[at - 1].end
        is_case = command.lead[-1:] == ["case"]
        if len(command.words) == 1 and [each.text for each in tokens[at : at + 2]] == ["(", ")"]:
            command.lead, at = ["function"], at + 2
        if command.lead == ["function"]:  # its body follows
            at, operator = at + (tokens[at].text == "\n"), ""
        elif not is_case:
            at += 1
            command.lead += ["("] if operator == "(" else []
            depth += (operator == "(") - (operator == ")")
        if is_case or operator in (";;", ";&", ";;&"):
            at = _after_pattern(tokens, at)
            operator = ";"
        before, command.after, command.depth = operator, operator, depth
        if command.lead or command.words or command.assignments or operator == ")":
            yield command


def _after_pattern(tokens: list[Token], at: int) -> int:
    """Return the place after the pattern of a `case`; that of `esac` after the last one."""
    while tokens[at].text == "\n" and at + 1 < len(tokens):
        at += 1
    if tokens[at].text == "esac":
        return at
    at += tokens[at].text == "("
    return next((end + 1 for end in range(at, len(tokens)) if tokens[end].text == ")"), len(tokens))
