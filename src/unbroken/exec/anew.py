"""A computation that begins anew: what was saved is set aside, and the two newest such states stay."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from unbroken.exec.engine import PRINTED_NAME
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now

OLD = "old"
OLD_STATES = 2
# All that a computation leaves; what the run was called with, and which files are its own, stays.
_PARTS = ("checkpoints", "parts", "segments", "final", "live", "logs", "history.jsonl", PRINTED_NAME)


def set_old_aside(places: RunFolder, into: Path | None = None) -> Path:
    """Moves what was saved to a folder of the store, or beside `into`, and returns it; its lease must be held.

    Of those in the store the two newest stay, this one among them; what was moved to a place that was named is never
    removed.  The newest is the one moved last: nodes differ in their clocks.
    """
    root = places.root
    confirm_all_own([*places.own, root / OLD])
    first = into or fs.numbered(root / OLD, folder_stamp(utc_now()))
    names = itertools.chain([first.name], (f"{first.name}.{number}" for number in itertools.count(2)))
    aside = next(first.with_name(name) for name in names if not first.with_name(name).exists())
    aside.mkdir(parents=True)
    for name in _PARTS:
        with suppress(FileNotFoundError):
            os.rename(root / name, aside / name)
    if into is not None:
        return aside
    confirm_own(aside.parent)
    for old in [path for path in fs.by_number(aside.parent) if path != aside][: -OLD_STATES + 1]:
        fs.remove_tree(old)
    return aside
