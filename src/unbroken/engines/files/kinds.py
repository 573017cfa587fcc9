"""Classify the names of a program's files: state, output, or neither; in a folder of its run, or in the user's own."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.databases import is_beside
from unbroken.engines.files.settings import Program
from unbroken.engines.files.states import (
    ELSEWHERE,
    PRINTED,
    RestartState,
    glob_of,
    glob_pattern,
    is_handed_over,
    is_left_out,
    matches,
    may_hold,
    states_in,
    states_of,
)
from unbroken.system import fs

# What no program means as a result.
_NO_OUTPUT = re.compile(r"(?:.*/)?(?:core(?:\.\d+)?|__pycache__/.*|\.cache/.*)")
# No wildcard means what lies in these; the first three are never kept.
_NEVER = (".unbroken", ".snakemake", ".git")
_NOT_BY_WILDCARD = (*_NEVER, "results", "logs")


class FileKinds:
    """Classify the files of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tables = {output.name for output in program.outputs}
        self._others = {Path(name).name for name in (*program.inputs, *program.templates)} | {program.stop_file}
        self._others |= {*program.put_back_as.values(), *(edit.file for edit in program.edits)}
        self._inputs = {Path(name).name for name in program.inputs}

    def is_state(self, name: str) -> bool:
        """Return True for a restart file."""
        return matches(self._program.files, name) and not is_beside(name, self.is_state)

    def is_output(self, name: str) -> bool:
        """Return True for a file that belongs to the result."""
        is_other = name in self._others or matches([self._program.saved_marker], name)
        is_other = is_other or fs.is_unique_name(Path(name).name) or is_beside(name, self.is_state)
        return not (is_other or self.is_state(name) or self.is_dropped(name) or _NO_OUTPUT.fullmatch(name))

    def older_than(self, draft: Path) -> Callable[[str], bool]:
        """Return what says of a restart file that it has a lower number than the state in `draft`, and is a result."""
        globs = self._program.files
        state = next(iter(states_in(draft, globs)), None) if self._program.keep_older else None
        number = float(state.number) if state is not None and state.number else 0.0

        def is_older(name: str) -> bool:
            own = glob_of(name, globs)[1] if number else ""
            return bool(own) and float(own) < number

        return is_older

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

    def is_rewritten(self, name: str) -> bool:
        """Return True for an output that the program writes as a whole each time (`rewritten`)."""
        return matches(self._program.rewritten, name)

    def is_continued(self, name: str) -> bool:
        """Return True for an output that the program brings back to its restart file by itself (`continued`)."""
        return matches(self._program.continued, name)

    def is_finished_mark(self, name: str) -> bool:
        """Return True for the file that says that the program is done."""
        return matches([self._program.finished_file], name)


@dataclass(frozen=True)
class Keep:
    """Hold the user's request: the program, with globs of the files from which it resumes, and what else it writes."""

    program: Program
    outputs: tuple[str, ...]
    folder: Path  # where the program runs
    store: Path
    printed: Path | None = None  # what the program prints, if that is a result

    def names(self, appended: Collection[str]) -> list[str]:
        """Return the names of all that matches now, but not of what was found to be `appended` to, in order."""
        globs = self.program.files
        names = {name for pattern in globs for name in self._matching(pattern) if not is_left_out(globs, name)}
        return sorted(name for name in names if name not in appended)

    def _matching(self, pattern: str) -> Iterator[str]:
        any_number = pattern.replace("{progress}", "*")
        for name in glob.glob(any_number, root_dir=self.folder, recursive=True, include_hidden=True):
            if any_number == pattern or glob_pattern(pattern).fullmatch(name):
                found = map(os.path.normpath, self.files_of(name))
                yield from (each for each in found if self._is_meant(each, pattern))

    def _is_meant(self, name: str, pattern: str) -> bool:
        """Return False for what no wildcard means, for the store, for our drafts, and for a database's other files."""
        first = Path(name).parts[0] if name else ""
        if first in _NEVER or (first in _NOT_BY_WILDCARD and Path(pattern).parts[:1] != (first,)):
            return False
        is_ours = fs.is_unique_name(Path(name).name) or (self.folder / name).absolute().is_relative_to(self.store)
        return not is_ours and not is_beside(name, self.is_state)

    def files_of(self, name: str) -> list[str]:
        """Return the files of a folder that matches; of a file, itself."""
        path = self.folder / name
        if not path.is_dir() or path.is_symlink():
            return [name]
        found = []
        for base, folders, names in os.walk(path):
            below = os.path.relpath(base, self.folder)
            folders[:] = [each for each in folders if below != "." or each not in _NOT_BY_WILDCARD]
            links = [each for each in folders if os.path.islink(os.path.join(base, each))]
            found += [os.path.join(below, each) for each in (*names, *links)]
        return found

    def is_state(self, name: str) -> bool:
        """Return True for a name that matches, or is below a folder that does."""
        if name.startswith(ELSEWHERE):
            return is_handed_over(name)
        if is_left_out(self.program.files, name):
            return False
        patterns = (each for each in self.program.files if each == "." or glob_of(name, [each])[0])
        return any(self._is_meant(name, each) for each in patterns)

    def is_watched(self, folder: str) -> bool:
        """Return True for a folder below which files may match."""
        if Path(folder).parts[0] in _NEVER or (self.folder / folder).absolute().is_relative_to(self.store):
            return False
        return any(may_hold(folder, each) for each in (*self.program.files, *self.outputs))

    def is_output(self, name: str) -> bool:
        """Return True for what the program prints, and for an output, or what is below one."""
        named = {os.path.normpath(each) for each in self.outputs}
        return name == PRINTED or any(path in named for path in (name, *map(str, Path(name).parents)))

    def states(self, names: Iterable[str]) -> list[RestartState]:
        """Return the states that these files are, the furthest first; with {progress} one for each number."""
        globs = self.program.files
        return states_of(self.folder, names, globs, needed=[each for each in globs if "{progress}" in each])

    def older(self, names: Iterable[str], wanted: Collection[str]) -> set[str]:
        """Return the files of lower numbers than those that are wanted: no program resumes from them."""
        newest = next((float(state.number) for state in self.states(wanted) if state.number), 0.0)
        states = [state for state in self.states(names) if state.number and float(state.number) < newest]
        return {name for state in states for name in state.numbered}
