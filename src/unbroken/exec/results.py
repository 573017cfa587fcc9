"""The results of a finished run: kept in its last checkpoint, verified, and put back when it is called again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from unbroken.exec.kept_files import copy_file, original, put_file, stored
from unbroken.runs.checkpoint import Checkpoint, verify_files
from unbroken.system import fs
from unbroken.system.digests import digest_file

OUTPUTS = "outputs"


def missing_results(folder: Path, results: Mapping[str, Path]) -> list[str]:
    """The names of those that the program has not made."""
    return [name for name, path in results.items() if not os.path.lexists(folder / path)]


def keep_results(folder: Path, results: Mapping[str, Path], draft: Path) -> None:
    """Copies the results into a draft; each has the name that it is to have in `folder`."""
    for name, path in results.items():
        for below in _files(folder / path):
            target = draft / OUTPUTS / stored(name if below == Path() else os.path.join(name, below))
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_file(folder / path / below, target)


def put_back_results(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Puts back what is missing or differs; the names.  CheckpointError if what is kept is not whole."""
    files = {name: entry for name, entry in checkpoint.passport.files.items() if name.startswith(f"{OUTPUTS}/")}
    done: list[str] = []
    for name, entry in files.items():
        place = original(name.removeprefix(f"{OUTPUTS}/"))
        target = folder / place
        is_of_size = target.is_file() and target.stat().st_size == entry.size_bytes
        if is_of_size and digest_file(target, checkpoint.passport.algorithm) == entry.digest:
            continue
        if not done:
            verify_files(checkpoint)
        put_file(checkpoint.folder / name, target)
        done.append(place)
    return done


def _files(path: Path) -> list[Path]:
    """What a folder has below it; of a file, itself."""
    return fs.tree_files(path) if path.is_dir() else [Path()]
