"""Make the list of outputs of one checkpoint: what became of each file since the checkpoint before."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.engines.files.content import (
    BUFFER_BYTES,
    OutputFile,
    described,
    is_as_listed,
    is_buffered,
    is_changed_inside,
    is_text,
    stops_within_a_line,
)
from unbroken.engines.files.databases import copy_database, has_journal
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.outputs import REWRITTEN, OutputList, Piece, piece_of, piece_path, pieces_of
from unbroken.engines.files.states import Stamp, stamp_in, stamp_of
from unbroken.engines.files.workspace import Workspace, without
from unbroken.system import copying, fs

# An output that changes while it is copied is tried so often.
COPY_TRIES = 3


class UnsteadyOutputError(Exception):
    """Report an output that does not stay as it belongs to a state; the text names it, and what happens to it."""


@dataclass(frozen=True)
class ProgramEnd:
    """Describe the end of the program whose outputs are listed: done, or saved as its last action; its progress."""

    is_finished: bool = False
    has_saved_last: bool = False
    done: float | None = None


@dataclass(frozen=True)
class Known:
    """Hold what is known of the outputs since the attempt began."""

    undecided: set[str] = field(default_factory=set)  # put back, and not yet seen to be continued or begun again
    absent: set[str] = field(default_factory=set)  # kept in pieces: what has their names was begun again
    begun_again: set[str] = field(default_factory=set)
    stamps: dict[str, Stamp] = field(default_factory=dict)  # of what is listed

    def copy(self) -> Known:
        return Known(set(self.undecided), set(self.absent), set(self.begun_again), dict(self.stamps))


@dataclass
class TrackedOutputs:
    """Track the outputs in the program's folder, in addition to those of the checkpoint that the attempt resumes from.

    `sequence` is the number of that checkpoint, 0 if there is none; `is_rewritten` says of a name whether it was seen
    to be written from its beginning again and again.
    """

    workspace: Workspace
    segment: int
    sequence: int
    listed: OutputList
    kinds: FileKinds
    is_rewritten: Callable[[str], bool] = lambda _: False
    is_own: bool = False  # this attempt has made the checkpoint: how its files continue says nothing of a restart
    lengths: dict[str, int] = field(default_factory=dict)  # at the start of the program
    silent: set[str] = field(default_factory=set)  # in a checkpoint from which a program was resumed
    _known: Known = field(default_factory=Known)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.is_own:
            absent = {name for name, entry in self.listed.files.items() if entry.is_continued is False}
            self._known = Known(set(self.listed.files), absent)

    @property
    def folder(self) -> Path:
        """Return where the program works."""
        return self.workspace.folder

    @property
    def run_folder(self) -> Path:
        """Return the folder of the run."""
        return self.workspace.run_folder

    @property
    def known(self) -> Known:
        """Return a copy of what is known, for a list that may fail."""
        return self._known.copy()


@dataclass
class NewList:
    """Build a list, at the `end` of the program, or while it runs: it counts only once it is written."""

    tracker: TrackedOutputs
    draft: Path
    lengths: Mapping[str, int] | None
    opened: frozenset[str]
    end: ProgramEnd | None

    def __post_init__(self) -> None:
        listed = self.tracker.listed
        self.is_finished = self.end is not None and self.end.is_finished
        self.before, self.algorithm = listed.files, listed.algorithm
        self.files: dict[str, OutputFile] = {}
        self.links: dict[str, str] = {}
        self.pieces, self.doubts = list(listed.pieces), list(listed.doubts)
        self.known = self.tracker.known
        self.buffered: list[str] = []
        self.unflushed: list[str] = []

    def add(self, name: str, found: os.stat_result, *, is_older: bool = False) -> None:
        """Take an output, if it belongs to the moment; a file of an older state stays as it is."""
        path = self.tracker.folder / name
        if stat.S_ISLNK(found.st_mode):
            self.links[name] = os.readlink(path)
            if self.end is None:
                self._confirm_leads_into(name, self.links[name])
            return
        is_table = self.tracker.kinds.is_table(name)  # it is joined by its records, and not cut to a length
        lengths = None if is_table or is_older else self.lengths
        resume = found.st_size if lengths is None else lengths.get(name, -1)
        if resume > found.st_size:  # begun again since
            resume = -1
        if self.end is not None and self.end.has_saved_last:
            is_late = 0 <= resume < found.st_size and is_buffered(path, resume, self.tracker.lengths.get(name, 0))
            resume = found.st_size if resume < 0 or is_late else resume
        if resume < 0 and not self.is_finished:
            return  # what it has now is younger than the state
        size = resume if self.end is None else found.st_size
        resume = -1 if self.tracker.kinds.is_finished_mark(name) else resume
        before = self.before.get(name)
        before = None if before is not None and before.resume_bytes < 0 else before  # it was not put back
        entry = self._untouched(name, found, resume, before) or self._entry(name, found, (size, resume), before)
        self.files[name] = replace(entry, is_continued=is_older) if is_table or is_older else entry
        self.known.stamps[name] = stamp_in(found)
        is_cut = name in self.opened or found.st_size > resume or entry.has_grown
        is_all = is_table or self.is_finished
        if is_cut and not is_all and self._is_cut_within(name, entry):
            self.buffered.append(name)
            if name in self.tracker.silent:  # of a program that was killed then
                self.doubts.append(in_buffer(name))

    def finished(self) -> OutputList:
        """Return the list; with the pieces of files that the program is known to begin again, and has not yet begun."""
        again = {piece.name for piece in self.pieces} - self.files.keys()
        run_folder, sequence = self.tracker.run_folder, self.tracker.sequence
        for name in self.before.keys() - self.files.keys() - again:
            if piece_path(run_folder, sequence, name).is_file():
                self.pieces.append(piece_of(name, sequence, self.before[name]))
        settled = {without(name) for name in self.files}
        doubts = tuple(doubt for doubt in dict.fromkeys(self.doubts) if doubt not in settled)
        return OutputList(self.files, self.links, tuple(self.pieces), doubts, self.algorithm)

    # --- one file ---

    def _untouched(self, name: str, found: os.stat_result, resume: int, before: OutputFile | None) -> OutputFile | None:
        """Return the entry of a file that is as it was listed; None for any other."""
        if before is None or self.known.stamps.get(name) != stamp_in(found) or before.resume_bytes != resume:
            return None
        if before.is_rewritten:
            self._copy(name)
        is_open_since = name in self.opened and 0 < resume == self.tracker.lengths.get(name)
        # After a whole attempt the program will not begin it again.
        is_left = self.end is not None and before.is_continued is None and before.segment != self.tracker.segment
        is_left = is_left and not self.tracker.kinds.is_continued(name)
        is_silent = name in self.tracker.silent or is_open_since
        is_continued = True if is_left else before.is_continued
        size = min(before.size_bytes, found.st_size)  # it was cut when it was put back
        return replace(before, size_bytes=size, is_continued=is_continued, is_silent=is_silent)

    def _entry(self, name: str, found: os.stat_result, sizes: tuple[int, int], before: OutputFile | None) -> OutputFile:
        path, (size, resume) = self.tracker.folder / name, sizes
        fate = self._fate(name, found, before)
        if fate.is_rewritten:  # what was taken for pieces of it is older content
            self.pieces = [piece for piece in self.pieces if piece.name != name]
        has_grown = before is not None or name in self.opened
        if fate.is_rewritten or (has_grown and is_changed_inside(path)):
            copied = self._copy(name)
            whole = described(
                self.draft / REWRITTEN / name,
                copied.st_size,
                copied.st_size,
                segment=fate.segment,
                algorithm=self.algorithm,
            )
            return replace(whole, is_rewritten=True, has_grown=has_grown, mtime_ns=copied.st_mtime_ns)
        entry = described(
            path, size, max(resume, 0), segment=fate.segment, algorithm=self.algorithm, is_flushed_later=True
        )
        self.unflushed.append(str(path))
        return replace(
            entry,
            resume_bytes=resume,
            is_continued=fate.is_continued,
            has_grown=has_grown,
            is_late=fate.is_late,
            is_silent=name in self.tracker.silent,
        )

    def _fate(self, name: str, found: os.stat_result, before: OutputFile | None) -> OutputFile:
        """Return whether a file was continued, begun again, or is written again and again, and who began it."""
        is_table = self.tracker.kinds.is_table(name)
        is_rewritten = self.tracker.is_rewritten(name) and not is_table
        fate = OutputFile(0, 0, "", "", self.tracker.segment, 0, is_rewritten=is_rewritten)
        if before is None:
            is_kept = piece_path(self.tracker.run_folder, self.tracker.sequence, name).is_file()
            is_kept = is_kept and not self.tracker.kinds.is_continued(name)
            return replace(fate, is_continued=False if is_kept else None)
        if self.tracker.kinds.is_continued(name):
            # It may be cut further than here, and be killed in it: so each attempt keeps it as it was.
            return replace(fate, segment=before.segment, is_rewritten=False)
        path = self.tracker.folder / name
        is_same = name not in self.known.absent and not before.is_rewritten
        is_same = is_same and is_as_listed(path, before, self.algorithm)
        piece = None if is_same or is_rewritten or name in self.known.begun_again else self._kept(name, before)
        if piece is not None:
            self.pieces.append(piece)
            self.known.begun_again.add(name)
            fate = replace(fate, is_continued=False)
        elif is_same:
            fate = self._continued(name, found, before, fate)
        elif not is_table:  # an attempt may write its own records again, and never those of the attempts before
            if before.is_continued and before.has_grown:
                self.doubts.append(f"{name}: was begun again, and what segments before wrote in it is gone")
            fate = replace(fate, segment=before.segment, is_rewritten=True)
        self.known.undecided.discard(name)
        self.known.absent.discard(name)
        return fate

    def _continued(self, name: str, found: os.stat_result, before: OutputFile, fate: OutputFile) -> OutputFile:
        """Return the fate of a file that begins as it did: that a resumed program continued in it shows only once."""
        is_undecided, has_more = name in self.known.undecided, found.st_size > before.resume_bytes
        # A program that copies it to go on may be killed with the copy half made: then it has to be kept every time.
        is_copied = name in self.known.stamps and self.known.stamps[name][0] != found.st_ino
        is_shown = is_undecided and before.resume_bytes > 0 and (has_more or self.end is not None) and not is_copied
        is_late = before.is_late and found.st_size == before.resume_bytes
        if before.is_late and not is_late:
            self.doubts.append(written_after(name))
        is_first = is_undecided and before.resume_bytes == 0 and before.has_grown and bool(found.st_size)
        if is_first and is_text(self.tracker.folder / name):
            self.doubts.append(in_buffer(name))
        is_continued = True if is_shown else before.is_continued
        return replace(fate, segment=before.segment, is_continued=is_continued, is_late=is_late)

    def _kept(self, name: str, before: OutputFile) -> Piece | None:
        """Return the piece that holds an output as it was at the checkpoint; None if it was not kept."""
        if before.is_rewritten:
            return None
        pieces = pieces_of(self.tracker.run_folder, name)
        found = (number for number, path in pieces if is_as_listed(path, before, self.algorithm))
        return next((piece_of(name, number, before) for number in found), None)

    def _copy(self, name: str) -> os.stat_result:
        """Copy an output that is written again and again; return how it was then."""
        source, target = self.tracker.folder / name, self.draft / REWRITTEN / name
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(COPY_TRIES):
            target.unlink(missing_ok=True)
            try:
                found = os.lstat(source)
                if not has_journal(source):
                    copying.copy_file(source, target)
                elif not copy_database(source, target):
                    continue
            except FileNotFoundError:
                continue
            if stamp_of(source) == stamp_in(found):
                return found
        raise UnsteadyOutputError(f"{name} is written again while it is copied")

    def _confirm_leads_into(self, name: str, target: str) -> None:
        """Raise UnsteadyOutputError for a link to another save than the one in this draft: it is about to change."""
        place = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if os.path.isabs(place) or place.startswith(".."):
            return
        folder = self.tracker.folder / place
        below = fs.tree_files(folder) if folder.is_dir() else []
        names = [place, *(f"{place}/{each.as_posix()}" for each in below)]
        states = [each for each in names if self.tracker.kinds.is_state(each)]
        if states and not any((self.draft / each).exists() for each in states):
            raise UnsteadyOutputError(f"{name} leads to {target}, which is another save")

    def _is_cut_within(self, name: str, entry: OutputFile) -> bool:
        """Return True for a text that was in the program's buffer in part when the state was saved.

        Whole buffers may end with a line: once by chance, with each save only if the program flushes nothing.
        """
        path, length, before = self.tracker.folder / name, entry.resume_bytes, self.before.get(name)
        if entry.is_rewritten or length <= 0:
            return False
        is_whole = before is not None and not length % BUFFER_BYTES and not before.resume_bytes % BUFFER_BYTES
        return stops_within_a_line(path, length) or (is_whole and is_text(path))


def written_after(name: str) -> str:
    """Return the doubt about a file that an imported program wrote after its restart files, and continued in."""
    return f"{name}: was written after the restart files that were imported; what was written again stands there twice"


def in_buffer(name: str) -> str:
    """Return the doubt about a file that was in the program's buffer in part when a state was saved."""
    return (
        f"{name}: the program had lines of it in its buffer when it saved, and they are missing; let it flush the file "
        "before it saves, or name its records in outputs"
    )
