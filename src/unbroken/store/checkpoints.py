"""The store of one run: immutable checkpoint folders, drafted out of sight and shown by one rename."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.errors import CheckpointError, FormatError, OutageError
from unbroken.store.checkpoint import (
    FILE_NAME,
    PARTS,
    Checkpoint,
    Passport,
    age_by_name,
    folder_name,
    names_in,
    read_passport,
)
from unbroken.store.layout import Format
from unbroken.store.own_folder import confirm_all_own, confirm_own
from unbroken.store.progress import FileDigest
from unbroken.system import fs
from unbroken.system.digests import digest_file, new_hasher
from unbroken.system.fs import flush_tree

QUARANTINE = ".quarantine"
# Next to a quarantined checkpoint: `reason`, and `is_whole` of one that the user or the program rejected.
_REASON = ".reason.json"
FORMAT = Format()


class Store:
    """The folder `results/<run>/checkpoints`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Return the names of what is published, oldest first; nothing is opened."""
        return names_in(self.root)

    @property
    def archive(self) -> Path:
        """Return where the parts of pruned checkpoints lie, each next to its passport: `results/<run>/parts`."""
        return self.root.parent / PARTS

    def archived(self) -> list[str]:
        """Return the names of the pruned checkpoints whose parts were kept, oldest first."""
        return names_in(self.archive)

    def last_sequence(self) -> int:
        """Return the highest sequence number ever used here, bad checkpoints included."""
        hidden = self.root / QUARANTINE
        names = self.names() + (os.listdir(hidden) if hidden.is_dir() else [])
        return max((age_by_name(name)[0] for name in names), default=0)

    def readable(self) -> list[Checkpoint]:
        """Return checkpoints with a readable passport, oldest first; raise FormatError for one of another format."""
        found = []
        for name in self.names():
            try:
                found.append(Checkpoint(self.root / name, read_passport(self.root / name)))
            except (CheckpointError, OutageError):
                continue
        return sorted(found, key=lambda checkpoint: checkpoint.age)

    def quarantine(self, name: str, reason: str, *, is_whole: bool = False) -> Path:
        """Move a bad checkpoint out of the way, with its reason next to it; return where it is now.

        One that is valid, and that the user or the program rejected, is never put back by itself.
        """
        hidden = self.root / QUARANTINE
        hidden.mkdir(exist_ok=True)
        confirm_all_own([self.root, hidden])
        target = hidden / name
        count = 1
        while target.exists():
            count += 1
            target = hidden / f"{name}.{count}"
        # The reason first: if the process dies in between, nothing lies there without one.
        FORMAT.write(_reason_file(target), {"is_whole": is_whole, "reason": reason})
        os.rename(self.root / name, target)
        return target

    def put_back(self, target: Path, name: str) -> None:
        """Move a quarantined checkpoint back to its place, and remove the note of the reason."""
        os.rename(target, self.root / name)
        _reason_file(target).unlink()

    def set_aside_as_bad(self) -> list[Path]:
        """Return what `quarantine` has moved because it was bad, newest first."""
        hidden = self.root / QUARANTINE
        found = (hidden / name for name in names_in(hidden) if not name.endswith(_REASON))
        bad = [path for path in found if FORMAT.found(_reason_file(path)).get("is_whole") is not True]
        return sorted(bad, key=lambda path: age_by_name(path.name), reverse=True)

    def is_set_aside(self, name: str) -> bool:
        """Return True if `quarantine` has moved the checkpoint of that name, for whatever reason."""
        return (self.root / QUARANTINE / name).exists()

    def remove_leftovers(self) -> list[str]:
        """Remove what killed writers left half done; return the names."""
        confirm_all_own([self.root, self.archive, self.root / QUARANTINE])
        hidden = [path for path in self.root.glob(".*") if fs.is_unique_name(path.name)]
        for path in hidden:
            _remove_any(path)
        for name in self.archived()[-1:]:
            if not (self.archive / name).is_symlink():
                _strip_archived(self.archive / name)
        return [path.name for path in hidden] + fs.remove_drafts(self.root / QUARANTINE)

    def publish(self, draft: Path, passport: Passport, confirm: Callable[[], None]) -> Checkpoint:
        """Make the folder `draft` a checkpoint in one step and return it; `draft` is gone afterwards.

        `passport.files` may name files whose digests were made while writing; the others are read here.  `confirm`
        is called last before the rename, and once more before the links, and raises if this process may not write the
        run any more.  If the process dies inside, either nothing is to be seen or the whole checkpoint.
        """
        if draft.is_symlink():
            raise CheckpointError(f"{draft}: a link; a checkpoint is a folder of its own")
        with fs.storage_errors(self.root):
            _drop_copied_passport(draft)
            sizes = _sizes(draft)
        with fs.storage_errors(self.root, sum(sizes.values())):
            self.root.mkdir(parents=True, exist_ok=True)
            confirm_own(self.root)
            whole = replace(passport, files=_complete(draft, sizes, passport))
            flush_tree(draft)
            fs.write_new(draft / FILE_NAME, whole.to_text())
            fs.flush(draft)
            folder = self.root / folder_name(whole)
            confirm()
            confirm_own(self.root)
            os.rename(draft, folder)
            fs.flush(self.root)
            confirm()  # of a sleeper that wakes up here the checkpoint does no harm, but `latest` is not its any more
            self.point_links(Checkpoint(folder, whole))
        return Checkpoint(folder, read_passport(folder))

    def point_links(self, checkpoint: Checkpoint) -> None:
        """Let `latest` point to the checkpoint, and `best` if the program called it the best so far."""
        self._link("latest", checkpoint.name)
        if checkpoint.passport.is_best:
            self._link("best", checkpoint.name)

    def mend_links(self, newest: Checkpoint) -> None:
        """Set `latest` and `best` after a kill or a quarantine: `best` must not point to a checkpoint that is gone."""
        best = [checkpoint for checkpoint in self.readable() if checkpoint.passport.is_best]
        if best:
            self._link("best", best[-1].name)
        else:
            self._set_aside("best")
            (self.root / "best").unlink(missing_ok=True)
        self._link("latest", newest.name)

    def _link(self, name: str, target: str) -> None:
        self._set_aside(name)
        fs.point_link(self.root / name, target)

    def _set_aside(self, name: str) -> None:
        """Clear the place for a link where results were copied by a program that follows links."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            self.quarantine(name, "a folder in the place of a link, as scp -r and cp -rL leave it; may be removed")

    def prune(
        self, keep: int, milestone_every: int, spared: Container[str] = (), confirm: Callable[[], None] = lambda: None
    ) -> list[str]:
        """Remove old checkpoints; the newest `keep`, the best, each n-th, milestones, and those `spared` stay.

        Return why what should be removed is still there, a line each.  `confirm` is called after the folder was listed
        and before each removal, and raises if this process may not write the run any more: so what a later owner
        resumed from was among the newest when the list was made, and is not removed.
        """
        confirm_own(self.root)
        everything = self.readable()
        newest = {checkpoint.name for checkpoint in everything[-keep:]}
        best = [checkpoint.name for checkpoint in everything if checkpoint.passport.is_best][-1:]
        doomed = [
            each
            for each in everything
            # A link: its owner keeps it elsewhere.
            if not (each.folder.is_symlink() or _is_milestone(each, milestone_every))
            and not (each.name in newest or each.name in best or each.name in spared)
        ]
        if doomed:
            confirm()
            self._free_links({checkpoint.name for checkpoint in doomed}, everything)
        left = []
        for checkpoint in doomed:
            confirm()
            left.append(self._remove(checkpoint))
        return [why for why in left if why]

    def _free_links(self, doomed: Container[str], everything: list[Checkpoint]) -> None:
        """Free `latest`, which may still name an old one where the disk refused the new link."""
        links = (self.root / "latest", self.root / "best")
        if any(link.is_symlink() and os.readlink(link) in doomed for link in links):
            self.mend_links(everything[-1])

    def _remove(self, checkpoint: Checkpoint) -> str:
        """Remove it in one step; passport and parts stay in the archive.  Return why it is still there, if it is."""
        kept = self.archive / checkpoint.name
        if not checkpoint.parts or kept.is_dir():  # a copy that was put back: its parts are there already
            return fs.remove_tree(checkpoint.folder)
        try:
            self.archive.mkdir(exist_ok=True)
            confirm_own(self.archive)
            os.rename(checkpoint.folder, kept)
            fs.flush(self.archive)
            _strip_archived(kept)
        except OSError as error:
            return f"{error.filename or kept}: {error.strerror}"
        return ""


