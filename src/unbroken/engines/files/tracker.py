"""List the outputs of an attempt for each of its checkpoints: which files there are, and how long each is."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.content import described
from unbroken.engines.files.databases import database_of, is_database
from unbroken.engines.files.listing import Known, NewList, ProgramEnd, TrackedOutputs, in_buffer
from unbroken.engines.files.outputs import read_list
from unbroken.engines.files.states import stamp_of
from unbroken.system import fs
from unbroken.system.fs import flush_paths

logger = logging.getLogger(__name__)


class OutputTracker(TrackedOutputs):
    """Follow the outputs of an attempt from checkpoint to checkpoint."""

    def begin(self) -> None:
        """Note how the outputs are before the program starts."""
        self._known = Known(set(self.listed.files))
        self.silent = {name for name, entry in self.listed.files.items() if entry.is_silent}
        for name in self.listed.files:
            if (stamp := stamp_of(self.folder / name)) is not None:
                self._known.stamps[name], self.lengths[name] = stamp, stamp[1]
            else:
                self._known.absent.add(name)

    def files(self) -> dict[str, Path]:
        """Return where the outputs are that are there, links left out."""
        return {name: self.folder / name for name, found in self._found() if not stat.S_ISLNK(found.st_mode)}

    def list_into(
        self,
        draft: Path,
        lengths: Mapping[str, int] | None,
        opened: Iterable[str] = (),
        end: ProgramEnd | None = None,
    ) -> None:
        """Write the list of outputs of a checkpoint into its draft.

        `lengths` are those that belong to the state; None if each file belongs to it as it is.  `opened` are files
        that the program has open.  At the end of a program that saved as its last action its buffers belong to the
        state.  Raise UnsteadyOutputError if a file that has to be copied changes meanwhile.
        """
        is_older = self.kinds.older_than(draft)
        made = NewList(self, draft, lengths, frozenset(opened), end)
        for name, found in self._found(is_older):
            made.add(name, found, is_older=is_older(name))
        listed = made.finished()
        flush_paths(made.unflushed)
        # These lines are missing only if a program is resumed from this very state.
        doubts = (*listed.doubts, *(in_buffer(name) for name in made.buffered))
        replace(listed, doubts=tuple(dict.fromkeys(doubts))).write(draft)
        self.listed, self._known = listed, made.known

    def list_tables(self, draft: Path) -> None:
        """List the tables in a draft as they are now: with records after those that belong to its state."""
        listed = read_list(draft)
        for doubt in self.listed.doubts:
            listed = listed.with_doubt(doubt)
        tables = {name: path for name, path in self.files().items() if self.kinds.is_table(name)}
        for name, path in tables.items():
            size = path.stat().st_size
            entry = described(path, size, size, segment=self.segment, algorithm=listed.algorithm)
            listed = replace(listed, files={**listed.files, name: replace(entry, is_continued=False, has_grown=True)})
        if tables:
            listed.write(draft)

    def _found(self, is_older: Callable[[str], bool] = lambda _: False) -> list[tuple[str, os.stat_result]]:
        """Return all outputs with their state; pipes, sockets and devices are left out with a line."""
        found = []
        for name in (path.as_posix() for path in fs.tree_files(self.folder)):
            is_output, database = self.kinds.is_output(name) or is_older(name), database_of(name)
            is_journal = bool(database) and is_database(self.folder / database)
            if is_journal or not (is_output or self.kinds.is_state(name)):
                continue
            try:
                state = os.lstat(self.folder / name)
            except FileNotFoundError:
                continue
            is_link = stat.S_ISLNK(state.st_mode)
            if is_link and is_output and self.kinds.is_input(name):
                continue
            if is_link or (is_output and stat.S_ISREG(state.st_mode)):  # a link to a restart file is kept as a link
                found.append((name, state))
            elif is_output and name not in self._told:
                self._told.add(name)
                logger.warning(f"{name} is no file (a pipe, socket or device), and is not kept")
        return found
