"""Decide from where a run resumes: `unbroken accept`, `back`, `restart` and `restore`; nothing is deleted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import HERE, Config, Directory, RunName, say
from unbroken.copies.restore import restore
from unbroken.engines.found import outputs_of
from unbroken.errors import ConfigError, LeaseError
from unbroken.exec.call import accept_refused, read_call
from unbroken.exec.stores import set_aside
from unbroken.job import submissions
from unbroken.job.array import cancel_waiting
from unbroken.plan.plan import Plan
from unbroken.report.known import CONFIG, existing_run_folder, goes_on_with, refuse_unknown, run_folder, runs_of
from unbroken.slurm.client import has_command
from unbroken.slurm.job import in_short
from unbroken.slurm.queue import queue_of
from unbroken.store import lease
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.checkpoints import QUARANTINE, Store
from unbroken.store.layout import RESULTS, STORES, RunFolder
from unbroken.store.record import read_record
from unbroken.store.run import accept_identity, identity_of
from unbroken.store.select import refuse_newer
from unbroken.system import log
from unbroken.system.clock import folder_stamp, utc_now

REASON = "set aside by hand: unbroken back"


def accept(run: RunName, directory: Directory = HERE, config: Config = CONFIG) -> None:
    """Let a changed run resume from its old checkpoints: a corrected script, another input on purpose."""
    places = run_folder(run, directory)
    refuse_newer(places)
    if places.store is not None:
        changed = accept_refused(places.store)
        say(f"{run}: accepted: {changed}; it goes on with {goes_on_with(places, '')}")
        return
    plan = Plan(tuple(runs_of(directory, config, must_exist=True)), directory)
    refuse_unknown(run, [known.name for known in plan.runs], directory)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    if newest is None:
        raise ConfigError([f"{run}: has no checkpoint yet; to start it, type: snakemake"])
    assignment = plan.assignment(run)
    identity = identity_of(assignment.run, assignment.keys, directory)
    changes = identity.differences(newest.passport.identity_parts)
    if not changes:
        say(f"{run}: nothing has changed since {newest.name}; type: snakemake")
        return
    accept_identity(places.accepted, newest.passport.identity, changes)
    waiting = [job.job_id for job in queue_of(directory).out if job.run == run and job.is_waiting]
    todo = f"its waiting tasks go on from {newest.name}: {', '.join(in_short(waiting))}" if waiting else ""
    say(f"{run}: accepted: {'; '.join(changes)}; {todo or f'it goes on from {newest.name} with: snakemake'}")


def restore_run(
    run: RunName,
    source: Annotated[Path, typer.Option("--from", help="The folder of `copies:`, or the run's folder in there.")],
    directory: Directory = HERE,
) -> None:
    """Restore a run that is lost from its copies (`copies:` in the config); refused where the run exists."""
    with log.lines_to(say):
        restore(run, source, directory, outputs_of)
    say(f"{run}: it continues with: snakemake")


def back(
    run: RunName,
    to: Annotated[str, typer.Option("--to", help="The checkpoint to go on from; the one before the newest.")] = "",
    directory: Directory = HERE,
) -> None:
    """Let a run resume from an earlier checkpoint; the newer ones are quarantined (nothing is deleted)."""
    refuse_newer(existing_run_folder(run, directory))
    for line in go_back(run, to, directory, partial(_cancel_waiting_of, run, directory)):
        say(line)


# --- back ---


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


# --- restart ---


def restart(run: RunName, directory: Directory = HERE) -> None:
    """Move everything that a run has done to a backup folder (nothing is deleted), so that it starts from zero."""
    places = existing_run_folder(run, directory)
    refuse_newer(places)
    if places.store is not None:
        _begin_anew(places, places.store)
        return
    try:
        with log.lines_to(lambda line: say(f"{run}: {line}")):
            held = lease.take_if_idle(places.lease, 0)
    except LeaseError as error:
        raise ConfigError([f"{run}: {error}"]) from error
    with held:
        _cancel_waiting_of(run, directory)
        held.folder = _move_aside(run, places, directory) / places.lease.name


def _move_aside(run: str, places: RunFolder, directory: Path) -> Path:
    """Move the run's folder to a backup, or only the link that it is; return where its files are now."""
    aside = directory / RESULTS / ".restarted" / f"{run}_{folder_stamp(utc_now())}"
    target = next(path for path in _numbered(aside) if not path.exists())
    target.parent.mkdir(parents=True, exist_ok=True)
    if places.root.is_symlink():
        real = places.root.resolve()
        target.symlink_to(real)
        places.root.unlink()
        say(f"{run}: {places.root} was a link; everything so far stays in {real}, and {target} leads there.")
        say(f"It begins anew in a plain folder, or in another one that you link at {places.root}, with: snakemake")
        return real
    os.rename(places.root, target)
    say(f"{run}: everything so far is now in {target}; it begins anew with: snakemake")
    return target


def _cancel_waiting_of(run: str, directory: Path) -> None:
    """Cancel the waiting tasks of a run: one of them would begin it again before its user is ready.

    So would a job of another run that submits it when the queue takes it.
    """
    has_had = submissions.any_of(run, directory) and has_command("squeue")
    numbers = cancel_waiting(run, directory) if has_had else []
    if numbers is None:
        raise ConfigError([f"{run}: Slurm does not say whether jobs of it wait; nothing was done; try again later"])
    if numbers:
        say(f"{run}: canceled the waiting tasks: {', '.join(in_short(numbers))}")
    submissions.forget_left_out(run, directory)


def _numbered(path: Path) -> Iterator[Path]:
    """Yield the path, then the path with `.2`, `.3` and so on appended."""
    yield path
    yield from (path.with_name(f"{path.name}.{number}") for number in itertools.count(2))


def _begin_anew(places: RunFolder, store: Path) -> None:
    """Move everything to a backup, as --anew does, without a program; raise ConfigError if the run is held."""
    with log.lines_to(say), lease.take(places.lease, 0, 0.0):
        aside = set_aside(places, places.base / STORES / ".restarted" / places.name)
        if (call := read_call(store)) is not None:
            replace(call, is_finished=False).write(store)
    say(f"{places.name}: everything so far is now in {aside}; it begins anew with {goes_on_with(places, '')}")
