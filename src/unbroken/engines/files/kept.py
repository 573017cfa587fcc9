"""Keep the files of a program that runs where the user called it: copy complete files, and list growing ones.

Only files are moved that match `keep` and that this run's program wrote.  Nothing is removed: files in the
way are moved to the store's `replaced/`.  What the program appends to is cut in place.
"""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.base import LAST_ACTION_SECONDS, MOST_SKIPS
from unbroken.engines.files.before import BeforeNote
from unbroken.engines.files.content import OutputFile, described, is_buffered, is_changed_inside, is_cut_by_a_buffer
from unbroken.engines.files.keep import Keep
from unbroken.engines.files.observed import Lengths, ObservedFiles, SaveCycle, literal_names
from unbroken.engines.files.outputs import OutputList, read_outputs
from unbroken.engines.files.put_back import PutBack, is_as_in, is_other, plain_stamp
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import ELSEWHERE, PRINTED, SAVE, TICKS_SECONDS, Stamp, are_copied, newest_ns
from unbroken.engines.files.stored import KEPT, kept_names, stored
from unbroken.engines.files.writers import open_for_writing
from unbroken.program.contract import AttemptFolder
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs

_INSIDE = "is changed inside while it grows, and not put back; name it in --keep, and close it before a save"
_IN_BUFFER = "is buffered by the program, and lines were lost in the buffer; let it flush each line"


