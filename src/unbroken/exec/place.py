"""Where the runs of `unbroken exec` lie: `.unbroken/NAME` beside Snakemake's own folder, and which there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.runs.layout import STORES, top_folder

CALL = "exec.json"
# Folders of one run, in which no other run is looked for.
_OWN = {"checkpoints", "parts", "segments", "lease", "work", "final", "live", "logs", "old", "replaced", "failed"}


def store_of(name: str, store: Path | None, called_in: Path) -> Path:
    """The folder of a run; `store` is the one that was named, in which all runs lie that were called with it.

    ConfigError if another run's folder is above or below it.
    """
    root = top_folder(called_in) / STORES if store is None else (called_in / store).absolute()
    folder = root / name
    for above in folder.parents:
        if above == root:
            break
        if (above / CALL).exists():
            raise ConfigError([_nested(name, above.relative_to(root).as_posix())])
    below = next((found for found in stores_below(folder) if found != folder), None)
    if below is not None:
        raise ConfigError([_nested(name, below.relative_to(root).as_posix())])
    return folder


def stores_below(root: Path) -> Iterator[Path]:
    """The folders of all runs in `root`, in order."""
    for base, folders, names in os.walk(root):
        if CALL in names:
            yield Path(base)
            folders[:] = []
        folders[:] = sorted(name for name in folders if name not in _OWN or not names)


def known_stores(base: Path) -> dict[str, Path]:
    """The runs of `unbroken exec` in a working directory, by their names."""
    root = base / STORES
    return {folder.relative_to(root).as_posix(): folder for folder in stores_below(root)}


def _nested(name: str, other: str) -> str:
    return f"exec: --name: found {name!r}, and there is a run {other!r}; allowed: none a parent folder of another"
