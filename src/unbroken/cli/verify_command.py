"""`unbroken verify`: compares every checkpoint, and the outputs that lie outside of them, with what was noted."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from unbroken.cli.say import HERE, Directory, RunNames
from unbroken.errors import CheckpointError, ConfigError, FormatError, LeaseError, StorageError
from unbroken.report.known import CONFIG, existing_run_folder, known_names, known_runs, no_config, run_folder, runs_of
from unbroken.report.run_outputs import compare_outputs
from unbroken.store.checkpoint import PARTS, Checkpoint, only_parts, read_passport, verify_files
from unbroken.store.checkpoints import Store
from unbroken.system import fs


def verify(
    runs: RunNames = None,
    directory: Directory = HERE,
) -> None:
    """Read every byte of every checkpoint again, and compare the outputs; exit code 1 if one is not as it was."""
    for name in runs or []:
        existing_run_folder(name, directory)
    folders = [folder for name in runs or known_runs(directory) for folder in _checkpoints(name, directory)]
    if not folders:
        where = " and ".join(str(run_folder(name, directory).checkpoints) for name in runs or ["*"])
        if not runs and not known_names(
            {run.name: run for run in runs_of(directory, CONFIG, must_exist=False)}, None, directory
        ):
            raise no_config(directory)
        raise ConfigError([f"no checkpoint in {where}, so there is nothing to verify; type: snakemake"])
    found = _verify_all(folders)
    folders = [folder for folder in folders if folder.is_dir()]  # an active run prunes while we read
    bad = [line for line in found if line[0] in folders]
    for folder, what, reason in bad:
        Console().print(f"[red]{what}[/] {escape(f'{folder}: {reason}')}", soft_wrap=True)
    print(f"{len(folders) - len(bad)} of {len(folders)} checkpoints are whole")
    is_good = _verify_outputs(runs or known_runs(directory), directory, {folder for folder, _, _ in bad})
    raise typer.Exit(0 if is_good and not bad else 1)


def _verify_outputs(runs: Sequence[str], directory: Path, bad: Container[Path]) -> bool:
    """Compare the outputs of each run with its newest good checkpoint; False if one is not as it is listed."""
    count, faults = 0, 0
    for run in runs:
        places = run_folder(run, directory)
        good = [each for each in Store(places.checkpoints).readable() if each.folder not in bad]
        if not good:
            continue
        try:
            with fs.os_errors(places.root):
                compared = compare_outputs(places, good[-1])
        except (CheckpointError, FormatError, ConfigError, LeaseError, StorageError) as error:
            Console().print(f"[red]unread[/] {run}: {escape(str(error))}", soft_wrap=True)
            faults += 1
            continue
        if compared.is_held:
            print(f"{run}: its outputs are not compared while a job works on it")
        for path, reason in compared.faults:
            Console().print(f"[red]bad[/] {escape(f'{path}: {reason}')}", soft_wrap=True)
        count, faults = count + compared.count, faults + len(compared.faults)
    if count:
        print(f"{count - faults} of {count} output files are as their newest checkpoint lists them")
    return not faults


def _checkpoints(run: str, directory: Path) -> list[Path]:
    store = Store(run_folder(run, directory).checkpoints)
    return [store.archive / name for name in store.archived()] + [store.root / name for name in store.names()]


def _verify_all(folders: list[Path]) -> list[tuple[Path, str, str]]:
    """Return the folders that cannot be confirmed, each with one word for its state and the reason."""
    bad: list[tuple[Path, str, str]] = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading checkpoints", total=sum(_size(folder) for folder in folders))
        for folder in folders:
            try:
                checkpoint = Checkpoint(folder, read_passport(folder))
                if folder.parent.name == PARTS:  # pruned: only these parts remain
                    checkpoint = only_parts(checkpoint)
                verify_files(checkpoint, lambda count: bar.update(task, advance=count))
            except FormatError as error:
                bad.append((folder, "unknown", str(error)))
            except CheckpointError as error:
                bad.append((folder, "bad", str(error)))
            except StorageError as error:
                bad.append((folder, "unread", str(error)))
    return bad


def _size(folder: Path) -> int:
    try:
        return fs.tree_bytes(folder)
    except FileNotFoundError:  # it is just being pruned
        return 0
