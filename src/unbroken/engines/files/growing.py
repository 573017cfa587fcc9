"""List what a program appends to where the user called it: which files these are, and how long each is at a save."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.content import OutputFile, described, is_buffered, is_changed_inside, is_cut_by_a_buffer
from unbroken.engines.files.kinds import Keep
from unbroken.engines.files.listing import ProgramEnd
from unbroken.engines.files.observed import ObservedFiles
from unbroken.engines.files.outputs import OutputList
from unbroken.engines.files.put_back import is_other
from unbroken.engines.files.states import ELSEWHERE, PRINTED
from unbroken.engines.files.writers import open_for_writing

_INSIDE = "is changed inside while it grows, and not put back; name it in --keep, and close it before a save"
_IN_BUFFER = "is buffered by the program, and lines were lost in the buffer; let it flush each line"


class GrowingFiles:
    """Follow what an attempt appends to: what it prints, kept files and outputs, and what it has open."""

    def __init__(self, keep: Keep, observed: ObservedFiles, segment: int) -> None:
        self._keep, self._observed, self._segment = keep, observed, segment
        self._lengths_before: dict[str, int] = {}
        self.doubts: tuple[str, ...] = ()
        self._written: set[str] = set()  # by an attempt that was killed
        self._listed: set[str] = set()  # with its last checkpoint
        self._rewritten: set[str] = set()  # outputs that the program writes from the beginning again and again

    def take(self, listed: OutputList, doubts: tuple[str, ...]) -> None:
        """Take what the attempts before have learned, and the doubts about the result."""
        self._rewritten = {name for name, entry in listed.files.items() if entry.is_rewritten}
        self.doubts = doubts

    def begin(self) -> None:
        """Begin to observe; the program starts after this."""
        keep, observed = self._keep, self._observed
        named = [name for each in keep.outputs for name in keep.files_of(each) if not os.path.isabs(name)]
        if keep.printed is not None:
            keep.printed.touch()  # what is not there cannot be watched
            named.append(PRINTED)
        for name in [*named, *keep.names(observed.observer.appended)]:
            with suppress(OSError):
                self._lengths_before[name] = self._path(name).stat().st_size
        observed.begin(self._lengths_before)

    def know_before(self, listed: OutputList) -> None:
        """Take over from an attempt that was killed."""
        self.take(listed, listed.doubts)
        self._listed = set(listed.files)
        self._written = {name for moment in self._observed.observer.moments() for name in moment.lengths}

    # --- the list ---

    def list_into(self, draft: Path, lengths: Mapping[str, int] | None, end: ProgramEnd | None = None) -> None:
        """Write into a draft how long each growing file was when the state was saved; None: as it is now."""
        growing, has_saved_last = self.files(), end is not None and end.has_saved_last
        self._rewritten |= {name for name in growing if self._observed.observer.is_rewritten(name)}
        settled = {is_other(name) for name in self._rewritten}
        self.doubts = tuple(doubt for doubt in self.doubts if doubt not in settled)
        listed, more = OutputList(links=self._links()), list[str]()
        files: dict[str, OutputFile] = {}
        for name, path in growing.items():
            with suppress(FileNotFoundError):
                size, shown = path.stat().st_size, name.lstrip(ELSEWHERE)
                before = -1 if name in self._observed.unknown else self._lengths_before.get(name, -1)
                resume = size if lengths is None else lengths.get(name, before)
                if is_changed_inside(path):  # to cut it would not give back what it was
                    more += [f"{shown} {_INSIDE}"] if self._observed.is_open(name) else []
                    continue
                if has_saved_last and 0 <= resume < size:
                    resume = size if is_buffered(path, resume, self._lengths_before.get(name, 0)) else resume
                elif not has_saved_last and resume >= 0 and is_cut_by_a_buffer(path, resume, size):
                    more.append(f"{shown} {_IN_BUFFER}")
                if 0 <= resume <= size:
                    entry = described(
                        path, resume if end is None else size, resume, segment=self._segment, algorithm=listed.algorithm
                    )
                    files[name] = replace(entry, is_rewritten=name in self._rewritten)
        # The doubts of this moment hold only if the program is resumed from this very state.
        replace(listed, files=files, doubts=tuple(dict.fromkeys((*self.doubts, *more)))).write(draft)

    def files(self) -> dict[str, Path]:
        """Return what the program appends to: what it prints, kept files and outputs, and what it has open."""
        keep, observer = self._keep, self._observed.observer
        opened = {os.path.relpath(path, keep.folder) for path in open_for_writing(self._observed.mark)} | self._listed
        found = {PRINTED: keep.printed} if keep.printed is not None and keep.printed.exists() else {}
        for name in sorted((observer.written() | self._written) - {PRINTED}):
            is_appended = name in observer.appended
            is_meant = is_appended or keep.is_output(name) or name in opened
            if is_meant and (is_appended or not keep.is_state(name)) and (keep.folder / name).is_file():
                found[name] = keep.folder / name
        return found

    def _links(self) -> dict[str, str]:
        """Return the links among what matches, and where they lead."""
        paths = [(name, self._path(name)) for name in self._keep.names(self._observed.observer.appended)]
        return {name: os.readlink(path) for name, path in paths if path.is_symlink()}

    def _path(self, name: str) -> Path:
        printed = self._keep.printed
        return printed if name == PRINTED and printed is not None else self._keep.folder / name
