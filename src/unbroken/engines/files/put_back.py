"""Restore kept files to what they were at a checkpoint, where the user called the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from unbroken.engines.files.before import BeforeNote
from unbroken.engines.files.content import OutputFile, cut, is_as_listed
from unbroken.engines.files.databases import beside, has_journal, is_database
from unbroken.engines.files.keep import Keep
from unbroken.engines.files.outputs import OutputList
from unbroken.engines.files.pieces import remove_emptied
from unbroken.engines.files.states import ELSEWHERE, PRINTED, Stamp, state_stamp_of
from unbroken.engines.files.stored import KEPT, Replaced, kept_names, put_file, stored
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system.digests import digest_file


def is_other(name: str) -> str:
    """Return the doubt about a file that another program has written."""
    return f"{name.lstrip(ELSEWHERE)} does not begin with what it held at the checkpoint; it stays as it is"


class PutBack:
    """Put kept files back; files in their place are moved to the store's `replaced/`."""

    def __init__(self, keep: Keep, before: BeforeNote, tell: Callable[[str], None]) -> None:
        self._keep, self._before, self._tell, self._folder = keep, before, tell, keep.folder
        self._replaced = Replaced(keep.store, keep.folder)
        self._moved: list[str] = []

    def put_back(self, origin: Checkpoint | None, listed: OutputList, found: Mapping[str, Stamp]) -> tuple[str, ...]:
        """Make all files what they were; `found` are those that are there.  Return the doubts about the result."""
        wanted = kept_names(origin)
        for name, stamp in found.items():
            is_saved = name in wanted or name in listed.files
            if not is_saved and self._before.is_newer(self._folder / name, name, stamp):
                self._move(name, is_database=is_database(self._folder / name))
        put_back = [name for name in wanted if origin is not None and self._is_put_back(origin, name)]
        put_back += [name for name, leads_to in listed.links.items() if self._is_link_made(name, leads_to)]
        doubts = self._cut_back(listed)
        remove_emptied(self._folder, self._moved)
        if put_back:
            self._tell(f"put back from the checkpoint: {', '.join(put_back)}")
        if self._moved:
            shown = ", ".join(self._moved)
            self._tell(f"moved to {self._replaced.root}, being newer than what was saved complete: {shown}")
        return doubts

    def _move(self, name: str, *, is_database: bool = False) -> None:
        """Move a file away; with a database, also the files next to it."""
        self._moved += [each for each in (name, *(beside(name) if is_database else ())) if self._replaced.move(each)]

    def _is_put_back(self, origin: Checkpoint, name: str) -> bool:
        """Put a kept file back; return False if it is there as it was."""
        source, target = origin.folder / KEPT / stored(name), self._folder / name
        if is_as_in(origin, name, self._folder) and not has_journal(target):
            return False
        self._move(name, is_database=is_database(source))
        put_file(source, target)
        return True

    def _is_link_made(self, name: str, leads_to: str) -> bool:
        path = self._folder / name
        if path.is_symlink() and os.readlink(path) == leads_to:
            return False
        self._move(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads_to)
        return True

    def _cut_back(self, listed: OutputList) -> tuple[str, ...]:
        """Cut what the program appends to, to its length at the checkpoint; return the doubts."""
        for doubt in listed.doubts:
            self._tell(f"doubt: {doubt}")
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
                    self._tell(doubt)
            elif cut(path, entry, lambda shown=shown: self._replaced.place(shown)):  # type: ignore[misc]
                self._tell(f"cut to its length at the checkpoint: {shown}")
        return listed.doubts


def is_as_in(origin: Checkpoint, name: str, folder: Path) -> bool:
    """Return True if a kept file has the bytes that it has in the checkpoint."""
    entry, path = origin.passport.files[f"{KEPT}/{stored(name)}"], folder / name
    if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size_bytes:
        return False
    return digest_file(path, origin.passport.algorithm) == entry.digest


def plain_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a state file; None for what is no plain file: no link is followed."""
    return None if path.is_symlink() or not path.is_file() else state_stamp_of(path)
