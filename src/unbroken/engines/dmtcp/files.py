"""Save all of the program's folder next to the images, and restore it before a restart.

DMTCP does not save files.  At a restart it truncates an open file to where the program was, fills a missing one with
NUL bytes up to there, and ignores those that were closed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.dmtcp.programs import ENDED
from unbroken.runs.own_folder import confirm_own
from unbroken.system import fs

_ALL = 1 << 40


@dataclass(frozen=True)
class Listing:
    """Describe what a checkpoint of plain files cannot hold: folders, links and modes."""

    folders: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"folders": self.folders, "links": dict(self.links), "modes": dict(self.modes)}


def save_files(live: Path, target: Path, left_out: Collection[Path] = ()) -> Listing:
    """Copy the folder's files with their times, except those in `left_out`; the program must not run."""
    target.mkdir()
    folders, links, modes = [], {}, {}
    for path in _walk(live):
        name = str(path.relative_to(live))
        if path in left_out:
            continue
        if path.is_symlink():
            links[name] = os.readlink(path)
        elif path.is_dir():
            folders.append(name)
            (target / name).mkdir()
        elif path.is_file() and name != ENDED:
            modes[name] = path.stat().st_mode & 0o7777
            copy_file(path, target / name)
    return Listing(tuple(folders), links, modes)


def put_back(source: Path, listing: Listing, live: Path) -> None:
    """Create the folder `live` as it was when the files were saved."""
    live.mkdir()
    for name in listing.folders:
        (live / name).mkdir()
    for name, mode in listing.modes.items():
        copy_file(source / name, live / name)
        (live / name).chmod(mode)
    for name, target in listing.links.items():
        (live / name).symlink_to(target)


def show_inputs(inputs: Sequence[Path], live: Path) -> None:
    """Link the inputs into the program's folder by their last names; a file of the program's own stays."""
    for path in inputs:
        link = live / path.name
        if link.is_symlink():
            link.unlink()
        if not link.exists():
            link.symlink_to(path.resolve())


def take_results(live: Path, final: Path) -> None:
    """Rename what the finished program left to `final`; links and the mark of its end are no result.

    Raise ForeignFolderError if the program has put something else in the place of its folder.
    """
    confirm_own(live)
    for path in list(_walk(live)):
        if path.is_symlink() or path.name == ENDED or not (path.is_dir() or path.is_file()):
            path.unlink()
    os.rename(live, final)


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files below; a program may run there, and files that vanish meanwhile count zero."""
    return sum(_size(Path(base) / name) for base, _, names in os.walk(folder) for name in names)


def _size(path: Path) -> int:
    try:
        state = path.lstat()
    except OSError:
        return 0
    return state.st_size if stat.S_ISREG(state.st_mode) else 0


def copy_file(source: Path, target: Path) -> None:
    """Copy a file through the kernel, on some file systems without moving a byte; keep its modification time."""
    with source.open("rb") as old, target.open("xb") as new:
        while fs.copy_range(old.fileno(), new.fileno(), _ALL):
            pass
    state = source.stat()
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def link_folder(source: Path, target: Path) -> None:
    """Copy a folder without its symbolic links, each file by `fs.link_or_copy`."""
    shutil.copytree(source, target, ignore=_links, copy_function=fs.link_or_copy)


def _links(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if os.path.islink(os.path.join(folder, name))}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield everything below, a folder before its content; links are not followed."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
