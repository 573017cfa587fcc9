"""Refuse a run of which a newer unbroken wrote a file, before anything of the run is touched."""

from __future__ import annotations

from itertools import islice

from unbroken.runs import lease, passport
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import read_record
from unbroken.runs.store import Store


def refuse_newer(places: RunFolder, is_thorough: bool = False) -> None:
    """FormatError, with what to type, if a newer unbroken wrote a file of the run.

    Reads only, and says nothing of what is bad or cannot be read now: whoever needs that file does.

    Of the records and of the passports of pruned checkpoints, which may be thousands, the newest speak for the others,
    unless all of them are about to be touched (`is_thorough`).
    """
    store = Store(places.checkpoints)
    store.refuse_newer()
    for name in store.names():
        passport.refuse_newer(store.root / name)
    for name in islice(reversed(store.archived()), None if is_thorough else 1):
        passport.refuse_newer(store.archive / name)
    found = places.segments.glob("*.json") if places.segments.is_dir() else []
    records = sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem), reverse=True)
    for path in islice(records, None if is_thorough else 1):
        read_record(path)
    History(places.history).refuse_newer()
    lease.refuse_newer(places.lease)