def _is_milestone(checkpoint: Checkpoint, every: int) -> bool:
    return checkpoint.passport.is_milestone or (every > 0 and checkpoint.passport.sequence % every == 0)


def _strip_archived(folder: Path) -> None:
    """Remove all but passport and parts; called again on the last one, where a kill may have left more."""
    for path in folder.iterdir():
        if path.name not in (FILE_NAME, PARTS):
            _remove_any(path)


def _remove_any(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        fs.remove_tree(path)
    else:
        path.unlink(missing_ok=True)  # a sleeper that wakes up turns a link back


def _reason_file(quarantined: Path) -> Path:
    return quarantined.with_name(f"{quarantined.name}{_REASON}")


def _drop_copied_passport(draft: Path) -> None:
    """Remove the passport that a program copied with its last checkpoint; a file of its own must not get lost."""
    path = draft / FILE_NAME
    if not path.exists():
        return
    try:
        read_passport(draft)
    except (CheckpointError, FormatError) as error:
        raise CheckpointError(f"{path}: the name {FILE_NAME} belongs to unbroken; rename yours") from error
    path.unlink()


def _sizes(draft: Path, below: str = "") -> dict[str, int]:
    """Return the sizes of all files, in order of name; raise CheckpointError if one is a link or no plain file."""
    sizes: dict[str, int] = {}
    with os.scandir(draft / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            sizes |= _sizes(draft, f"{below}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            sizes[f"{below}{entry.name}"] = entry.stat(follow_symlinks=False).st_size
        else:
            raise CheckpointError(f"{entry.path}: not a plain file; a checkpoint holds plain files only")
    return sizes


def _complete(draft: Path, sizes: Mapping[str, int], passport: Passport) -> Mapping[str, FileDigest]:
    new_hasher(passport.algorithm)  # what cannot be checked here is refused before it is published
    files = {}
    for name, size in sizes.items():
        given = passport.files.get(name)
        if given is None:
            given = FileDigest(size, digest_file(draft / name, passport.algorithm))
        if given.size_bytes != size:
            raise CheckpointError(f"{draft / name}: {size} bytes found, the program wrote {given.size_bytes}")
        files[name] = given
    lost = sorted(set(passport.files) - set(files))
    if lost:
        raise CheckpointError(f"{draft}: the program named files that are not there: {', '.join(lost)}")
    return files
