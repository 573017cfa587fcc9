"""The files of a program that runs where the user called it: copied when complete, and made again what they were.

Only files are moved that match `keep` and that this run's program wrote.  Nothing is removed: what has to make room
goes to the store's `replaced/`.  What the program appends to is cut in place.
"""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.before import LAST_SIGN_SECONDS, BeforeNote
from unbroken.engines.files.databases import beside, has_journal, is_database
from unbroken.engines.files.keep import ELSEWHERE, PRINTED, SAVE, Keep
from unbroken.engines.files.observed import ObservedFiles
from unbroken.engines.files.outputs import (
    OutputFile,
    OutputList,
    described,
    is_as_listed,
    is_buffered,
    is_changed_inside,
    is_cut_by_a_buffer,
    read_outputs,
)
from unbroken.engines.files.saves import SaveCycle, literal_names
from unbroken.engines.files.settings import SavedBy
from unbroken.engines.files.states import TICKS_SECONDS, Stamp, are_copied, state_stamp_of
from unbroken.engines.files.stored import KEPT, Replaced, kept_names, put_file, stored
from unbroken.engines.files.workspace import cut, remove_emptied
from unbroken.engines.files.writers import are_written, open_for_writing
from unbroken.errors import CheckpointError
from unbroken.program.contract import AttemptFolder
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs
from unbroken.system.digests import digest_file

SKIPS_TOLD = 3
LAST_ACTION_SECONDS = 2.0


