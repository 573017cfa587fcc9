"""The files from which a program goes on, where it was called: found, copied when complete, and put back.

Only files that match `--keep` and that appeared or changed while this run's program worked are ever moved: what else
was there before is noted at each start.  Nothing is removed: what has to make room goes to the store's `replaced/`.
"""

from __future__ import annotations

import filecmp
import glob
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.command.states import TICKS_SECONDS, Stamp, glob_pattern
from unbroken.exec.options import Options, SavedBy
from unbroken.exec.writers import are_written
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs, jsontext
from unbroken.system.clock import folder_stamp, utc_now
from unbroken.system.digests import digest_file

# Below a checkpoint's folder.
KEPT = "kept"
NOTE = "before.json"
# What is being put back has a hidden name of this kind beside its place.
DRAFT = "restored"
REPLACED = "replaced"
# What a job that was killed may have done since it last said that it lives.
LAST_SIGN_SECONDS = 10.0
_NUMBER = re.compile(r"\{progress\}")


@dataclass
class KeptFiles:
    """The kept files of one attempt; `mark` is what the environment of its program's processes has."""

    options: Options
    folder: Path
    store: Path
    mark: str
    tell: Callable[[str], None]
    _seen: Mapping[str, Stamp] = field(default_factory=dict)  # at the last look
    _closed: Mapping[str, Stamp] = field(default_factory=dict)  # complete at the last look
    _saved: dict[str, Stamp] = field(default_factory=dict)  # of what was copied or put back
    _foreign: dict[str, Stamp] = field(default_factory=dict)
    _source: Path | None = None  # the last checkpoint's folder of kept files
    _next_sign: float = 0.0

    def found(self) -> dict[str, Stamp]:
        """All files that match now, by their names."""
        names = {name for pattern in self.options.keep for name in self._matching(pattern)}
        found = {name: _stamp(self.folder / name) for name in sorted(names)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def own(self) -> dict[str, Stamp]:
        """Those of them that are this run's: the others are as they were before it began."""
        return {name: stamp for name, stamp in self.found().items() if self._foreign.get(name) != stamp}

    # --- before the program starts ---

    def restore(self, origin: Checkpoint | None) -> None:
        """Makes the files what they were at the checkpoint; without one, what they were before the run began."""
        self._source = origin.folder / KEPT if origin else None
        wanted = kept_names(origin)
        before, last_sign = self._noted()
        moved, put_back = [], []
        for name, stamp in self.found().items():
            if name in wanted or before is None or before.get(name) == stamp:
                continue
            if _changed_at(self.folder / name) <= last_sign + LAST_SIGN_SECONDS:
                self._set_aside(name)
                moved.append(name)
        for name in wanted:
            if origin is not None and not self._is_as_in(origin, name):
                if os.path.lexists(self.folder / name):
                    self._set_aside(name)
                    moved.append(name)
                self._put_back(origin, name)
                put_back.append(name)
        if put_back:
            self.tell(f"put back from the checkpoint: {', '.join(put_back)}")
        if moved:
            self.tell(f"moved to {self._aside()}, being newer than what was saved whole: {', '.join(moved)}")
        found = self.found()
        self._saved = {name: stamp for name, stamp in found.items() if name in wanted}
        self._foreign = {name: stamp for name, stamp in found.items() if name not in wanted}
        fs.write_atomic(self.store / NOTE, json.dumps(self._foreign) + "\n")

    def know_before(self, origin: Checkpoint | None) -> None:
        """As after `restore`, of an attempt that was killed: what it put back or saved is no new state."""
        self._foreign = self._noted()[0] or {}
        wanted = [name for name in kept_names(origin) if origin is not None and self._is_as_in(origin, name)]
        self._saved = {name: stamp for name, stamp in self.found().items() if name in wanted}

    def is_there_before(self) -> bool:
        """True if files match that nobody has noted: the program has worked here before unbroken came."""
        return not (self.store / NOTE).exists() and bool(self.found())

    # --- while it works, and at its end ---

    def complete(self) -> dict[str, Stamp]:
        """The files of a new state that is complete while the program works; none if there is no new one."""
        self._give_sign()
        now = self.own()
        seen, self._seen = self._seen, now
        if self.options.saved_by is SavedBy.EXIT or not now:
            return {}
        if self.options.saved_by is SavedBy.CLOSED:
            is_steady = now == seen and not are_written([self.folder / name for name in now], self.mark)
            self._closed = now if is_steady else {}
            return self._new(self._closed)
        return self._new(self.by_evidence(now))

    def last(self) -> dict[str, Stamp]:
        """Of a program that was ended, or crashed: what was complete when it was last looked at."""
        now = self.own()
        if self.options.saved_by is SavedBy.CLOSED:
            return self._new(now if now == self._closed else {})
        return self._new(self.by_evidence(now))

    def whole(self) -> dict[str, Stamp]:
        """All of a program that has left well."""
        return self._new(self.own())

    def by_evidence(self, now: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Those that are complete by a name or by another file, whatever became of the program."""
        match self.options.saved_by:
            case SavedBy.RENAME:
                return dict(now)
            case SavedBy.MARKER:
                marked = _stamp(self.folder / self.options.marker)
                is_marked = marked is not None and now and marked[2] >= max(stamp[2] for stamp in now.values())
                return dict(now) if is_marked else {}
            case SavedBy.NEXT:
                highest = self.number(now)
                return {name: stamp for name, stamp in now.items() if self._number_in(name) != highest}
        return {}

    def number(self, names: Mapping[str, Stamp] | Sequence[str]) -> float | None:
        """The highest number that stands for {progress} in these names."""
        return max((number for name in names if (number := self._number_in(name)) is not None), default=None)

    def copy(self, files: Mapping[str, Stamp], draft: Path, is_running: bool) -> bool:
        """Copies the files of a state to `draft/kept`; False, and nothing there, if they changed meanwhile.

        What has not changed since the last checkpoint gets a second name there.
        """
        if is_running and self.options.saved_by is SavedBy.MARKER:
            time.sleep(TICKS_SECONDS)  # the clock of files goes by ticks
        try:
            for name in files:
                target = draft / KEPT / stored(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                source = self._source / stored(name) if self._source else None
                if source is not None and self._saved.get(name) == files[name] and source.exists():
                    fs.link_or_copy(source, target)
                else:
                    copy_file(self.folder / name, target)
        except FileNotFoundError:
            fs.remove_tree(draft)
            return False
        if all(_stamp(self.folder / name) == stamp for name, stamp in files.items()):
            return True
        fs.remove_tree(draft)
        return False

    def saved(self, files: Mapping[str, Stamp]) -> None:
        """These are in a checkpoint now."""
        self._saved = dict(files)
        self._source = self.store / "checkpoints" / "latest" / KEPT  # by the next save

    # --- inside ---

    def _new(self, files: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """These files, unless they are what was saved: a program that writes the same again has made no step."""
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

    def _matching(self, pattern: str) -> list[str]:
        names = glob.glob(_NUMBER.sub("*", pattern), root_dir=self.folder, recursive=True, include_hidden=True)
        wanted = glob_pattern(pattern) if _NUMBER.search(pattern) else None
        matched = [name for name in names if wanted is None or wanted.fullmatch(name)]
        found = [below for name in matched for below in self._files_of(name)]
        return [name for name in found if not fs.is_unique_name(Path(name).name)]  # what a killed job was putting back

    def _files_of(self, name: str) -> list[str]:
        """A folder that matches stands for all files in it."""
        path = self.folder / name
        if not path.is_dir() or path.is_symlink():
            return [name]
        return [os.path.join(name, below) for below in fs.tree_files(path)]

    def _number_in(self, name: str) -> float | None:
        for pattern in self.options.keep:
            if not _NUMBER.search(pattern):
                continue
            wanted = glob_pattern(pattern)
            for path in (name, *map(str, Path(name).parents)):
                if (found := wanted.fullmatch(path)) is not None:
                    return float(found[1])
        return None

    def _noted(self) -> tuple[dict[str, Stamp] | None, float]:
        """What was here before the attempt before this one, and its last sign of life; None at the first."""
        path = self.store / NOTE
        try:
            text, last = path.read_text(), path.stat().st_mtime
        except FileNotFoundError:
            return None, 0.0
        try:
            return {name: (int(a), int(b), int(c)) for name, (a, b, c) in jsontext.parse(text).items()}, last
        except (ValueError, TypeError, AttributeError):  # spoilt: then nothing is known to be ours
            return None, 0.0

    def _give_sign(self) -> None:
        if time.monotonic() >= self._next_sign:
            self._next_sign = time.monotonic() + LAST_SIGN_SECONDS / 2
            os.utime(self.store / NOTE)

    def _is_as_in(self, origin: Checkpoint, name: str) -> bool:
        entry, path = origin.passport.files[f"{KEPT}/{stored(name)}"], self.folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size_bytes:
            return False
        return digest_file(path, origin.passport.algorithm) == entry.digest

    def _put_back(self, origin: Checkpoint, name: str) -> None:
        put_file(origin.folder / KEPT / stored(name), self.folder / name)

    def _aside(self) -> Path:
        return self.store / REPLACED

    def _set_aside(self, name: str) -> None:
        target = self._aside() / folder_stamp(utc_now()) / stored(name)
        while os.path.lexists(target):
            target = target.with_name(f"{target.name}.again")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(self.folder / name, target)
        except OSError:  # another file system
            shutil.move(self.folder / name, target)


def kept_names(origin: Checkpoint | None) -> list[str]:
    """The names, where the program was called, of the kept files of a checkpoint."""
    files = origin.passport.files if origin else {}
    return [original(name.removeprefix(f"{KEPT}/")) for name in files if name.startswith(f"{KEPT}/")]


def stored(name: str) -> str:
    """A name below a folder of ours: `@/` stands for the root of the file system, `@.` for a folder above."""
    parts = ["@" if part == "/" else "@." if part == ".." else part for part in Path(name).parts]
    return "/".join(parts)


def original(name: str) -> str:
    """The name that was stored so."""
    parts = [".." if part == "@." else part for part in name.split("/")]
    return "/".join(["", *parts[1:]] if parts[0] == "@" else parts)


def copy_file(source: Path, target: Path) -> None:
    """A new file with the same content and permissions."""
    with source.open("rb", buffering=0) as old, target.open("xb", buffering=0) as new:
        while fs.copy_range(old.fileno(), new.fileno(), 1 << 30):
            pass
        os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o7777)


def put_file(source: Path, target: Path) -> None:
    """Puts a copy in place by one rename: a torn file is never seen there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fs.remove_drafts(target.parent, fs.DRAFT_SECONDS, DRAFT)
    draft = target.parent / fs.unique_name(DRAFT)
    copy_file(source, draft)
    fs.flush_file(draft)
    os.replace(draft, target)


def _stamp(path: Path) -> Stamp | None:
    """None for what is no plain file: no link is followed."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _changed_at(path: Path) -> float:
    return path.lstat().st_ctime
