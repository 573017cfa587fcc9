"""Name and place kept files in a checkpoint, and the files that are moved away for them."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from unbroken.store.checkpoint import Checkpoint
from unbroken.system import copying, fs
from unbroken.system.clock import folder_stamp, utc_now

# Below a checkpoint's folder.
KEPT = "kept"
# A file that is being put back has a hidden name of this kind next to its place.
DRAFT = "restored"
REPLACED = "replaced"
_STAMP = re.compile(r"(?:\d{6}_)?\d{8}T\d{6}Z(?:-\d+)*")


def kept_names(origin: Checkpoint | None) -> list[str]:
    """Return the names, where the program was called, of the kept files of a checkpoint."""
    files = origin.passport.files if origin else {}
    return [original(name.removeprefix(f"{KEPT}/")) for name in files if name.startswith(f"{KEPT}/")]


def stored(name: str) -> str:
    """Return a name below a folder of ours: `@` means the root of the file system, `@.` a folder above.

    A part that begins with `@` by itself gets one more.
    """
    return "/".join(_stored_part(part) for part in Path(name).parts)


def _stored_part(part: str) -> str:
    if part in ("/", ".."):
        return "@" if part == "/" else "@."
    return f"@{part}" if part.startswith("@") else part


def original(name: str) -> str:
    """Return the name that was stored so."""
    parts = name.split("/")
    found = [".." if part == "@." else part[1:] if part.startswith("@@") else part for part in parts]
    return "/".join(["", *found[1:]] if parts[0] == "@" else found)


def put_file(source: Path, target: Path) -> None:
    """Put a copy in place by one rename, with its times: a torn file is never seen there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fs.remove_drafts(target.parent, fs.DRAFT_SECONDS, DRAFT)
    draft = target.parent / fs.unique_name(DRAFT)
    copying.copy_file(source, draft)
    fs.flush(draft)
    os.replace(draft, target)


class Replaced:
    """Provide a folder below `replaced` in `root` for files that are moved away, made when it is needed.

    `most` folders stay; without it nothing there is ever removed.
    """

    def __init__(self, root: Path, folder: Path, most: int | None = None) -> None:
        self.root, self._folder, self._most = root / REPLACED, folder, most
        self.target = numbered(self.root, folder_stamp(utc_now()))
        self.names: list[str] = []

    def place(self, name: str) -> Path:
        """Return a free place for a file of that name, its folder made."""
        if not self.names and self._most is not None and self.root.is_dir():
            ours = [path for path in by_number(self.root) if _STAMP.fullmatch(path.name)]
            for old in ours[: -self._most + 1]:
                fs.remove_tree(old)
        self.names.append(name)
        target = self.target / stored(name)
        while os.path.lexists(target):
            target = target.with_name(f"{target.name}.again")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def move(self, name: str) -> bool:
        """Move a file, or a link as the link that it is; return False if it is not there."""
        path = self._folder / name
        if not os.path.lexists(path):
            return False
        target = self.place(name)
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # another file system
                raise
            shutil.move(path, target)
        return True

    def put_link(self, name: str, leads_to: str) -> bool:
        """Make a link where it was, and move what is in the way; return False if it is there."""
        path = self._folder / name
        if path.is_symlink() and os.readlink(path) == leads_to:
            return False
        self.move(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads_to)
        return True


def numbered(folder: Path, name: str) -> Path:
    """Return a path in `folder` whose name begins with the next number: `000003_NAME`."""
    last = _number(by_number(folder)[-1]) if folder.is_dir() and any(folder.iterdir()) else 0
    return folder / f"{last + 1:06d}_{name}"


def by_number(folder: Path) -> list[Path]:
    """Return what is in a folder in the order in which `numbered` named it, whatever clock made the rest of a name.

    What has no number comes first, by its name.
    """
    return sorted(folder.iterdir(), key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    number = path.name.partition("_")[0]
    return int(number) if number.isdecimal() and "_" in path.name else 0
