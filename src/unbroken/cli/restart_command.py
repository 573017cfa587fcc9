"""`unbroken restart`: all that a run has done goes to a backup folder, and nothing is deleted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from unbroken.cli.exec_commands import begin_anew
from unbroken.cli.say import HERE, Directory, RunName, say
from unbroken.errors import ConfigError, LeaseError
from unbroken.job import left_out, submissions
from unbroken.job.array import cancel_waiting
from unbroken.report.known import existing_run_folder
from unbroken.slurm.client import has_command
from unbroken.slurm.job import in_short
from unbroken.store import lease
from unbroken.store.layout import RESULTS, RunFolder
from unbroken.store.select import refuse_newer
from unbroken.system import log
from unbroken.system.clock import folder_stamp, utc_now


def restart(run: RunName, directory: Directory = HERE) -> None:
    """Move everything that a run has done to a backup folder (nothing is deleted), so that it starts from zero."""
    places = existing_run_folder(run, directory)
    refuse_newer(places)
    if places.store is not None:
        begin_anew(places, places.store)
        return
    try:
        with log.lines_to(lambda line: say(f"{run}: {line}")):
            held = lease.take_if_idle(places.lease, 0)
    except LeaseError as error:
        raise ConfigError([f"{run}: {error}"]) from error
    with held:
        cancel_its_waiting(run, directory)
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


def cancel_its_waiting(run: str, directory: Path) -> None:
    """Cancel the waiting tasks of a run: one of them would begin it again before its user is ready.

    So would a job of another run that submits it when the queue takes it.
    """
    has_had = submissions.any_of(run, directory) and has_command("squeue")
    numbers = cancel_waiting(run, directory) if has_had else []
    if numbers is None:
        raise ConfigError([f"{run}: Slurm does not say whether jobs of it wait; nothing was done; try again later"])
    if numbers:
        say(f"{run}: canceled the waiting tasks: {', '.join(in_short(numbers))}")
    left_out.forget(run, directory)


def _numbered(path: Path) -> Iterator[Path]:
    """Yield the path, then the path with `.2`, `.3` and so on appended."""
    yield path
    yield from (path.with_name(f"{path.name}.{number}") for number in itertools.count(2))
