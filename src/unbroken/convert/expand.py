"""What the words of a script come to, as far as that is known before any job runs; nothing is ever run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unbroken.convert.arithmetic import computed, trimmed, unescaped
from unbroken.convert.bash import Script, commands_in, line_of, text_of, walk
from unbroken.convert.seen import SavedFile, Seen, World
from unbroken.convert.words import Kind, Part, Word, joined, split

if TYPE_CHECKING:
    from tree_sitter import Node

_GLOB = re.compile(r"[*?\[]")
# What lists files, the newest first or last; what takes one line of that.
_LISTS, _TAKES = ("ls", "find"), ("head", "tail", "sort", "grep", "sed", "awk", "cut", "xargs", "uniq", "cat")
RESTARTS = "SLURM_RESTART_COUNT"
TASK_ID = "SLURM_ARRAY_TASK_ID"


@dataclass
class Scope:
    """Variables, functions and arguments at a place of the script."""

    script: Script
    world: World
    seen: Seen
    known: Mapping[str, Word]  # what Slurm sets
    arguments: tuple[Word, ...] = ()
    task_ids: tuple[int, ...] = ()  # of an array whose tasks follow each other
    variables: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()  # that the script sets somewhere
    functions: dict[str, Node] = field(default_factory=dict)

    def words(self, node: Node) -> list[Word]:
        """The words that one word of a command comes to; bash splits what is unquoted."""
        if (elements := self._array_elements(node)) is not None:
            return elements
        return split(self.word(node))

    def word(self, node: Node, is_quoted: bool = False) -> Word:
        """A word, unsplit; unquoted values carry the mark that bash splits them."""
        match node.type:
            case "string":
                return self._string(node)
            case "raw_string":
                return Word.of(text_of(node)[1:-1])
            case "ansi_c_string":
                return Word((Part(Kind.SHELL, text_of(node)),))
            case "concatenation":
                return joined(self.word(child, is_quoted) for child in node.children)
            case "simple_expansion" | "expansion":
                return self._marked(self._variable(node), is_quoted)
            case "arithmetic_expansion":
                return self._sum(node)
            case "command_substitution":
                return self._marked(self._substituted(node), is_quoted)
            case _:
                return self._plain(node, is_quoted)

    def value(self, name: str, line: int) -> Word | None:
        """The value of a variable, None if it is set nowhere that we know of."""
        if name in self.variables:
            return self.variables[name]
        if name == TASK_ID and self.task_ids:
            return Word((Part(Kind.PLACEHOLDER, "segment", line=line),))
        if name == RESTARTS:
            return Word.of("0") if self.world is World.FRESH else Word((Part(Kind.COUNT, "", line=line),))
        if name in self.known:
            return self.known[name]
        return Word() if name in self.assigned else None

    def numbers(self, word: Word) -> list[int]:
        """All the numbers that a word may stand for in this kind of job; none if that is not known."""
        text = word.text
        if text is not None:
            return [int(text)] if re.fullmatch(r"-?\d+", text.strip()) else []
        if len(word.parts) != 1:
            return []
        part = word.parts[0]
        if part.kind is Kind.COUNT:
            return list(range(1, 100))
        if part.kind is Kind.PLACEHOLDER and part.text == "segment" and self.task_ids:
            return list(self.task_ids[:1] if self.world is World.FRESH else self.task_ids[1:])
        return []

    def file(self, pattern: Word, line: int) -> bool:
        """Whether a file is there, that a job before may have saved: not for the first job."""
        found = SavedFile(pattern, line)
        if found not in self.seen.saved:
            self.seen.saved.append(found)
        return self.world is World.RESUMED

    def path(self, text: str) -> Path:
        """Where a relative path of the script leads, from where it has gone to."""
        return self.script.folder / self.seen.place / text

    # --- inside ---

    def _plain(self, node: Node, is_quoted: bool) -> Word:
        text = text_of(node)
        if is_quoted:
            return Word.of(text)
        if _GLOB.search(text) and node.type in ("word", "extglob_pattern", "concatenation"):
            return Word((Part(Kind.SHELL, text, is_split=True, line=line_of(node)),))
        if text.startswith("~"):
            return Word((Part(Kind.SHELL, text, is_split=True, line=line_of(node)),))
        return Word.of(re.sub(r"\\(.)", r"\1", text.replace("\\\n", "")))

    def _string(self, node: Node) -> Word:
        """What stands between double quotes, blanks between its pieces included."""
        begin, source = node.start_byte, node.text or b""
        words: list[Word] = []
        at = 1
        for child in node.children:
            if child.type in ('"', "string_content"):
                continue
            start, end = child.start_byte - begin, child.end_byte - begin
            words += [Word.of(unescaped(source[at:start].decode())), self.word(child, is_quoted=True)]
            at = end
        return joined([*words, Word.of(unescaped(source[at:-1].decode()))])

    def _marked(self, word: Word, is_quoted: bool) -> Word:
        if is_quoted:
            return Word(tuple(Part(part.kind, part.text, False, part.line) for part in word.parts))
        return Word(tuple(Part(part.kind, part.text, True, part.line) for part in word.parts))

    def _array_elements(self, node: Node) -> list[Word] | None:
        """`"${args[@]}"`, `"$@"` and `$*` as their words; None of anything else."""
        text = text_of(node).strip('"')
        if text in ("$@", "$*", "${@}", "${*}"):
            return list(self.arguments)
        found = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", text)
        return list(self.arrays.get(found[1], [])) if found else None

    def _variable(self, node: Node) -> Word:
        text, line = text_of(node), line_of(node)
        lead = text[: len(text) - len(text.lstrip(" \t\n\\"))]
        if lead:  # tree-sitter-bash gives the blanks before it, within quotes, to a variable
            return joined([Word.of(unescaped(lead)), self._value_of(text[len(lead) :], line, node)])
        return self._value_of(text, line, node)

    def _value_of(self, text: str, line: int, node: Node) -> Word:
        if (element := re.fullmatch(r"\$\{(\w+)\[([^@*]+)\]\}", text)) is not None:
            return self._element(element[1], element[2], line)
        found = re.fullmatch(r"\$(?:(\w+|[#?!$@*-])|\{(\w+|[#?!$@*-])(?:(:?[-=+?]|##?|%%?)(.*))?\})", text, re.DOTALL)
        if not found:
            return self._unsure(text, line)
        name, how = found[1] or found[2], found[3] or ""
        value = self._named(name, line)
        if not how:
            return value if value is not None else self._of_job(text, name, line)
        inner = [child for child in node.named_children if child.type != "variable_name"]
        other = joined(self.word(child) for child in inner if child.type != "special_variable_name")
        return self._with_default(text, value, how, other, found[4] or "", line)

    def _element(self, name: str, index: str, line: int) -> Word:
        """`${names[$SLURM_ARRAY_TASK_ID]}`"""
        at = computed(*self._inside(index, line))
        elements = self.arrays.get(name, [])
        if at is None or not -len(elements) <= at < len(elements):
            return self._unsure(f"${{{name}[{index}]}}", line)
        return elements[at]

    def _inside(self, text: str, line: int) -> tuple[str, dict[str, list[int]]]:
        """A sum without dollar signs, and the numbers that its names stand for."""
        inside = re.sub(r"\$\{?(\w+)\}?", r"\1", text)
        names = set(re.findall(r"[A-Za-z_]\w*", inside))
        return inside, {name: self.numbers(found) for name in names if (found := self.value(name, line)) is not None}

    def _with_default(self, text: str, value: Word | None, how: str, other: Word, pattern: str, line: int) -> Word:
        is_set = value is not None and (value != Word() or not how.startswith(":"))
        if how.endswith("+"):
            return other if is_set else Word()
        if how.endswith(("-", "=", "?")):
            return value if value is not None and is_set else other
        known = value.text if value is not None else None
        if known is None or "$" in pattern:
            return self._unsure(text, line)
        return Word.of(trimmed(known, how, pattern))

    def _named(self, name: str, line: int) -> Word | None:
        if name == "#":
            return Word.of(str(len(self.arguments)))
        if name == "0":
            return Word.of(self.script.name)
        if name.isdecimal():
            at = int(name) - 1
            return self.arguments[at] if at < len(self.arguments) else None
        if name in "?!$-":
            return self._unsure(f"${name}", line)
        return self.value(name, line)

    def _of_job(self, text: str, name: str, line: int) -> Word:
        """A variable that the script does not set: the job's environment has it, or nobody."""
        if name.startswith("SLURM_ARRAY_TASK"):
            why = f"`{text}`, but no #SBATCH line makes an array; type `#SBATCH --array=...` into the script"
            return Word((Part(Kind.ARGUMENT, why, line=line),))
        if name.isdecimal():
            why = f"`{text}` is an argument of the script; type it behind its name"
            return Word((Part(Kind.ARGUMENT, why, line=line),))
        return Word((Part(Kind.SHELL, text, line=line),))

    def _unsure(self, text: str, line: int) -> Word:
        return Word((Part(Kind.UNSURE, f"what `{text}` comes to is known in the job alone", line=line),))

    def _sum(self, node: Node) -> Word:
        text, line = text_of(node), line_of(node)
        inside, values = self._inside(text.removeprefix("$((").removesuffix("))").strip(), line)
        if TASK_ID in values and self.task_ids and "*" in inside:
            # Each task of the array goes further than the one before: together, as far as the last one.
            values[TASK_ID] = [self.task_ids[-1]]
            if (goal := computed(inside, values)) is not None:
                self.seen.goal = (goal, line, f"{inside} at task {self.task_ids[-1]}")
                return Word((Part(Kind.PLACEHOLDER, "goal", line=line),))
        total = computed(inside, values)
        return Word.of(str(total)) if total is not None else self._unsure(text, line)

    def _substituted(self, node: Node) -> Word:
        """`$(...)`: the newest of some files, a number that is known, or what a shell in the job makes of it."""
        text, line = text_of(node), line_of(node)
        names = [text_of(name) for each in commands_in(node) if (name := each.child_by_field_name("name"))]
        if names == ["nproc"]:
            return Word((Part(Kind.PLACEHOLDER, "threads", line=line),))
        if names == ["pwd"]:
            return Word((Part(Kind.PLACEHOLDER, "base", line=line),))
        if names[:1] and names[0] in _LISTS and names[-1] == "wc" and (pattern := self._listed(node)):
            return Word((Part(Kind.COUNT, "", line=line),)) if self.file(pattern, line) else Word.of("0")
        if names[:1] and names[0] in _LISTS and set(names[1:]) <= set(_TAKES) and (pattern := self._listed(node)):
            return Word((Part(Kind.PLACEHOLDER, "file", line=line),)) if self.file(pattern, line) else Word()
        if names == ["scontrol", "wc"] and (nodes := self.known.get("SLURM_NNODES")):
            return nodes
        if names == ["basename"] and (plain := self._base_name(node)) is not None:
            return plain
        used = {text_of(name) for name in walk(node) if name.type == "variable_name"}
        if names == ["sed"] and (read := self._line_of_file(node)) is not None:
            return read
        if used & {*self.variables, *self.arrays, TASK_ID, RESTARTS}:
            return self._unsure(text, line)
        return Word((Part(Kind.SHELL, text, line=line),))

    def _listed(self, node: Node) -> Word | None:
        """The pattern that `ls -t restart.*` or `find . -name 'restart.*'` goes by."""
        first = next(commands_in(node))
        words = [self.word(child) for child in first.children_by_field_name("argument")]
        plain = [word for word in words if not word.source.startswith("-")]
        if text_of(first).startswith("find"):
            at = next((n for n, word in enumerate(words) if word.text in ("-name", "-iname")), None)
            if at is None or at + 1 >= len(words):
                return None
            folder = plain[0].source if plain and plain[0] != words[at + 1] else "."
            inside = "" if folder in (".", "./") else folder.rstrip("/") + "/"
            return Word((Part(Kind.TEXT, inside), Part(Kind.SHELL, words[at + 1].source)))
        return plain[0] if len(plain) == 1 else None

    def _line_of_file(self, node: Node) -> Word | None:
        """`sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt`: the line, where the file is here."""
        words = [self.word(child).text for child in next(commands_in(node)).children_by_field_name("argument")]
        if len(words) != 3 or words[0] != "-n" or not (found := re.fullmatch(r"(\d+)p", words[1] or "")):
            return None
        path = self.path(words[2] or "")
        if not os.path.isfile(path):
            return None
        lines = path.read_text(errors="replace").splitlines()
        at = int(found[1]) - 1
        return Word.of(lines[at]) if at < len(lines) else Word()

    def _base_name(self, node: Node) -> Word | None:
        words = [self.word(child).text for child in next(commands_in(node)).children_by_field_name("argument")]
        if not words or words[0] is None:
            return None
        name = words[0].rstrip("/").rpartition("/")[2]
        return Word.of(name.removesuffix(words[1]) if len(words) == 2 and words[1] else name)
