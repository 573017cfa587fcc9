"""A computation that begins anew: what was saved is set aside, and the two newest such states stay."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from unbroken.exec.engine import PRINTED
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now

OLD = "old"
OLD_STATES = 2
# All that a computation leaves; what the run was called with, and which files are its own, stays.
_PARTS = ("checkpoints", "parts", "segments", "final", "live", "logs", "history.jsonl", PRINTED)


def set_old_aside(places: RunFolder) -> Path:
    """Moves what was saved to a folder of the store, which is returned; its lease must be held."""
    root = places.root
    confirm_all_own([*places.own, root / OLD])
    stamp = folder_stamp(utc_now())
    names = itertools.chain([stamp], (f"{stamp}.{number}" for number in itertools.count(2)))
    aside = next(root / OLD / name for name in names if not (root / OLD / name).exists())
    aside.mkdir(parents=True)
    for name in _PARTS:
        with suppress(FileNotFoundError):
            os.rename(root / name, aside / name)
    confirm_own(aside.parent)
    for old in sorted(aside.parent.iterdir())[:-OLD_STATES]:
        fs.remove_tree(old)
    return aside
