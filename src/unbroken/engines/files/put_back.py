"""Restore kept files to what they were at a checkpoint, where the user called the program.

`before.json` in the store records what was there before the run began, and what its program has written since.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from unbroken.engines.files.content import OutputFile, cut, is_as_listed
from unbroken.engines.files.databases import beside, has_journal, is_database
from unbroken.engines.files.kinds import Keep
from unbroken.engines.files.outputs import OutputList, remove_emptied
from unbroken.engines.files.states import ELSEWHERE, PRINTED, Stamp, is_as_in
from unbroken.engines.files.stored import KEPT, Replaced, kept_names, put_file, stored
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import parse_json
from unbroken.system import fs

logger = logging.getLogger(__name__)

NOTE = "before.json"
# What a job that was killed may have done since it last noted that it lives.
LAST_SIGN_SECONDS = 10.0


def is_other(name: str) -> str:
    """Return the doubt about a file that another program has written."""
    return f"{name.lstrip(ELSEWHERE)} does not begin with what it held at the checkpoint; it stays as it is"


class PutBack:
    """Put kept files back; files in their place are moved to the store's `replaced/`."""

    def __init__(self, keep: Keep, before: BeforeNote) -> None:
        self._keep, self._before, self._folder = keep, before, keep.folder
        self._replaced = Replaced(keep.store, keep.folder)

    def put_back(self, origin: Checkpoint | None, listed: OutputList, found: Mapping[str, Stamp]) -> tuple[str, ...]:
        """Make all files what they were; `found` are those that are there.  Return the doubts about the result."""
        wanted = kept_names(origin)
        # A higher number may be torn, and would be taken for the newest.
        stay = {*wanted, *listed.files, *self._keep.older(found, wanted)}
        for name, stamp in found.items():
            if name not in stay and self._before.has_written(self._folder, name, stamp):
                self._move(name, is_database=is_database(self._folder / name))
        put_back = [name for name in wanted if origin is not None and self._is_put_back(origin, name)]
        put_back += [name for name, leads_to in listed.links.items() if self._replaced.put_link(name, leads_to)]
        moved = list(self._replaced.names)
        doubts = self._cut_back(listed)
        remove_emptied(self._folder, moved)
        if put_back:
            logger.info(f"put back from the checkpoint: {', '.join(put_back)}")
        if moved:
            shown = ", ".join(moved)
            logger.info(f"moved to {self._replaced.root}, being newer than what was saved complete: {shown}")
        return doubts

    def _move(self, name: str, *, is_database: bool = False) -> None:
        """Move a file away; with a database, also the files next to it."""
        for each in (name, *(beside(name) if is_database else ())):
            self._replaced.move(each)

    def _is_put_back(self, origin: Checkpoint, name: str) -> bool:
        """Put a kept file back; return False if it is there as it was."""
        source, target = origin.folder / KEPT / stored(name), self._folder / name
        if is_as_in(origin, f"{KEPT}/{stored(name)}", target) and not has_journal(target):
            return False
        self._move(name, is_database=is_database(source))
        put_file(source, target)
        return True

    def _cut_back(self, listed: OutputList) -> tuple[str, ...]:
        """Cut what the program appends to, to its length at the checkpoint; return the doubts."""
        for doubt in listed.doubts:
            logger.warning(f"doubt: {doubt}")
        files, printed = dict(listed.files), self._keep.printed
        if printed is not None and PRINTED not in files and printed.exists():
            files[PRINTED] = OutputFile(0, 0, "", "", 0, 0)
        for name, entry in files.items():
            path = printed if name == PRINTED and printed is not None else self._folder / name
            shown = name.lstrip(ELSEWHERE)
            if not path.is_file() or (entry.head and not is_as_listed(path, entry, listed.algorithm)):
                doubt = is_other(name)
                if name == PRINTED:
                    raise CheckpointError(f"{doubt} ({path}); type --anew to begin again")
                if not entry.is_rewritten and doubt not in listed.doubts:
                    listed = listed.with_doubt(doubt)
                    logger.warning(doubt)
            elif cut(path, entry, lambda shown=shown: self._replaced.place(shown)):  # type: ignore[misc]
                logger.info(f"cut to its length at the checkpoint: {shown}")
        return listed.doubts


# --- what was there before ---


class BeforeNote:
    """Read and write the note of one run; `is_new` is True before the first attempt has written it.

    `late` are files of `foreign` that were found only after that, without a checkpoint: the program gets them once, as
    it would without us; they are never taken for what was there before it.
    """

    def __init__(self, store: Path) -> None:
        self._path = store / NOTE
        self._next_sign = 0.0
        self.foreign: dict[str, Stamp] = {}
        self.late: dict[str, Stamp] = {}
        self._written: set[str] = set()
        self._last_sign = 0.0
        self.is_new = True
        with suppress(FileNotFoundError):
            text, self._last_sign = self._path.read_text(), self._path.stat().st_mtime
            self.is_new = False
            with suppress(ValueError, TypeError, AttributeError, KeyError):  # damaged: then nothing is known to be ours
                data = parse_json(text)
                self.foreign, self.late = _stamps(data["foreign"]), _stamps(data["late"])
                self._written = set(data["written"])

    def has_written(self, folder: Path, name: str, stamp: Stamp) -> bool:
        """Return True if the program wrote it, by its events, or by the time at which the last attempt lived."""
        if self.late.get(name) == stamp:
            return True
        if self.is_new or self.foreign.get(name) == stamp:
            return False
        return name in self._written or (folder / name).lstat().st_ctime <= self._last_sign + LAST_SIGN_SECONDS

    def write(self, foreign: Mapping[str, Stamp], written: Iterable[str] = ()) -> None:
        """Write the note in one step."""
        self.foreign, self._written = dict(foreign), self._written | set(written)
        data = {"foreign": self.foreign, "late": self.late, "written": sorted(self._written)}
        fs.write_atomic(self._path, json.dumps(data) + "\n")

    def give_sign(self, written: set[str], *, is_last: bool = False) -> None:
        """Note that the attempt lives, and what its program has written, every few seconds."""
        if time.monotonic() < self._next_sign and not is_last:
            return
        self._next_sign = time.monotonic() + LAST_SIGN_SECONDS / 2
        if written <= self._written:
            with suppress(FileNotFoundError):
                os.utime(self._path)
        elif not self.is_new or self._path.exists():
            self.write(self.foreign, written)


def _stamps(data: Mapping[str, tuple[int, int, int]]) -> dict[str, Stamp]:
    return {name: (int(inode), int(size), int(at)) for name, (inode, size, at) in data.items()}
