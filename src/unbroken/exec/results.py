"""The results of a finished run: kept in its last checkpoint, verified, and put back when it is called again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from unbroken.engines.files.stored import Replaced, original, put_file, stored
from unbroken.runs.checkpoint import Checkpoint, verify_files
from unbroken.system import fs, jsontext
from unbroken.system.digests import digest_file

OUTPUTS = "outputs"
LINKS = "output-links.json"


def missing_results(folder: Path, results: Mapping[str, Path]) -> list[str]:
    """Return the names of those that the program has not made."""
    return [name for name, path in results.items() if not os.path.lexists(folder / path)]


def keep_results(folder: Path, results: Mapping[str, Path], draft: Path, tell: Callable[[str], None]) -> None:
    """Copy the results into a draft; each has the name that it is to have in `folder`.

    Links stay links; pipes, sockets and devices are left out with a line.
    """
    links: dict[str, str] = {}
    for name, path in results.items():
        for below in _files(folder / path):
            kept, source = _joined(name, below), folder / path / below
            mode = source.lstat().st_mode
            if stat.S_ISLNK(mode) and below != Path():
                links[kept] = os.readlink(source)
            elif stat.S_ISREG(source.stat().st_mode):
                target = draft / OUTPUTS / stored(kept)
                target.parent.mkdir(parents=True, exist_ok=True)
                fs.copy_file(source, target)
            else:
                tell(f"--outputs: {kept} is a pipe, a socket or a device, and is left out")
    if links:
        (draft / LINKS).write_text(json.dumps(links) + "\n")


def put_back_results(checkpoint: Checkpoint, folder: Path, store: Path) -> list[str]:
    """Put back what is missing or differs and return the names; what had to make room goes to `replaced/`.

    CheckpointError if what is kept is not complete.
    """
    replaced = Replaced(store, folder)
    done: list[str] = []
    for name, place in _kept(checkpoint):
        entry, target = checkpoint.passport.files[name], folder / place
        is_of_size = target.is_file() and target.stat().st_size == entry.size_bytes
        if is_of_size and digest_file(target, checkpoint.passport.algorithm) == entry.digest:
            continue
        if not done:
            verify_files(checkpoint)
        if os.path.lexists(target) and not target.is_dir():
            replaced.move(place)
        put_file(checkpoint.folder / name, target)
        done.append(place)
    for place, leads_to in _links(checkpoint).items():
        path = folder / place
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(leads_to)
            done.append(place)
    return done


def _kept(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    for name in checkpoint.passport.files:
        if name.startswith(f"{OUTPUTS}/"):
            yield name, original(name.removeprefix(f"{OUTPUTS}/"))


def _links(checkpoint: Checkpoint) -> dict[str, str]:
    if LINKS not in checkpoint.passport.files:
        return {}
    return dict(jsontext.parse((checkpoint.folder / LINKS).read_text()))


def _joined(name: str, below: Path) -> str:
    return name if below == Path() else os.path.join(name, below)


def _files(path: Path) -> list[Path]:
    """Return what a folder has below it; of a file, itself."""
    return fs.tree_files(path) if path.is_dir() else [Path()]
