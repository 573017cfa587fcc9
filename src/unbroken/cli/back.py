"""`unbroken back`: a run resumes from an earlier checkpoint; the newer ones are quarantined, and nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unbroken.errors import ConfigError, LeaseError
from unbroken.report.run_folders import goes_on_with, run_folder
from unbroken.store import lease
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.checkpoints import QUARANTINE, Store
from unbroken.store.layout import RunFolder
from unbroken.store.record import read_record
from unbroken.system import log

REASON = "set aside by hand: unbroken back"


def go_back(run: str, to: str, base: Path = Path(), before: Callable[[], None] = lambda: None) -> list[str]:
    """Quarantine all checkpoints newer than `to`, a name or a number; only the newest one if `to` is empty.

    `before` is called once all checks have passed.  Return lines that say what was done.  Raise ConfigError if there
    is no such checkpoint, none before it, or a job holds the run.
    """
    places = run_folder(run, base)
    store = Store(places.checkpoints)
    kept, newer = _split(run, store.readable(), to)
    try:
        with log.lines_to(print):
            held = lease.take(places.lease, kept.passport.segment, 0.0)
    except LeaseError as error:
        raise ConfigError([f"{run}: {error}"]) from error
    with held:
        held.confirm()
        before()
        # The newest first: whatever ends this, the remaining checkpoints are a chain without a gap.
        for checkpoint in reversed(newer):
            store.quarantine(checkpoint.name, REASON, is_whole=True)
        store.mend_links(kept)
        forgotten = _forget_records(places, {checkpoint.name for checkpoint in newer})
    names = ", ".join(checkpoint.name for checkpoint in newer)
    lines = [f"{run}: set aside, in {store.root / QUARANTINE}: {names}"]
    if forgotten:
        lines.append(f"{run}: segments to be done again: {', '.join(map(str, forgotten))}")
    return [*lines, f"{run}: it goes on from {kept.name} ({describe_done(kept)}) with: {goes_on_with(places, '')}"]


def _split(run: str, checkpoints: list[Checkpoint], to: str) -> tuple[Checkpoint, list[Checkpoint]]:
    """Return the checkpoint to go back to, and those after it, oldest first."""
    if len(checkpoints) < 2:
        found = f"{checkpoints[0].name} alone" if checkpoints else "no checkpoint"
        raise ConfigError([f"{run}: has {found}, so there is none to go back to; type: unbroken restart {run}"])
    place = len(checkpoints) - 2 if not to else _place(run, checkpoints, to)
    return checkpoints[place], checkpoints[place + 1 :]


def _place(run: str, checkpoints: list[Checkpoint], to: str) -> int:
    earlier = checkpoints[:-1]
    for place, checkpoint in enumerate(earlier):
        if to in {checkpoint.name, str(checkpoint.passport.sequence)}:
            return place
    names = ", ".join(checkpoint.name for checkpoint in earlier)
    raise ConfigError([f"{run}: --to: found {to!r}, allowed: {names} (or the number at its beginning)"])


def _forget_records(places: RunFolder, gone: set[str]) -> list[int]:
    """Remove the records of the segments that left these checkpoints, so that they run again; return their numbers."""
    forgotten = []
    for path in sorted(places.segments.glob("*.json")) if places.segments.is_dir() else []:
        record = read_record(path)
        if record is not None and record.checkpoint in gone:
            path.unlink(missing_ok=True)
            forgotten.append(record.segment)
    return forgotten
