"""A walk through a script: what its commands are for, and the program that it starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unbroken.convert.bash import command_name, commands_in, line_of, text_of, walk
from unbroken.convert.commands import WHY_AGAIN, CommandReader, ScriptEnd
from unbroken.convert.conditions import holds
from unbroken.convert.loops import times
from unbroken.convert.names import MATTERS, QUIET
from unbroken.convert.seen import Launched, World
from unbroken.convert.steps import base_name
from unbroken.convert.words import Kind, Part, Word

if TYPE_CHECKING:
    from tree_sitter import Node


# `$? -eq 85` or `"$code" == 85`; timeout(1) says 124 itself, and 0 is the end.
_EXIT_CODE = re.compile(r"\$\{?(?:\?|\w+)[^ ]*\s+(?:-eq|==|=)\s+[\"']?(\d{1,3})\b")
_NO_PAUSE = (0, 124)


class Reader(CommandReader):
    """Reads a script for one kind of job; what it comes across is in `scope.seen`."""

    def read(self, root: Node) -> None:
        """From the first line to the end, or to an `exit` that is surely reached."""
        try:
            self._all(root.named_children)
        except ScriptEnd:
            return

    # --- statements ---

    def _all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.statement(node)

    def statement(self, node: Node) -> None:
        match node.type:
            case "comment":
                return
            case "command":
                self.command(node)
            case "variable_assignment" | "variable_assignments":
                self._assign_all(node, is_exported=False)
            case "declaration_command":
                self._assign_all(node, is_exported=text_of(node).startswith(("export", "declare -x", "typeset -x")))
            case "redirected_statement":
                self._redirected(node)
            case "list":
                self._list(node)
            case "if_statement":
                self._if(node)
            case "pipeline":
                self._pipeline(node)
            case "function_definition":
                self.scope.functions[text_of(node.named_children[0])] = node.named_children[-1]
            case "compound_statement" | "subshell" | "do_group" | "program":
                if not text_of(node).startswith("(("):
                    self._all(node.named_children)
            case "negated_command":
                self.statement(node.named_children[0])
            case "for_statement" | "while_statement" | "c_style_for_statement":
                self._loop(node)
            case "case_statement":
                self._case(node)
            case "test_command" | "unset_command":
                return
            case _:
                self._unknown(node, "is not understood")

    def _assign_all(self, node: Node, is_exported: bool) -> None:
        found = [node] if node.type == "variable_assignment" else node.named_children
        for each in found:
            if each.type == "variable_assignment":
                self._assign(each, is_exported)
            elif each.type == "variable_name" and is_exported:
                name = text_of(each)
                if (value := self.scope.value(name, line_of(each))) is not None:
                    self._export(name, value, line_of(each))

    def _assign(self, node: Node, is_exported: bool) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        key = text_of(name)
        if value is not None and value.type == "array":
            words = [word for child in value.named_children for word in self.scope.words(child)]
            before = self.scope.arrays.get(key, []) if "+=" in text_of(node)[: len(key) + 2] else []
            self.scope.arrays[key] = [*before, *words]
            return
        if value is not None:
            self.submissions(value)
        word = self.scope.word(value, is_quoted=True) if value is not None else Word()
        # Without quotes a pattern stays one until it is used.
        if word.text is not None and "+=" in text_of(node)[: len(key) + 2]:
            word = Word((*(self.scope.value(key, 0) or Word()).parts, *word.parts))
        self.scope.variables[key] = word
        if is_exported:
            self._export(key, word, line_of(node))

    def _export(self, name: str, value: Word, line: int) -> None:
        if not self.seen.programs:
            self.seen.environment[name] = value, line

    def _redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        before = len(self.seen.programs)
        if body is not None:
            self.statement(body)
        if len(self.seen.programs) == before:
            self._written(node)
            return
        stdin = stdout = None
        for redirect in node.children_by_field_name("redirect"):
            target = redirect.child_by_field_name("destination")
            if redirect.type != "file_redirect" or target is None:
                continue
            how = next(
                (child.type for child in redirect.children if child.type in ("<", ">", ">>", "&>", "&>>", ">&")), ""
            )
            if how == "<":
                stdin = self.scope.word(target)
            elif how and not text_of(target).isdecimal():
                stdout = self.scope.word(target)
        last = self.seen.programs[-1]
        self.seen.programs[-1] = Launched(last.words, last.line, stdin, stdout, last.environment)

    def _written(self, node: Node) -> None:
        """A file that the script writes before the program starts, such as by `echo ... > input`."""
        target = next((each for each in node.children_by_field_name("redirect") if each.type == "file_redirect"), None)
        destination = target.child_by_field_name("destination") if target is not None else None
        body = node.child_by_field_name("body")
        if self.seen.programs or target is None or destination is None or body is None or body.type != "command":
            return
        is_file = not text_of(destination).isdecimal() and "/dev/" not in text_of(destination)
        if is_file and text_of(target).startswith((">", "1>", "&>")) and base_name(command_name(body)) in QUIET:
            self.seen.lose(line_of(node), text_of(node), "writes a file before the program starts: do it once, by hand")

    # --- what happens or not ---

    def _list(self, node: Node) -> None:
        left, how, right = node.children[0], text_of(node.children[1]), node.children[-1]
        truth = holds(left, self.scope)
        if truth is None and not _is_condition(left):
            self.statement(left)
            # After a step that goes well; `||` is for one that fails, where unbroken decides what follows.
            if how == "&&":
                self.statement(right)
            else:
                self._failing(right)
            return
        if truth is None:
            self._maybe(right, text_of(left))
        elif truth == (how == "&&"):
            self._branch([right], left)

    def _failing(self, node: Node) -> None:
        self._maybe(node, "the step before fails", is_failure=True)

    def _if(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        branches: list[tuple[Node | None, list[Node]]] = [(condition, _body(node))]
        branches += [
            (child.named_children[0] if child.type == "elif_clause" else None, _body(child))
            for child in node.named_children
            if child.type in ("elif_clause", "else_clause")
        ]
        for test, body in branches:
            if test is not None and self.starts_program(test):
                self.statement(test)
                for _, each in branches:
                    for part in each:
                        self._maybe(part, text_of(test))
                return
            truth = True if test is None else holds(test, self.scope)
            if truth:
                self._branch(body, test)
                return
            if truth is None and test is not None:
                for part in [part for _, each in branches for part in each]:
                    self._maybe(part, text_of(test))
                return

    def _branch(self, body: Sequence[Node], test: Node | None) -> None:
        """What surely happens in this kind of job; an exit there ends this job, and says that the run is done."""
        saved = list(self.seen.saved)
        try:
            self._all(body)
        except ScriptEnd:
            if self.scope.world is World.FRESH or not saved:
                raise
            line = line_of(test) if test is not None else 0
            self.seen.finished += [each for each in saved if each.line == line and each not in self.seen.finished]

    def _maybe(self, node: Node, condition: str, is_failure: bool = False) -> None:
        """What happens by a condition that the job alone knows; a program there is refused."""
        for each in commands_in(node):
            name = base_name(command_name(each))
            if name in ("sbatch",) or ("requeue" in text_of(each) and name == "scontrol"):
                self.seen.resubmitted.append(line_of(each))
                self.seen.drop(line_of(each), text_of(each), WHY_AGAIN)
                if (code := _EXIT_CODE.search(condition)) and int(code[1]) not in _NO_PAUSE:
                    self.seen.paused = int(code[1]), line_of(each)
            elif self.is_program(each) and not self.seen.programs:
                raise self.scope.script.refused(
                    line_of(each),
                    f"whether {name} runs depends on `{condition}`, which the job alone knows; write out what holds",
                )
            elif self.is_program(each) and not is_failure:
                self.seen.lose(line_of(each), text_of(each), f"runs only if `{condition}`, after the program")
            elif name == "exit":
                self.seen.drop(line_of(each), text_of(each), "the program's own end decides what follows")
            elif name in MATTERS and not self.seen.programs:
                self.seen.lose(line_of(each), text_of(each), f"is done only if {condition}")
        for each in walk(node):
            if each.type == "declaration_command" and text_of(each).startswith("export") and not self.seen.programs:
                self.seen.lose(line_of(each), text_of(each), f"is done only if {condition}")
        self._unsure(node, f"`{condition}`")

    def _unsure(self, node: Node, what: str) -> None:
        """Variables that are set there have a value that the job alone knows."""
        for each in walk(node):
            name = each.child_by_field_name("name") if each.type == "variable_assignment" else None
            if each.type == "for_statement":
                name = each.child_by_field_name("variable")
            if name is not None:
                why = f"`${text_of(name)}` depends on {what}, which the job alone knows; write out what holds"
                self.scope.variables[text_of(name)] = Word((Part(Kind.UNSURE, why, line=line_of(each)),))
                self.scope.arrays.pop(text_of(name), None)

    def _case(self, node: Node) -> None:
        word = self.scope.word(node.named_children[0], is_quoted=True)
        left = {word.text} if word.text is not None else {str(number) for number in self.scope.numbers(word)}
        for item in node.named_children[1:]:
            if item.type != "case_item":
                continue
            values = item.children_by_field_name("value")
            patterns = {text_of(each).strip("\"'") for each in values}
            body = [each for each in item.named_children if each not in values]
            matched = left if "*" in patterns else left & patterns
            if left and matched == left:
                self._all(body)
                return
            if matched or not left:
                for part in body:
                    self._maybe(part, text_of(node.named_children[0]))

    def _loop(self, node: Node) -> None:
        body = next((child for child in node.named_children if child.type == "do_group"), node)
        if any(base_name(command_name(each)) == "sbatch" for each in commands_in(body)):
            for each in body.named_children:  # what the first turn sets
                if each.type == "variable_assignment" and "sbatch" not in text_of(each):
                    self._assign(each, is_exported=False)
        turns = times(node, self.scope)
        for each in commands_in(body):
            if self.is_program(each):
                raise self.scope.script.refused(
                    line_of(each),
                    f"a loop (line {line_of(node)}) starts {base_name(command_name(each))} again and again; "
                    "one run is one program: make a run of each turn, or a loop inside the program",
                )
            if base_name(command_name(each)) == "sbatch":
                for _ in range(turns or 1):
                    self.submit(each, is_endless=turns is None)
        self._unsure(node, f"the loop of line {line_of(node)}")
        first = text_of(node).splitlines()[0]
        if not self.seen.programs and any(base_name(command_name(each)) in MATTERS for each in commands_in(body)):
            self.seen.lose(line_of(node), first, "a loop before the program: do what it does once, by hand")
        else:
            self.seen.drop(line_of(node), first, "a loop that starts no program")

    def _pipeline(self, node: Node) -> None:
        """`program | tee log` is the program; what is piped into it is not known before the job."""
        parts = node.named_children
        for number, part in enumerate(parts):
            if self.starts_program(part) and number:
                raise self.scope.script.refused(
                    line_of(part), "the program reads from a pipe; write what it reads into a file, and name that"
                )
        self.statement(parts[0])

    def _unknown(self, node: Node, why: str) -> None:
        self.seen.lose(line_of(node), text_of(node).splitlines()[0], why)


def _is_condition(node: Node) -> bool:
    """True for a test, and for a command that only asks."""
    if node.type in ("test_command", "negated_command"):
        return True
    names = [base_name(command_name(each)) for each in commands_in(node)]
    return bool(names) and all(name in ("grep", "test", "[", "ls", "squeue", "command", "which") for name in names)


def _body(node: Node) -> list[Node]:
    """The statements of a branch: what stands behind `then`, up to the next branch."""
    if node.type == "else_clause":
        return list(node.named_children)
    found: list[Node] = []
    has_begun = False
    for child in node.children:
        if child.type == "then":
            has_begun = True
        elif child.type in ("elif_clause", "else_clause", "fi"):
            break
        elif has_begun and child.is_named:
            found.append(child)
    return found
