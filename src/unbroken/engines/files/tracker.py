"""Lists the outputs of an attempt for each of its checkpoints: which files there are, and how long each is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.engines.files.databases import copy_database, database_of, has_journal, is_database
from unbroken.engines.files.outputs import (
    BUFFER_BYTES,
    REWRITTEN,
    OutputFile,
    OutputList,
    Piece,
    described,
    is_as_listed,
    is_buffered,
    is_changed_inside,
    is_text,
    stops_within_a_line,
)
from unbroken.engines.files.space import OutputSpace
from unbroken.engines.files.states import Stamp, stamp_of
from unbroken.engines.files.workspace import piece_path, pieces_of, without
from unbroken.system import fs
from unbroken.system.flush import flush_paths

# Above these a line names the largest outputs, and what to type.
MANY_FILES = 10_000
MANY_BYTES = 10 * 1000**3


# An output that changes while it is copied is tried so often.
COPY_TRIES = 3


class UnsteadyOutputError(Exception):
    """An output that does not stay as it belongs to a state; the text names it, and says what happens to it."""


@dataclass
class OutputTracker:
    """The outputs in `folder`, on from those of the checkpoint that the attempt resumes from.

    `is_output` says of a name whether that is an output, `is_state` whether a restart file; `is_finished_mark` whether
    it says that the program is done, and so is not put back; `is_rewritten` whether it was seen to be written from its
    beginning again and again.  `sequence` is the number of that checkpoint, 0 if there is none.
    """

    folder: Path
    run_folder: Path
    segment: int
    sequence: int
    listed: OutputList
    is_output: Callable[[str], bool]
    is_finished_mark: Callable[[str], bool]
    tell: Callable[[str], None]
    is_state: Callable[[str], bool] = lambda _: False
    is_rewritten: Callable[[str], bool] = lambda _: False
    is_own: bool = False  # this attempt has made the checkpoint itself: how its files go on says nothing of a restart
    _undecided: set[str] = field(default_factory=set)  # put back, and not yet seen to be continued or begun again
    _absent: set[str] = field(default_factory=set)  # kept in pieces: what has their names was begun again
    _begun_again: set[str] = field(default_factory=set)  # since this attempt began
    _stamps: dict[str, Stamp] = field(default_factory=dict)  # of what is listed
    _begin: dict[str, int] = field(default_factory=dict)  # lengths at the start of the program
    _silent: set[str] = field(default_factory=set)  # in a checkpoint from which a program was resumed
    _told: set[str] = field(default_factory=set)
    _buffered: list[str] = field(default_factory=list)  # of the list that is made
    _unflushed: list[str] = field(default_factory=list)  # of the list that is made

    def __post_init__(self) -> None:
        if not self.is_own:
            self._undecided = set(self.listed.files)
            self._absent = {name for name, entry in self.listed.files.items() if entry.is_continued is False}

    def begin(self) -> None:
        """Note how the outputs are before the program starts."""
        self._undecided, self._absent = set(self.listed.files), set()
        self._silent = {name for name, entry in self.listed.files.items() if entry.is_silent}
        for name in self.listed.files:
            if (stamp := stamp_of(self.folder / name)) is not None:
                self._stamps[name] = stamp
                self._begin[name] = stamp[1]
            else:
                self._absent.add(name)

    def names(self) -> list[str]:
        """Return the names of all outputs that are there."""
        return [name for name, _ in self._found()]

    def list_into(
        self,
        draft: Path,
        lengths: Mapping[str, int] | None,
        opened: Iterable[str] = (),
        is_at_end: bool = False,
        is_finished: bool = False,
        has_saved_last: bool = False,
    ) -> None:
        """Write the list of outputs of a checkpoint into its draft.

        `lengths` are those that belong to the state; None if each file belongs to it as it is.  `opened` are files
        that the program has open.  At the end of a program that saved as its last action (`has_saved_last`) its
        buffers belong to the state.  UnsteadyOutputError if a file that has to be copied changes meanwhile.
        """
        before = set(self._undecided), set(self._absent), set(self._begun_again)
        try:
            self._buffered, self._unflushed = [], []
            made = self._made(draft, lengths, set(opened), is_at_end, is_finished, has_saved_last)
            flush_paths(self.folder, self._unflushed)
            # They are missing only if a program is resumed from this very state.
            of_draft = made
            for name in self._buffered:
                of_draft = of_draft.with_doubt(_in_buffer(name))
            of_draft.write(draft)
        except BaseException:
            self._undecided, self._absent, self._begun_again = before
            raise
        self.listed = made

    def _made(
        self,
        draft: Path,
        lengths: Mapping[str, int] | None,
        opened: set[str],
        is_at_end: bool,
        is_finished: bool,
        has_saved_last: bool,
    ) -> OutputList:
        known, files = self.listed.files, dict[str, OutputFile]()
        links, stamps = {}, dict[str, Stamp]()
        pieces, doubts = list(self.listed.pieces), list(self.listed.doubts)
        total = 0
        for name, found in self._found():
            path = self.folder / name
            if stat.S_ISLNK(found.st_mode):
                links[name] = os.readlink(path)
                if not is_at_end:
                    self._confirm_leads_into(draft, name, links[name])
                continue
            resume = found.st_size if lengths is None else lengths.get(name, -1)
            if resume > found.st_size:  # begun again since
                resume = -1
            if resume < 0 and is_at_end and has_saved_last:
                resume = found.st_size
            if resume < 0 and not (is_at_end and is_finished):
                continue  # what it has now is younger than the state
            size = found.st_size if is_at_end else resume
            if is_at_end and has_saved_last and 0 <= resume < size and self._is_flushed_late(path, name, resume):
                resume = size
            if self.is_finished_mark(name):
                resume = -1
            stamps[name] = (found.st_ino, found.st_size, found.st_mtime_ns)
            before = known.get(name)
            if before is not None and before.resume_bytes < 0:  # it was not put back
                before = None
            files[name] = self._entry(
                name, found, size, resume, before, pieces, doubts, draft, is_at_end, name in opened
            )
            total += size
            is_cut = name in opened or found.st_size > resume or files[name].has_grown
            if is_cut and not (is_at_end and is_finished) and self._is_cut_within(path, files[name], known.get(name)):
                self._buffered.append(name)
                doubts += [_in_buffer(name)] if name in self._silent else []  # of a program that was killed then
        begun_again = {piece.name for piece in pieces} - set(files)
        pieces += self._left(files, known, begun_again)
        self._watch_size(files, total)
        if is_at_end and files:
            self.tell(OutputSpace(len(files), total).words())
        self._stamps |= stamps
        settled = {without(name) for name in files}
        doubts = [doubt for doubt in dict.fromkeys(doubts) if doubt not in settled]
        return OutputList(files, links, tuple(pieces), tuple(doubts), self.listed.algorithm)

    # --- one file ---

    def _entry(
        self,
        name: str,
        found: os.stat_result,
        size: int,
        resume: int,
        before: OutputFile | None,
        pieces: list[Piece],
        doubts: list[str],
        draft: Path,
        is_at_end: bool,
        is_open: bool,
    ) -> OutputFile:
        path, algorithm = self.folder / name, self.listed.algorithm
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if before is not None and self._stamps.get(name) == stamp and before.resume_bytes == resume:
            kept = self._settled(name, before, is_at_end)
            if kept.is_rewritten:
                self._copy(name, draft)
            return replace(kept, is_silent=name in self._silent or (is_open and 0 < resume == self._begin.get(name)))
        segment, is_continued, is_rewritten, is_late = self.segment, None, self.is_rewritten(name), False
        if before is not None:
            is_same = name not in self._absent and not before.is_rewritten and is_as_listed(path, before, algorithm)
            piece = None if is_same or is_rewritten or name in self._begun_again else self._piece_of(name, before)
            segment = before.segment if is_same or piece is None else self.segment
            if is_same:
                is_continued = self._is_continued(name, before, found.st_size > before.resume_bytes, is_at_end)
                is_late = before.is_late and found.st_size == before.resume_bytes
                if before.is_late and not is_late:
                    doubts.append(written_after(name))
                is_first = name in self._undecided and before.resume_bytes == 0 and before.has_grown
                if is_first and found.st_size and is_text(path):
                    doubts.append(_in_buffer(name))
            elif piece is not None:
                self._begun_again.add(name)
                pieces.append(piece)
                is_continued = False
            else:
                is_rewritten = True
                if before.is_continued and before.has_grown:
                    doubts.append(f"{name}: was begun again, and what segments before wrote in it is gone")
            self._undecided.discard(name)
            self._absent.discard(name)
        elif piece_path(self.run_folder, self.sequence, name).is_file():
            is_continued = False
        if is_rewritten:  # what was taken for pieces of it is older content
            pieces[:] = [piece for piece in pieces if piece.name != name]
        has_grown = before is not None or is_open
        is_rewritten = is_rewritten or (has_grown and is_changed_inside(path))
        if is_rewritten:
            copied = self._copy(name, draft)
            entry = described(draft / REWRITTEN / name, copied.st_size, copied.st_size, segment, algorithm)
            return replace(entry, is_rewritten=True, has_grown=has_grown, mtime_ns=copied.st_mtime_ns)
        entry = described(path, size, max(resume, 0), segment, algorithm, is_flushed_later=True)
        self._unflushed.append(str(path))
        return replace(
            entry,
            resume_bytes=resume,
            is_continued=is_continued,
            has_grown=has_grown,
            is_late=is_late,
            is_silent=name in self._silent,
        )

    def _is_continued(self, name: str, before: OutputFile, has_more: bool, is_at_end: bool) -> bool | None:
        """Return True if a program that was resumed went on in the file, which shows only once in an attempt."""
        is_shown = name in self._undecided and before.resume_bytes > 0 and (has_more or is_at_end)
        return True if is_shown else before.is_continued

    def _settled(self, name: str, before: OutputFile, is_at_end: bool) -> OutputFile:
        """Return the entry of an untouched file; after a whole attempt the program will not begin it again."""
        if is_at_end and before.is_continued is None and before.segment != self.segment:
            return replace(before, is_continued=True)
        return before

    def _piece_of(self, name: str, before: OutputFile) -> Piece | None:
        """Return the piece that holds an output as it was at the checkpoint; None if it was not kept."""
        if before.is_rewritten:
            return None
        for sequence, path in pieces_of(self.run_folder, name):
            if is_as_listed(path, before, self.listed.algorithm):
                return _piece(name, sequence, before)
        return None

    def _copy(self, name: str, draft: Path) -> os.stat_result:
        """Copy an output that is written again and again; return how it was then."""
        target = draft / REWRITTEN / name
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(COPY_TRIES):
            target.unlink(missing_ok=True)
            try:
                found = os.lstat(self.folder / name)
                if not has_journal(self.folder / name):
                    fs.copy_file(self.folder / name, target)
                elif not copy_database(self.folder / name, target):
                    continue
            except FileNotFoundError:
                continue
            if stamp_of(self.folder / name) == (found.st_ino, found.st_size, found.st_mtime_ns):
                return found
        raise UnsteadyOutputError(f"{name} is written again while it is copied")

    def _confirm_leads_into(self, draft: Path, name: str, target: str) -> None:
        """UnsteadyOutputError for a link to another save than the one in this draft: it is about to be changed."""
        place = os.path.normpath(os.path.join(os.path.dirname(name), target))
        is_inside = not os.path.isabs(place) and not place.startswith("..")
        below = fs.tree_files(self.folder / place) if is_inside and (self.folder / place).is_dir() else []
        names = [place, *(f"{place}/{each.as_posix()}" for each in below)]
        states = (
            [] if os.path.isabs(place) or place.startswith("..") else [each for each in names if self.is_state(each)]
        )
        if states and not any((draft / each).exists() for each in states):
            raise UnsteadyOutputError(f"{name} leads to {target}, which is another save")

    def _left(self, files: Mapping[str, OutputFile], known: Mapping[str, OutputFile], told: set[str]) -> list[Piece]:
        """Return the pieces of files that the program is known to begin again, and has not yet begun."""
        return [
            _piece(name, self.sequence, entry)
            for name, entry in known.items()
            if name not in files and name not in told and piece_path(self.run_folder, self.sequence, name).is_file()
        ]

    def _is_flushed_late(self, path: Path, name: str, length: int) -> bool:
        """Return True if what was written behind the state was in a buffer when that was saved."""
        return is_buffered(path, length, self._begin.get(name, 0))

    def _is_cut_within(self, path: Path, entry: OutputFile, before: OutputFile | None) -> bool:
        """Return True for a text that was in the program's buffer in part when the state was saved.

        Whole buffers may end with a line: once by chance, with each save only if the program flushes nothing.
        """
        length = entry.resume_bytes
        if entry.is_rewritten or length <= 0:
            return False
        is_whole = before is not None and not length % BUFFER_BYTES and not before.resume_bytes % BUFFER_BYTES
        return stops_within_a_line(path, length) or (is_whole and is_text(path))

    # --- all of them ---

    def _found(self) -> list[tuple[str, os.stat_result]]:
        """Return all outputs with their state; pipes, sockets and devices are left out with a line."""
        found = []
        for path in fs.tree_files(self.folder):
            name = path.as_posix()
            is_output = self.is_output(name)
            database = database_of(name)
            is_journal = bool(database) and is_database(self.folder / database)
            if is_journal or (not is_output and not self.is_state(name)):
                continue
            try:
                state = os.lstat(self.folder / name)
            except FileNotFoundError:
                continue
            if not is_output and not stat.S_ISLNK(state.st_mode):  # a link to a restart file is kept as a link
                continue
            if stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                found.append((name, state))
            else:
                self._say(f"{name} is no file (a pipe, socket or device), and is not kept")
        return found

    def _watch_size(self, files: Mapping[str, OutputFile], total: int) -> None:
        if len(files) <= MANY_FILES and total <= MANY_BYTES:
            return
        largest = sorted(files, key=lambda name: files[name].size_bytes, reverse=True)[:3]
        shown = ", ".join(f"{name} ({files[name].size_bytes / 1e9:.2g} GB)" for name in largest)
        self._say(
            f"keeps {len(files):,} output files; the largest: {shown}; to drop what nobody needs, type for "
            f"example discard: ['{largest[0]}'] in the run's settings"
        )

    def _say(self, line: str) -> None:
        key = line.partition(";")[0].partition(" output files")[0].split(" ")[0]
        if key not in self._told:
            self._told.add(key)
            self.tell(line)


def _piece(name: str, sequence: int, entry: OutputFile) -> Piece:
    return Piece(name, sequence, entry.segment, entry.resume_bytes, entry.head, entry.tail)


def written_after(name: str) -> str:
    """Return the doubt about a file that an imported program wrote after its restart files, and continued in."""
    return f"{name}: was written after the restart files that were imported; what was written again stands there twice"


def _in_buffer(name: str) -> str:
    return (
        f"{name}: the program had lines of it in its buffer when it saved, and they are missing; let it flush the file "
        "before it saves, or name its records in outputs"
    )
