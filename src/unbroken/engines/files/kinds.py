"""Classify each name in the program's folder: state, output, or neither."""

from __future__ import annotations

import re
from pathlib import Path

from unbroken.engines.files.databases import is_beside
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import ELSEWHERE, matches
from unbroken.system import fs

# What no program means as a result.
_NO_OUTPUT = re.compile(r"(?:.*/)?(?:core(?:\.\d+)?|__pycache__/.*|\.cache/.*)")


class FileKinds:
    """Classify the files of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tables = {output.name for output in program.outputs}
        self._others = {Path(name).name for name in (*program.inputs, *program.templates)} | {program.stop_file}
        self._others |= set(program.put_back_as.values())
        self._inputs = {Path(name).name for name in program.inputs}

    def is_state(self, name: str) -> bool:
        """Return True for a restart file."""
        return matches(self._program.files, name) and not is_beside(name, self.is_state)

    def is_output(self, name: str) -> bool:
        """Return True for a file that belongs to the result."""
        is_other = name in self._others or matches([self._program.saved_marker], name)
        is_other = is_other or fs.is_unique_name(Path(name).name) or is_beside(name, self.is_state)
        return not (is_other or self.is_state(name) or self.is_dropped(name) or _NO_OUTPUT.fullmatch(name))

    def is_table(self, name: str) -> bool:
        """Return True for an output that is joined by its records."""
        return name in self._tables

    def is_measured(self, name: str) -> bool:
        """Return True for an output that is cut to the length that it had when a state was complete."""
        return not name.startswith(ELSEWHERE) and self.is_output(name) and not self.is_table(name)

    def is_input(self, name: str) -> bool:
        """Return True for a name in a folder that is an input: a link is the input, a file is the program's."""
        return "/" in name and name.split("/")[0] in self._inputs

    def is_dropped(self, name: str) -> bool:
        """Return True for a file that the user does not want (`discard`)."""
        return matches(self._program.discard, name)

    def is_finished_mark(self, name: str) -> bool:
        """Return True for the file that says that the program is done."""
        return matches([self._program.finished_file], name)