class KeptFiles:
    """The kept files of one attempt."""

    def __init__(self, keep: Keep, attempt: AttemptFolder, segment: int, tell: Callable[[str], None]) -> None:
        self.keep, self.folder, self._tell, self._segment = keep, keep.folder, tell, segment
        self._mark = f"UNBROKEN_SAVE={attempt.save.resolve()}"
        self._before = BeforeNote(keep.store)
        self._replaced = Replaced(keep.store, keep.folder)
        also = {SAVE: attempt.save, **({PRINTED: keep.printed} if keep.printed else {})}
        self._observed = ObservedFiles(
            self.folder,
            attempt.root,
            self._mark,
            tell,
            self.keep.is_state,
            self.keep.is_watched,
            self._is_named,
            also,
            is_saved=lambda name: not name.startswith(f"{SAVE}/"),
        )
        self._observer = self._observed.observer
        self._observed.cycle = SaveCycle(literal_names(keep.globs))
        self._seen: Mapping[str, Stamp] = {}  # at the last look
        self._steady: Mapping[str, Stamp] = {}  # complete at the last look
        self._saved: dict[str, Stamp] = {}  # of what was copied or put back
        self._foreign: dict[str, Stamp] = {}
        self._source: Path | None = None  # the last checkpoint's folder of kept files
        self._lengths_before: dict[str, int] = {}
        self._doubts: tuple[str, ...] = ()
        self._unknown: frozenset[str] = frozenset()  # whose lengths at the last moment are unknown
        self._written: set[str] = set()  # by an attempt that was killed
        self._listed: set[str] = set()  # with its last checkpoint
        self._rewritten: set[str] = set()  # outputs that the program writes from the beginning again and again
        self._skips = 0
        self.stop_asked_unix: float | None = None
        self.has_left_well = False  # the program, by itself

    # --- which files ---

    def found(self) -> dict[str, Stamp]:
        """Return all state files that match now, by their names."""
        found = {name: _stamp(self.folder / name) for name in self.keep.names(self._observer.appended)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def links(self) -> dict[str, str]:
        """Return the links among what matches, and where they lead."""
        paths = [(name, self.folder / name) for name in self.keep.names(self._observer.appended)]
        return {name: os.readlink(path) for name, path in paths if path.is_symlink()}

    def own(self) -> dict[str, Stamp]:
        """Return those that are this run's: the others are as they were before it began."""
        return {name: stamp for name, stamp in self.found().items() if self._foreign.get(name) != stamp}

    # --- before the program starts ---

    def restore(self, origin: Checkpoint | None) -> None:
        """Make the files what they were at the checkpoint; without one, what they were before the run began."""
        self._source = origin.folder / KEPT if origin else None
        wanted, listed = kept_names(origin), read_outputs(origin)
        # What the attempts before have learned.
        self._observer.appended = {
            name for name in listed.files if self.keep.is_state(name) and name not in set(wanted)
        }
        self._observed.cycle = SaveCycle(wanted or literal_names(self.keep.globs))
        put_back, moved = [], self._move_newer(set(wanted), listed)
        for name in wanted:
            if origin is not None and (not self._is_as_in(origin, name) or has_journal(self.folder / name)):
                is_data = is_database(origin.folder / KEPT / stored(name))
                moved += [each for each in (name, *(beside(name) if is_data else ())) if self._replaced.move(each)]
                put_file(origin.folder / KEPT / stored(name), self.folder / name)
                put_back.append(name)
        put_back += self._put_links_back(listed, moved)
        self._cut_back(listed)
        remove_emptied(self.folder, moved)
        if put_back:
            self._tell(f"put back from the checkpoint: {', '.join(put_back)}")
        if moved:
            self._tell(f"moved to {self._replaced.root}, being newer than what was saved complete: {', '.join(moved)}")
        found = self.found()
        self._saved = {name: stamp for name, stamp in found.items() if name in set(wanted)}
        self._foreign = {name: stamp for name, stamp in found.items() if name not in set(wanted)}
        known = self._before.foreign
        late = {} if self._before.is_new or origin is not None else found
        self._before.late = {name: stamp for name, stamp in late.items() if known.get(name) != stamp}
        self._before.write(self._foreign, self._before.written)

    def _move_newer(self, wanted: set[str], listed: OutputList) -> list[str]:
        """Move away what the program wrote and no checkpoint has."""
        moved = []
        for name, stamp in self.found().items():
            is_late = self._before.late.get(name) == stamp
            if name in wanted or name in listed.files or (self._before.foreign.get(name) == stamp and not is_late):
                continue
            if self._before.is_new or not (is_late or self._is_ours(name)):
                continue
            own = [name, *(beside(name) if is_database(self.folder / name) else ())]
            moved += [each for each in own if self._replaced.move(each)]
        return moved

    def _is_ours(self, name: str) -> bool:
        """Return True if the program wrote it, by its events, or by the time at which the last attempt lived."""
        changed = (self.folder / name).lstat().st_ctime
        return name in self._before.written or changed <= self._before.last_sign + LAST_SIGN_SECONDS

    def _put_links_back(self, listed: OutputList, moved: list[str]) -> list[str]:
        done = []
        for name, target in listed.links.items():
            path = self.folder / name
            if path.is_symlink() and os.readlink(path) == target:
                continue
            if self._replaced.move(name):
                moved.append(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
            done.append(name)
        return done

    def _cut_back(self, listed: OutputList) -> None:
        """Cut what the program appends to, to its length at the checkpoint."""
        self._doubts, self._rewritten = listed.doubts, _rewritten_in(listed)
        for doubt in self._doubts:
            self._tell(f"doubt: {doubt}")
        files = dict(listed.files)
        if self.keep.printed is not None and PRINTED not in files and self.keep.printed.exists():
            files[PRINTED] = OutputFile(0, 0, "", "", 0, 0)
        for name, entry in files.items():
            path = self._path(name)
            if not path.is_file() or (entry.head and not is_as_listed(path, entry, listed.algorithm)):
                if name == PRINTED:
                    raise CheckpointError(f"{_is_other(name)} ({path}); type --anew to begin again")
                if not entry.is_rewritten:
                    self._doubt(_is_other(name))
            elif cut(path, entry, lambda name=name: self._replaced.place(name.lstrip(ELSEWHERE))):  # type: ignore[misc]
                self._tell(f"cut to its length at the checkpoint: {name.lstrip(ELSEWHERE)}")

    def is_there_before(self, origin: Checkpoint | None) -> bool:
        """Return True if state files are there that no attempt of this run has written, and that are not saved yet."""
        found = self.found()
        is_known = self._before.is_new or (found == self._before.foreign and not self._before.late)
        return origin is None and bool(found) and is_known

    def begin(self) -> None:
        """Begin to observe; the program starts after this."""
        named = [name for each in self.keep.outputs for name in self.keep.files_of(each) if not os.path.isabs(name)]
        named += self._observer.appended
        if self.keep.printed is not None:
            self.keep.printed.touch()  # what is not there cannot be watched
            named.append(PRINTED)
        for name in named:
            with suppress(OSError):
                self._lengths_before[name] = self._path(name).stat().st_size
        self._observed.begin(self._lengths_before, self.found())
        if self._observer.is_blind:
            self._tell(f"{self._observer.why_blind}; what grows is compared by its times alone")

    def know_before(self, origin: Checkpoint | None) -> None:
        """Take over from an attempt that was killed: what it put back or saved is no new state."""
        self._foreign = self._before.foreign
        wanted = [name for name in kept_names(origin) if origin is not None and self._is_as_in(origin, name)]
        self._saved = {name: stamp for name, stamp in self.found().items() if name in wanted}
        self._observed.know_before()
        known = self._observed.known
        listed = read_outputs(origin)
        self._doubts, self._listed, self._rewritten = listed.doubts, set(listed.files), _rewritten_in(listed)
        self._source = origin.folder / KEPT if origin else None
        # What matches and is complete in no moment was appended to.
        completed = {name for name, (moment, _) in known.items() if _stamp(self.folder / name) == moment.stamp}
        lengths = {name for moment, _ in known.values() for name in moment.lengths}
        self._observer.appended = {name for name in lengths if self.keep.is_state(name) and name not in completed}
        self._written = lengths

    # --- while it works, and at its end ---

    def complete(self) -> dict[str, Stamp]:
        """Return the files of a new state that is complete while the program works; none if there is no new one."""
        self._before.give_sign(self._observer.written())
        now = self.own()
        seen, self._seen = self._seen, now
        way = self._way(now)
        if way is SavedBy.EXIT or not now:
            return {}
        if way is SavedBy.CLOSED:
            plain = [path for name in now if not is_database(path := self.folder / name)]
            is_steady = now == seen and not are_written(plain, self._mark)
            self._steady = now if is_steady else {}
            return self._new(self._steady)
        if way is SavedBy.OBSERVED:
            self._observer.settle()
            return self._new(now if self._is_observed_complete(now) and self._is_save_over(now) else {})
        return self._new(self.by_evidence(now))

    def last(self) -> dict[str, Stamp]:
        """Return what was complete of a program that was ended, or crashed."""
        now = self.own()
        way = self._way(now)
        if way is SavedBy.CLOSED:
            return self._new(now if now == self._steady else {})
        if way is SavedBy.OBSERVED:
            return self._new(now if self._is_observed_complete(now) else {})
        return self._new(self.by_evidence(now))

    def whole(self) -> dict[str, Stamp]:
        """Return all of a program that has left well."""
        return self._new(self.own())

    def end_observing(self) -> None:
        """Take what happened until the program was gone."""
        self._observed.end()
        self._before.give_sign(self._observer.written(), is_last=True)

    def why_not_complete(self) -> str:
        """Return which file was open, or written again, at each look; empty if that was not the reason."""
        is_open = [name for name in self.own() if self._observer.is_open(name)]
        return f"open for writing at each look: {', '.join(is_open[:3])}" if is_open else ""

    def _way(self, now: Mapping[str, Stamp]) -> SavedBy:
        """Return how these files are found complete: files that events do not tell of are looked at again and again."""
        if self.keep.saved_by not in (SavedBy.OBSERVED, SavedBy.RENAME):
            return self.keep.saved_by
        if not self._observer.is_blind and not any(os.path.isabs(name) or name.startswith("../") for name in now):
            return SavedBy.OBSERVED
        return SavedBy.CLOSED if self.keep.saved_by is SavedBy.OBSERVED else SavedBy.RENAME

    def _is_observed_complete(self, now: Mapping[str, Stamp]) -> bool:
        return bool(now) and all(self._is_closed(name, stamp) for name, stamp in now.items())

    def _is_closed(self, name: str, stamp: Stamp) -> bool:
        is_said = self.keep.saved_by is SavedBy.RENAME
        return self._saved.get(name) == stamp or self._observed.is_complete(name, stamp, is_said)

    def _is_save_over(self, now: Mapping[str, Stamp]) -> bool:
        new = [name for name, stamp in now.items() if self._saved.get(name) != stamp]
        return self._observed.is_save_over(now, new)

    def by_evidence(self, now: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Return those that are complete by a name or by another file, whatever became of the program."""
        match self.keep.saved_by:
            case SavedBy.RENAME:
                return dict(now)
            case SavedBy.MARKER:
                marked = _stamp(self.folder / self.keep.marker)
                is_marked = marked is not None and now and marked[2] >= max(stamp[2] for stamp in now.values())
                return dict(now) if is_marked else {}
            case SavedBy.NEXT:
                highest = self.keep.number(now)
                return {name: stamp for name, stamp in now.items() if self.keep.number_in(name) != highest}
        return {}

    # --- copies ---

    def copy(
        self,
        files: Mapping[str, Stamp],
        draft: Path,
        is_running: bool,
        is_at_end: bool = False,
        is_finished: bool = False,
    ) -> bool:
        """Copy the files of a state to `draft/kept`, and list what grows; False, and nothing there, if they changed.

        What has not changed since the last checkpoint gets a second name there.
        """
        if is_running and self.keep.saved_by is SavedBy.MARKER:
            time.sleep(TICKS_SECONDS)  # the clock of files goes by ticks
        lengths, blurred = self._lengths_at(files)
        blurred = blurred or self._unmeasured(lengths)
        if blurred and is_running:
            self._skip(f"{blurred} is written while the kept files are, so what of it belongs to them is unknown")
            return False
        if blurred and not is_finished and not self._has_saved_last(self._written_at(files)):
            if self._source is not None:
                return False  # the checkpoint before is exact
            self._doubt(
                f"{blurred.lstrip(ELSEWHERE)}: what of it belongs to the first save is unknown; lines may be double"
            )
        targets = {name: draft / KEPT / stored(name) for name in files}
        for name in files:
            source = self._source / stored(name) if self._source else None
            if source is not None and self._saved.get(name) == files[name] and source.exists():
                targets[name].parent.mkdir(parents=True, exist_ok=True)
                fs.link_or_copy(source, targets[name])
                del targets[name]
        if not are_copied(self.folder, {name: files[name] for name in targets}, targets):
            fs.remove_tree(draft)
            if is_running:
                self._skip(f"{', '.join(list(files)[:3])} changed while copied")
            return False
        self._skips = 0
        self.list_into(draft, None if blurred else lengths, self._written_at(files), is_at_end)
        return True

    def saved(self, files: Mapping[str, Stamp]) -> None:
        """Note that these are in a checkpoint now."""
        self._saved = dict(files)
        self._source = self.keep.store / "checkpoints" / "latest" / KEPT  # by the next save

    def list_into(
        self, draft: Path, lengths: Mapping[str, int] | None, saved_unix: float, is_at_end: bool = False
    ) -> None:
        """Write into a draft how long each growing file was when the state was saved; None: as it is now."""
        files: dict[str, OutputFile] = {}
        self._rewritten |= {name for name in self._growing() if self._observer.is_rewritten(name)}
        settled = {_is_other(name) for name in self._rewritten}
        self._doubts = tuple(doubt for doubt in self._doubts if doubt not in settled)
        listed = OutputList(links=self.links(), doubts=self._doubts)
        has_saved_last = is_at_end and self._has_saved_last(saved_unix)
        for name in self._growing():
            path = self._path(name)
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                if is_changed_inside(path):  # to cut it would not give back what it was
                    listed = listed.with_doubt(_is_inside(name)) if self._observed.is_kept_open(name) else listed
                    continue
                resume = size if lengths is None else lengths.get(name, self._length_before(name))
                if has_saved_last and 0 <= resume < size:
                    resume = size if is_buffered(path, resume, self._lengths_before.get(name, 0)) else resume
                elif not has_saved_last and resume >= 0 and is_cut_by_a_buffer(path, resume, size):
                    # They are missing only if the program is resumed from this very state.
                    listed = listed.with_doubt(_in_buffer(name))
                if 0 <= resume <= size:
                    entry = described(path, size if is_at_end else resume, resume, self._segment, listed.algorithm)
                    files[name] = replace(entry, is_rewritten=name in self._rewritten)
        replace(listed, files=files).write(draft)

    def _unmeasured(self, lengths: Mapping[str, int] | None) -> str:
        """Return the name of a kept file that was found to be appended to after its length was needed."""
        unknown = [name for name in sorted(self._observer.appended) if lengths is not None and name not in lengths]
        return next((name for name in unknown if self._length_before(name) < 0 and self._path(name).exists()), "")

    def lengths_when(self, state: str) -> tuple[Mapping[str, int] | None, float]:
        """Return the lengths when a state of the contract was handed over, and when that was (Unix seconds)."""
        self._observer.settle()
        moment = self._observed.moment(f"{SAVE}/{state}")
        if moment is None or moment.blurred:
            return None, time.time()
        self._unknown = moment.unknown
        return moment.lengths, moment.stamp[2] / 1e9

    def _length_before(self, name: str) -> int:
        """Return the length of a file that the program had not touched when it saved; -1 if that is unknown."""
        return -1 if name in self._unknown else self._lengths_before.get(name, -1)

    def _is_named(self, name: str) -> bool:
        """Return True for what the program prints, an output, and a kept file that is appended to."""
        if name == PRINTED or name in self._observer.appended:
            return True
        named = {os.path.normpath(each) for each in self.keep.outputs}
        return any(path in named for path in (name, *map(str, Path(name).parents)))

    def _growing(self) -> list[str]:
        """Return what the program appends to: what it prints, kept files and outputs, and what it has open."""
        written = self._observer.written() | self._written
        printed = [PRINTED] if self.keep.printed is not None and self.keep.printed.exists() else []
        opened = {os.path.relpath(path, self.folder) for path in open_for_writing(self._mark)} | self._listed
        found = []
        for name in sorted(written - set(printed)):
            is_growing = self._is_named(name) or name in opened
            if is_growing and not self._is_kept(name) and (self.folder / name).is_file():
                found.append(name)
        return [*printed, *found]

    def _is_kept(self, name: str) -> bool:
        return name not in self._observer.appended and self.keep.is_state(name)

    def _has_saved_last(self, saved_unix: float) -> bool:
        """Return True if the program saved as its last action: then its buffers belong to the state."""
        if self.keep.saved_by is SavedBy.EXIT:
            return True
        if self.has_left_well and saved_unix >= time.time() - LAST_ACTION_SECONDS:
            return True
        return self.stop_asked_unix is not None and saved_unix >= self.stop_asked_unix

    def _lengths_at(self, stamps: Mapping[str, Stamp]) -> tuple[Mapping[str, int] | None, str]:
        """Return the lengths when these files were complete; else the name of one whose length is unknown."""
        moment = self._observed.moment_of(stamps)
        if moment is not None and not moment.blurred:
            self._unknown = moment.unknown
            return {name: size for name, size in moment.lengths.items() if name not in moment.unknown}, ""
        if name := self._observed.without_time(stamps):
            return None, name
        written_ns = max((stamp[2] for stamp in stamps.values()), default=0)
        lengths = {}
        for name in self._growing():
            with suppress(OSError):
                state = self._path(name).stat()
                if state.st_mtime_ns >= written_ns:
                    if self._is_named(name):
                        return None, name
                    continue
                lengths[name] = state.st_size
        return lengths, ""

    # --- inside ---

    def _path(self, name: str) -> Path:
        return self.keep.printed if name == PRINTED and self.keep.printed is not None else self.folder / name

    def _written_at(self, files: Mapping[str, Stamp]) -> float:
        return max((stamp[2] for stamp in files.values()), default=0) / 1e9

    def _doubt(self, doubt: str) -> None:
        if doubt not in self._doubts:
            self._doubts = (*self._doubts, doubt)
            self._tell(doubt)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the result may not be that of one uninterrupted run."""
        return self._doubts

    def _skip(self, why: str) -> None:
        self._skips += 1
        if self._skips == SKIPS_TOLD:
            self._tell(f"not saved: {why}; the next save is tried")

    def _new(self, files: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Return these files, unless they are what was saved: a program that writes the same again made no step."""
        if not files or files == self._saved:
            return {}
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

    def _is_as_in(self, origin: Checkpoint, name: str) -> bool:
        entry, path = origin.passport.files[f"{KEPT}/{stored(name)}"], self.folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size_bytes:
            return False
        return digest_file(path, origin.passport.algorithm) == entry.digest


def _rewritten_in(listed: OutputList) -> set[str]:
    return {name for name, entry in listed.files.items() if entry.is_rewritten}


def _is_other(name: str) -> str:
    return f"{name.lstrip(ELSEWHERE)} does not begin with what it held at the checkpoint; it stays as it is"


def _is_inside(name: str) -> str:
    shown = name.lstrip(ELSEWHERE)
    return f"{shown} is changed inside while it grows, and not put back; name it in --keep, and close it before a save"


def _in_buffer(name: str) -> str:
    shown = name.lstrip(ELSEWHERE)
    return f"{shown} is buffered by the program, and lines were lost in the buffer; let it flush each line"


def _stamp(path: Path) -> Stamp | None:
    """Return None for what is no plain file: no link is followed."""
    return None if path.is_symlink() or not path.is_file() else state_stamp_of(path)
