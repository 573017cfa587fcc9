"""Simple commands of a script: what each is for, and which is the program."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unbroken.config.tasks import is_launcher
from unbroken.convert.bash import command_name, commands_in, fragment, line_of, text_of, walk
from unbroken.convert.command_line import taken_apart
from unbroken.convert.names import DMTCP_HELPERS, FILES, INSTALLS, MANAGERS, MODULE, NO_PROGRAM, ONCE, REMOVES, STOPS
from unbroken.convert.seen import HandedOn, Launched, Step
from unbroken.convert.steps import StepReader, base_name
from unbroken.convert.words import Kind, Part, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_WHY_STOP = "unbroken tells the program to save, and stops it, in time by itself"
_WHY_WRITES = "changes a file before the program starts: do it once, by hand"
WHY_AGAIN = "unbroken submits the next segment by itself"
_SIGNAL = re.compile(r"-(?:s\s*|-signal[= ])?(?:SIG)?(HUP|INT|TERM|USR1|USR2|CONT|10|12|15|1|2)\b")
_SIGNAL_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "1": "HUP", "2": "INT"}
_DEPTH = 20
# A file of the program's own folder, that a shell takes as it stands.
_PLAIN = re.compile(r"[\w.+-]+")


class ScriptEnd(Exception):
    """The script ends here in this kind of job."""


class CommandReader(StepReader, ABC):
    """Notes in `scope.seen` what commands are for."""

    @abstractmethod
    def statement(self, node: Node) -> None:
        """Reads a statement of any kind, such as the body of a function."""

    # --- simple commands ---

    def command(self, node: Node) -> None:
        name, line = command_name(node), line_of(node)
        if not name:
            return
        own = [child for child in node.named_children if child.type == "variable_assignment"]
        arguments = node.children_by_field_name("argument")
        for argument in arguments:
            self.submissions(argument)
        words = [word for child in arguments for word in self.scope.words(child)]
        first = self.scope.words(node.child_by_field_name("name").named_children[0])  # type: ignore[union-attr]
        if not first:
            return
        words = [*first, *words]
        name = base_name(words[0].source)
        if words[0].text is not None and words[0].text in self.scope.functions:
            self._call(words[0].text, words[1:])
            return
        self._simple(name, words, line, node, own)

    def _simple(self, name: str, words: list[Word], line: int, node: Node, own: Sequence[Node]) -> None:
        text = text_of(node)
        if name == "exit":
            raise ScriptEnd
        if name == "cd" or name == "pushd":
            self.cd(words[1:], line)
        elif name in MODULE:
            self._module([word.source for word in words[1:]], line, text)
        elif name in ("source", "."):
            self._source(words[1:], line, text)
        elif name in ("conda", "mamba", "micromamba") and [word.source for word in words[1:2]] == ["activate"]:
            self.conda(words[2:], line)
        elif name == "set":
            self.seen.is_strict |= any(re.match(r"-\w*e", word.source) for word in words[1:])
        elif name == "trap":
            self._trap(node, line)
        elif name == "sbatch":
            self.submit(node)
        elif name == "scontrol" and "requeue" in text:
            self.seen.resubmitted.append(line)
            self.seen.drop(line, text, WHY_AGAIN)
        elif name in ("read", "mapfile", "readarray", "getopts"):
            self._reads(name, words[1:], line)
        elif name in STOPS:
            self.seen.drop(line, text, _WHY_STOP)
        elif name in DMTCP_HELPERS:
            self.seen.drop(line, text, "the engine dmtcp has a coordinator of its own")
        elif name in ("gmx", "gmx_mpi", "gmx_d", "gmx_mpi_d") and "grompp" in text:
            self.seen.grompp.append(Launched(tuple(words), line))
        elif name in MANAGERS and not self.is_program(node):
            self._manager(words, line, text)
        elif name == "sed" and "-i" in text and not self.seen.programs:
            self.seen.lose(line, text, _WHY_WRITES)
        elif name in ONCE:
            self.seen.lose(line, text, "prepares what stays: do it once, by hand")
        elif name in INSTALLS:
            self.prologue(words[1:], name, line, text)
        elif name in FILES | REMOVES:
            self.files(name, words, line, text)
        elif self.is_program(node):
            self._program(words, line, own)

    def _reads(self, name: str, words: list[Word], line: int) -> None:
        for word in words:
            why = f"`${word.source}` is what `{name}` reads in the job; write out what it is"
            self.scope.variables[word.source] = Word((Part(Kind.UNSURE, why, line=line),))

    def _manager(self, words: list[Word], line: int, text: str) -> None:
        """`spack load` and its like; what only prepares the shell is left out."""
        if any(word.source in ("init", "deactivate", "info", "list", "env", "config") for word in words[1:3]):
            return
        self.prologue(words[1:], words[0].source, line, text)

    def _program(self, words: list[Word], line: int, own: Sequence[Node]) -> None:
        if self.seen.programs:
            before = self.seen.programs[0]
            if [word.source for word in before.words] == [word.source for word in words]:
                return
            raise self.scope.script.refused(
                line,
                f"a second program, {_program_name(words)}, beside {_program_name(before.words)} of line {before.line};"
                " one run is one program: make a script, and a run, of each",
            )
        extra = []
        for each in own:
            name, value = each.child_by_field_name("name"), each.child_by_field_name("value")
            if name is not None:
                extra.append((text_of(name), self.scope.word(value, is_quoted=True) if value is not None else Word()))
        self.seen.programs.append(Launched(tuple(words), line, environment=tuple(extra)))

    def _call(self, name: str, arguments: list[Word]) -> None:
        self._depth += 1
        if self._depth < _DEPTH:
            outer, self.scope.arguments = self.scope.arguments, tuple(arguments)
            self.statement(self.scope.functions[name])
            self.scope.arguments = outer
        self._depth -= 1

    def _module(self, words: list[str], line: int, text: str) -> None:
        plain = [word for word in words if not word.startswith("-")]
        if not plain:
            return
        what, names = plain[0], plain[1:]
        if text.split()[0] == "ml" and what not in ("load", "add", "purge", "use", "restore", "unload", "list", "swap"):
            what, names = "load", plain
        if what in ("load", "add", "try-load"):
            self.seen.modules += [(name, line) for name in names]
        elif what in ("purge", "reset", "unload", "rm"):
            self.seen.drop(line, text, "a segment begins without the modules of the shell that submits")
        elif what in ("list", "avail", "show", "whatis", "spider"):
            return
        else:
            self.seen.prologue.append(Step(text, line))

    def _source(self, words: list[Word], line: int, text: str) -> None:
        if not words:
            return
        source = words[0].source
        if base_name(source).startswith("GMXRC"):
            self.seen.gmxrc = words[0], line
        elif source.startswith("/etc/profile") or "/modules/init/" in source:
            self.seen.drop(line, text, "unbroken starts bash as a login shell does, for the modules")
        else:
            self.prologue(words, "source", line, text)

    # --- the next job ---

    def submissions(self, node: Node) -> None:
        """`id=$(sbatch ...)`"""
        for each in commands_in(node):
            if base_name(command_name(each)) == "sbatch":
                self.submit(each)

    def submit(self, node: Node, is_endless: bool = False) -> None:
        line = line_of(node)
        words = [word for child in node.children_by_field_name("argument") for word in self.scope.words(child)]
        self.seen.submitted.append((tuple(words), -line if is_endless else line))

    def _trap(self, node: Node, line: int) -> None:
        """What a signal makes the script do: how the program is told to stop."""
        arguments = node.children_by_field_name("argument")
        self.seen.drop(line, text_of(node), _WHY_STOP)
        if not arguments:
            return
        words = self.scope.words(arguments[0])
        text = words[0].source if words else ""
        body = self.scope.functions.get(text)
        tree = body if body is not None else fragment(text_of(arguments[0])[1:-1])
        for each in commands_in(tree):
            self._trapped(each, text_of(each), line)
        for each in walk(tree):
            if each.type == "redirected_statement" and text_of(each).startswith("echo "):
                self._stop_text(each, line)

    def _stop_text(self, node: Node, line: int) -> None:
        """`echo text > STOP`"""
        body, redirect = node.child_by_field_name("body"), node.child_by_field_name("redirect")
        target = redirect.child_by_field_name("destination") if redirect is not None else None
        if body is None or target is None or text_of(target).isdecimal() or "/dev/" in text_of(target):
            return
        words = [word for child in body.children_by_field_name("argument") for word in self.scope.words(child)]
        if all(word.text is not None for word in words):
            self.seen.stop_file = self.scope.word(target, is_quoted=True), line
            self.seen.stop_text = " ".join(word.text or "" for word in words)

    def _trapped(self, node: Node, text: str, line: int) -> None:
        name = base_name(command_name(node))
        if name in ("kill", "scancel", "pkill") and (found := _SIGNAL.search(text)):
            number = _SIGNAL_NUMBERS.get(found[1], found[1])
            if number in ("HUP", "INT", "TERM", "USR1", "USR2"):
                self.seen.stop_signal = number, line
        elif name == "touch":
            words = [word for child in node.children_by_field_name("argument") for word in self.scope.words(child)]
            if len(words) == 1:
                self.seen.stop_file = words[0], line
        elif name == "sbatch" or (name == "scontrol" and "requeue" in text):
            self.seen.resubmitted.append(line)
        elif name in FILES | REMOVES or self.is_program(node):
            self._handed_on(name, node, text)
            self.seen.lose(line_of(node), text, "is done when the script is told to stop; a segment does nothing then")

    def _handed_on(self, name: str, node: Node, text: str) -> None:
        words = [word for child in node.children_by_field_name("argument") for word in self.scope.words(child)]
        match [word.text or "" for word in words if not word.source.startswith("-")]:
            case [source, target] if name in ("cp", "mv") and _PLAIN.fullmatch(source) and _PLAIN.fullmatch(target):
                found = HandedOn(source, target, line_of(node), text)
                if found not in self.seen.handed_on:
                    self.seen.handed_on.append(found)

    # --- what is a program ---

    def starts_program(self, node: Node) -> bool:
        return any(self.is_program(each) for each in commands_in(node))

    def is_program(self, node: Node) -> bool:
        name = command_name(node)
        base = base_name(name)
        if not base or name in self.scope.functions:
            return bool(name in self.scope.functions and self.starts_program(self.scope.functions[name]))
        if is_launcher(base):
            words = [Word.of(text_of(each)) for each in node.children_by_field_name("argument")]
            base = taken_apart([Word.of(base), *words]).program
        if base in MANAGERS:
            return " run " in text_of(node)
        if base in ("gmx", "gmx_mpi", "gmx_d", "gmx_mpi_d"):
            return "grompp" not in text_of(node)
        return base not in NO_PROGRAM


def _program_name(words: Sequence[Word]) -> str:
    return " ".join(word.source for word in words[:3])