class KeptFiles:
    """Hold the kept files of one attempt."""

    def __init__(self, keep: Keep, attempt: AttemptFolder, segment: int, tell: Callable[[str], None]) -> None:
        self.keep, self.folder, self._tell, self._segment = keep, keep.folder, tell, segment
        self._before = BeforeNote(keep.store)
        self._observed = ObservedFiles(
            self.folder,
            attempt,
            tell,
            is_state=keep.is_state,
            is_measured=self._is_measured,
            is_watched=keep.is_watched,
            also={SAVE: attempt.save, **({PRINTED: keep.printed} if keep.printed else {})},
        )
        self._observer = self._observed.observer
        self._observed.cycle = SaveCycle(literal_names(keep.globs))
        self._saved: dict[str, Stamp] = {}  # of what was copied or put back
        self._foreign: dict[str, Stamp] = {}
        self._source: Path | None = None  # the last checkpoint's folder of kept files
        self._lengths_before: dict[str, int] = {}
        self._doubts: tuple[str, ...] = ()
        self._written: set[str] = set()  # by an attempt that was killed
        self._listed: set[str] = set()  # with its last checkpoint
        self._rewritten: set[str] = set()  # outputs that the program writes from the beginning again and again
        self._skips = 0
        self.stop_asked_unix: float | None = None
        self.has_left_well = False  # the program, by itself

    # --- which files ---

    def found(self) -> dict[str, Stamp]:
        """Return all state files that match now, by their names."""
        found = {name: plain_stamp(self.folder / name) for name in self.keep.names(self._observer.appended)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def own(self) -> dict[str, Stamp]:
        """Return those that are this run's: the others are as they were before it began."""
        return {name: stamp for name, stamp in self.found().items() if self._foreign.get(name) != stamp}

    def _links(self) -> dict[str, str]:
        """Return the links among what matches, and where they lead."""
        paths = [(name, self.folder / name) for name in self.keep.names(self._observer.appended)]
        return {name: os.readlink(path) for name, path in paths if path.is_symlink()}

    def _is_measured(self, name: str) -> bool:
        """Return True for what the program prints, an output, and a kept file that is appended to."""
        return name in self._observer.appended or self.keep.is_output(name)

    # --- before the program starts ---

    def is_there_before(self, origin: Checkpoint | None) -> bool:
        """Return True if state files are there that no attempt of this run has written, and that are not saved yet."""
        found = self.found()
        is_known = self._before.is_new or (found == self._before.foreign and not self._before.late)
        return origin is None and bool(found) and is_known

    def restore(self, origin: Checkpoint | None) -> None:
        """Make the files what they were at the checkpoint; without one, what they were before the run began."""
        self._source = origin.folder / KEPT if origin else None
        wanted, listed = set(kept_names(origin)), read_outputs(origin)
        # What the attempts before have learned.
        self._observer.appended = {name for name in listed.files if self.keep.is_state(name) and name not in wanted}
        self._observed.cycle = SaveCycle(wanted or literal_names(self.keep.globs))
        self._rewritten = _rewritten_in(listed)
        self._doubts = PutBack(self.keep, self._before, self._tell).put_back(origin, listed, self.found())
        found = self.found()
        self._saved = {name: stamp for name, stamp in found.items() if name in wanted}
        self._foreign = {name: stamp for name, stamp in found.items() if name not in wanted}
        known, is_late = self._before.foreign, origin is None and not self._before.is_new
        self._before.late = {name: stamp for name, stamp in found.items() if is_late and known.get(name) != stamp}
        self._before.write(self._foreign)

    def begin(self) -> None:
        """Begin to observe; the program starts after this."""
        named = [name for each in self.keep.outputs for name in self.keep.files_of(each) if not os.path.isabs(name)]
        if self.keep.printed is not None:
            self.keep.printed.touch()  # what is not there cannot be watched
            named.append(PRINTED)
        for name in [*named, *self._observer.appended]:
            with suppress(OSError):
                self._lengths_before[name] = self._path(name).stat().st_size
        self._observed.begin(self._lengths_before, self.found())

    def know_before(self, origin: Checkpoint | None) -> None:
        """Take over from an attempt that was killed: what it put back or saved is no new state."""
        self._foreign = self._before.foreign
        saved = {name for name in kept_names(origin) if origin is not None and is_as_in(origin, name, self.folder)}
        self._saved = {name: stamp for name, stamp in self.found().items() if name in saved}
        self._observed.know_before()
        known, listed = self._observed.known, read_outputs(origin)
        self._doubts, self._listed, self._rewritten = listed.doubts, set(listed.files), _rewritten_in(listed)
        self._source = origin.folder / KEPT if origin else None
        # What matches and is complete in no moment was appended to.
        completed = {name for name, moment in known.items() if plain_stamp(self.folder / name) == moment.stamp}
        self._written = {name for moment in known.values() for name in moment.lengths}
        self._observer.appended = {name for name in self._written - completed if self.keep.is_state(name)}

    # --- while it works, and at its end ---

    def complete(self) -> dict[str, Stamp]:
        """Return the files of a new state that is complete while the program works; none if there is no new one."""
        self._before.give_sign(self._observer.written())
        now = self.own()
        if self.keep.saved_by not in (SavedBy.OBSERVED, SavedBy.RENAME):
            return self._new(self._by_evidence(now))
        self._observer.settle()
        is_over = self._is_observed_complete(now) and self._observed.is_save_over(now, self._saved)
        return self._new(now if is_over else {})

    def last(self) -> dict[str, Stamp]:
        """Return what was complete of a program that was ended, or crashed."""
        now = self.own()
        if self.keep.saved_by not in (SavedBy.OBSERVED, SavedBy.RENAME):
            return self._new(self._by_evidence(now))
        return self._new(now if self._is_observed_complete(now) else {})

    def whole(self) -> dict[str, Stamp]:
        """Return all of a program that has left well."""
        return self._new(self.own())

    def end_observing(self) -> None:
        """Take what happened until the program was gone."""
        self._observed.end()
        self._before.give_sign(self._observer.written(), is_last=True)

    def why_not_complete(self) -> str:
        """Return which files are open for writing now; empty if none is."""
        is_open = [name for name in self.own() if self._observer.is_open(name)]
        return f"open for writing at each look: {', '.join(is_open[:3])}" if is_open else ""

    def _is_observed_complete(self, now: Mapping[str, Stamp]) -> bool:
        is_said = self.keep.saved_by is SavedBy.RENAME
        return self._observed.are_complete(now, self._saved, is_said_to_rename=is_said)

    def _by_evidence(self, now: Mapping[str, Stamp]) -> Mapping[str, Stamp]:
        """Return those that are complete by a name or by another file, whatever became of the program."""
        if self.keep.saved_by is SavedBy.MARKER:
            marked = plain_stamp(self.folder / self.keep.marker)
            return now if marked is not None and marked[2] >= newest_ns(now) else {}
        if self.keep.saved_by is SavedBy.NEXT:
            highest = self.keep.number(now)
            return {name: stamp for name, stamp in now.items() if self.keep.number_in(name) != highest}
        return {}

    def _new(self, files: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Return these files, unless they are what was saved: a program that writes the same again made no step."""
        if files.keys() == self._saved.keys() and all(self._is_as_saved(name, files[name]) for name in files):
            self._saved = dict(files)
            return {}
        return dict(files)

    def _is_as_saved(self, name: str, stamp: Stamp) -> bool:
        saved, source = self._saved[name], self._source and self._source / stored(name)
        if stamp == saved:
            return True
        if source is None or stamp[1] != saved[1]:
            return False
        with suppress(OSError):  # one of them is just being replaced
            return filecmp.cmp(self.folder / name, source, shallow=False)
        return False

    # --- copies ---

    def copy(
        self,
        files: Mapping[str, Stamp],
        draft: Path,
        is_running: bool,
        *,
        is_at_end: bool = False,
        is_finished: bool = False,
    ) -> bool:
        """Copy the files of a state to `draft/kept`, and list what grows; return False, without a copy, on a change.

        What has not changed since the last checkpoint gets a second name there.
        """
        if is_running and self.keep.saved_by is SavedBy.MARKER:
            time.sleep(TICKS_SECONDS)  # the clock of files goes by ticks
        lengths, blurred = self._lengths_at(files)
        saved_unix = newest_ns(files) / 1e9
        if blurred and is_running:
            return self._skip(
                f"{blurred} is written while the kept files are, so what of it belongs to them is unknown"
            )
        if blurred and not is_finished and not self._has_saved_last(saved_unix):
            if self._source is not None:
                return False  # the checkpoint before is exact
            self._doubt(
                f"{blurred.lstrip(ELSEWHERE)}: what of it belongs to the first save is unknown; lines may be double"
            )
        targets = {name: draft / KEPT / stored(name) for name in files}
        new = {name: stamp for name, stamp in files.items() if not self._is_linked(name, stamp, targets[name])}
        if not are_copied(self.folder, new, targets):
            fs.remove_tree(draft)
            return self._skip(f"{', '.join(list(files)[:3])} changed while copied") if is_running else False
        self._skips = 0
        self.list_into(draft, None if blurred else lengths, saved_unix, is_at_end=is_at_end)
        return True

    def _is_linked(self, name: str, stamp: Stamp, target: Path) -> bool:
        """Give a file that is in the last checkpoint a second name; return False if it is another by now."""
        source = self._source / stored(name) if self._source else None
        if source is None or self._saved.get(name) != stamp or not source.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        fs.link_or_copy(source, target)
        return True

    def saved(self, files: Mapping[str, Stamp]) -> None:
        """Note that these are in a checkpoint now."""
        self._saved = dict(files)
        self._source = self.keep.store / "checkpoints" / "latest" / KEPT  # by the next save

    def lengths_when(self, state: str) -> tuple[Mapping[str, int] | None, float]:
        """Return the lengths when a state of the contract was handed over, and when that was (Unix seconds)."""
        lengths, _ = self._observed.lengths_when(f"{SAVE}/{state}") or (None, "")
        moment = self._observed.moment(f"{SAVE}/{state}")
        return lengths, time.time() if lengths is None or moment is None else moment.stamp[2] / 1e9

    def list_into(
        self, draft: Path, lengths: Mapping[str, int] | None, saved_unix: float, *, is_at_end: bool = False
    ) -> None:
        """Write into a draft how long each growing file was when the state was saved; None: as it is now."""
        growing = self._growing()
        self._rewritten |= {name for name in growing if self._observer.is_rewritten(name)}
        settled = {is_other(name) for name in self._rewritten}
        self._doubts = tuple(doubt for doubt in self._doubts if doubt not in settled)
        files: dict[str, OutputFile] = {}
        listed = OutputList(files, self._links(), doubts=self._doubts)
        has_saved_last = is_at_end and self._has_saved_last(saved_unix)
        for name, path in growing.items():
            with suppress(FileNotFoundError):
                if is_changed_inside(path):  # to cut it would not give back what it was
                    is_open = self._observed.was_open(name)
                    listed = listed.with_doubt(f"{name.lstrip(ELSEWHERE)} {_INSIDE}") if is_open else listed
                    continue
                size = path.stat().st_size
                resume = size if lengths is None else lengths.get(name, self._length_before(name))
                if has_saved_last and 0 <= resume < size:
                    resume = size if is_buffered(path, resume, self._lengths_before.get(name, 0)) else resume
                elif not has_saved_last and is_cut_by_a_buffer(path, resume, size):
                    # They are missing only if the program is resumed from this very state.
                    listed = listed.with_doubt(f"{name.lstrip(ELSEWHERE)} {_IN_BUFFER}") if resume >= 0 else listed
                if 0 <= resume <= size:
                    entry = described(path, size if is_at_end else resume, resume, self._segment, listed.algorithm)
                    files[name] = replace(entry, is_rewritten=name in self._rewritten)
        listed.write(draft)

    def _lengths_at(self, files: Mapping[str, Stamp]) -> Lengths:
        """Return the lengths when these files were complete; else the name of one whose length is unknown."""
        lengths, blurred = self._observed.lengths_at(files, self._growing)
        if lengths is None:
            return None, blurred
        # Kept files that were found to be appended to after their lengths were needed.
        late = [name for name in sorted(self._observer.appended) if name not in lengths and self._path(name).exists()]
        return lengths, next((name for name in late if self._length_before(name) < 0), "")

    def _length_before(self, name: str) -> int:
        """Return the length of a file that the program had not touched when it saved; -1 if that is unknown."""
        return -1 if name in self._observed.unknown else self._lengths_before.get(name, -1)

    def _growing(self) -> dict[str, Path]:
        """Return what the program appends to: what it prints, kept files and outputs, and what it has open."""
        opened = {os.path.relpath(path, self.folder) for path in open_for_writing(self._observed.mark)} | self._listed
        found = {PRINTED: self.keep.printed} if self.keep.printed is not None and self.keep.printed.exists() else {}
        for name in sorted((self._observer.written() | self._written) - {PRINTED}):
            is_kept = name not in self._observer.appended and self.keep.is_state(name)
            if (self._is_measured(name) or name in opened) and not is_kept and (self.folder / name).is_file():
                found[name] = self.folder / name
        return found

    def _has_saved_last(self, saved_unix: float) -> bool:
        """Return True if the program saved as its last action: then its buffers belong to the state."""
        is_just_now = self.has_left_well and saved_unix >= time.time() - LAST_ACTION_SECONDS
        is_asked = self.stop_asked_unix is not None and saved_unix >= self.stop_asked_unix
        return self.keep.saved_by is SavedBy.EXIT or is_just_now or is_asked

    def _path(self, name: str) -> Path:
        return self.keep.printed if name == PRINTED and self.keep.printed is not None else self.folder / name

    def _doubt(self, doubt: str) -> None:
        if doubt not in self._doubts:
            self._doubts = (*self._doubts, doubt)
            self._tell(doubt)

    def _skip(self, why: str) -> bool:
        """Return False; log why after some saves in a row."""
        self._skips += 1
        if self._skips == MOST_SKIPS:
            self._tell(f"not saved: {why}; the next save is tried")
        return False


def _rewritten_in(listed: OutputList) -> set[str]:
    return {name for name, entry in listed.files.items() if entry.is_rewritten}
