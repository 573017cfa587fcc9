"""Locate the runs of `unbroken exec`: `.unbroken/NAME`, next to Snakemake's own folder; no two share a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from unbroken.engines.files.states import glob_pattern
from unbroken.engines.files.stored import by_number, numbered
from unbroken.errors import ConfigError
from unbroken.exec.call import CALL, Call, read_call
from unbroken.exec.engine import PRINTED_NAME
from unbroken.store.layout import STORES, RunFolder, top_folder
from unbroken.store.own_folder import confirm_all_own
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now

OLD = "old"
OLD_STATES = 2
# All that a computation leaves; what the run was called with, and which files are its own, stays.
_PARTS = ("checkpoints", "parts", "segments", "final", "live", "logs", "history.jsonl", PRINTED_NAME)
# Folders of one run, in which no other run is looked for.
_OWN = {*_PARTS, OLD, "lease", "work", "replaced", "failed"}
_ONE_OF = re.compile(r"\[[^]]+\]")
_WILDCARD = re.compile(r"\{progress\}|[*?]+")


def store_of(name: str, store: Path | None, called_in: Path) -> Path:
    """Return the folder of a run; `store` is the one that was named, in which all runs lie that were called with it.

    Raise ConfigError if another run's folder is above or below it.
    """
    root = top_folder(called_in) / STORES if store is None else (called_in / store).absolute()
    folder = root / name
    above = [path for path in folder.parents if path.is_relative_to(root) and (path / CALL).exists()]
    for other in (*above, *stores_below(folder)):
        if other != folder:
            found = f"found {name!r}, and there is a run {other.relative_to(root).as_posix()!r}"
            raise ConfigError([f"exec: --name: {found}; allowed: none a parent folder of another"])
    return folder


def stores_below(root: Path) -> Iterator[Path]:
    """Yield the folders of all runs in `root`, in order."""
    for base, folders, names in os.walk(root):
        if CALL in names:
            yield Path(base)
            folders[:] = []
        folders[:] = sorted(name for name in folders if name not in _OWN or not names)


def known_stores(base: Path) -> dict[str, Path]:
    """Return the runs of `unbroken exec` in a working directory, by their names."""
    root = base / STORES
    return {folder.relative_to(root).as_posix(): folder for folder in stores_below(root)}


def set_aside(places: RunFolder, folder: Path) -> Path:
    """Move what was saved to a new folder in `folder`, and return that; its lease must be held."""
    confirm_all_own([*places.own, folder])
    aside = numbered(folder, folder_stamp(utc_now()))
    aside.mkdir(parents=True)
    for part in _PARTS:
        with suppress(FileNotFoundError):
            os.rename(places.root / part, aside / part)
    return aside


def begin_from_zero(places: RunFolder) -> Path:
    """Move what was saved in the store to a backup; the two newest backups stay.  The caller must hold the lease."""
    aside = set_aside(places, places.root / OLD)
    for old in by_number(aside.parent)[:-OLD_STATES]:
        fs.remove_tree(old)
    return aside


# --- no two runs keep one file ---


def refuse_shared(name: str, call: Call, store: Path, root: Path) -> None:
    """Raise ConfigError if another run in `root` that is not done may keep a file that this one keeps."""
    for other in stores_below(root):
        theirs = None if other == store else read_call(other)
        if theirs is None or theirs.is_finished:
            continue
        for mine, its in ((mine, its) for mine in call.keep for its in theirs.keep):
            if may_share(os.path.join(call.folder, mine), os.path.join(theirs.folder, its)):
                who = other.relative_to(root).as_posix()
                raise ConfigError(
                    [
                        f"exec: {name} keeps {mine!r}, and {who} keeps {its!r}, which may be the same file; "
                        f"let each --keep name files of its own (if {who} is over: rm -r {other})"
                    ]
                )


def may_share(one: str, other: str) -> bool:
    """Return True if some file may match both globs: a folder that matches includes everything in it."""
    parts = (_ONE_OF.sub("?", os.path.normpath(glob)).split("/") for glob in (one, other))
    for left, right in zip(*parts, strict=False):
        if "**" in (left, right):
            return True
        if not _may_agree(left, right):
            return False
    return True


def _may_agree(one: str, other: str) -> bool:
    """Return True if one name may match both, by the text before their first wildcard and after their last."""
    left, right = _WILDCARD.split(one), _WILDCARD.split(other)
    if len(left) == 1 or len(right) == 1:
        name, glob = (one, other) if len(left) == 1 else (other, one)
        return glob_pattern(glob).fullmatch(name) is not None
    begins = left[0].startswith(right[0]) or right[0].startswith(left[0])
    return begins and (left[-1].endswith(right[-1]) or right[-1].endswith(left[-1]))
