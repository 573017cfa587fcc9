"""The runs of a folder: those of its configuration, and those that have left anything there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.config import yaml_file
from unbroken.config.found import absent, unknown_run
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.report.run_folders import known_runs, run_folder
from unbroken.report.status import RunStatus, status_of
from unbroken.slurm.queue import Queue
from unbroken.store.layout import RunFolder
from unbroken.store.run import RunSpec

CONFIG = Path("config/config.yaml")


def statuses(only: Sequence[str] | None, directory: Path, config: Path, queue: Queue) -> list[RunStatus]:
    """Return the state of the runs that are named, or of all that are configured or have left anything."""
    runs = {run.name: run for run in runs_of(directory, config, must_exist=False)}
    return [status_of(name, directory, runs.get(name), queue) for name in known_names(runs, only, directory)]


def known_names(runs: Mapping[str, RunSpec], only: Sequence[str] | None, directory: Path) -> list[str]:
    """Return the names in `only`, each once, else all known ones; raise ConfigError for an unknown one."""
    names = [*runs, *(name for name in known_runs(directory) if name not in runs)]
    for name in only or []:
        refuse_unknown(name, names, directory)
    return list(dict.fromkeys(only or names))


def refuse_unknown(name: str, known: Collection[str], directory: Path) -> None:
    """Raise ConfigError if no run has that name; where there is no run at all, it says what makes one."""
    if name not in known:
        raise ConfigError([unknown_run(name, known)]) if known else no_config(directory)


def no_config(directory: Path, config: Path = CONFIG) -> ConfigError:
    """Return the error of a folder that has no configuration: what makes one, or where the nearest one is."""
    here = directory.resolve()
    above = next((folder for folder in here.parents if (folder / config).is_file()), None)
    if above is not None:
        hint = f"it is in {above}, so add: -d {os.path.relpath(above)}"
    else:
        hint = "to begin here, type: unbroken init; for runs of another folder, add: -d FOLDER"
    return ConfigError([f"{config}: not found in {here}; {hint}"])


def existing_run_folder(name: str, base: Path) -> RunFolder:
    """Return the folder of a run that has left something; ConfigError says of another one what it lacks."""
    places = run_folder(name, base)
    if not places.root.is_dir():
        refuse_unknown(name, list(dict.fromkeys([*_configured(base), *known_runs(base)])), base)
        raise ConfigError([f"{name}: has not started; to start it, type: snakemake"])
    return places


def _configured(base: Path) -> list[str]:
    """Return the names in the configuration, in whatever state that is."""
    with suppress(ConfigError, OSError):
        return [run.name for run in runs_of(base, CONFIG, must_exist=False)]
    return []


def runs_of(directory: Path, config: Path, *, must_exist: bool) -> Iterable[RunSpec]:
    """Return the checked runs of the configuration; none if there is no file, unless it must exist (ConfigError)."""
    path = directory / config
    try:
        data = yaml_file.read(path)
    except FileNotFoundError as error:
        if config != CONFIG:
            raise ConfigError([f"--config: {absent(str(config), directory)}"]) from error
        if must_exist:
            raise no_config(directory) from error
        return ()
    return read_checked_runs(_own_part(data), directory)


def config_of(path: Path) -> Mapping[str, object]:
    """Return the part of a configuration file that is ours."""
    return _own_part(yaml_file.read(path))


def _own_part(data: Any) -> Mapping[str, object]:
    """Return our part; a workflow that imports us keeps it below the key `unbroken` (docs/module.md)."""
    inner = data.get("unbroken") if isinstance(data, dict) else None
    return inner or data or {}
