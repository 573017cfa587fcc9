"""The runs of a folder: those of its configuration, and those that have left anything there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.config import yaml_file
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError
from unbroken.report.run_folders import known_runs
from unbroken.report.status import RunStatus, status_of
from unbroken.runs.run import Run
from unbroken.slurm.jobs_out import Queue

CONFIG = Path("config/config.yaml")


def statuses(only: Sequence[str] | None, directory: Path, config: Path, queue: Queue) -> list[RunStatus]:
    """How they stand: the runs that are named, or all that are configured or have left anything."""
    runs = {run.name: run for run in runs_of(directory, config, must_exist=False)}
    return [status_of(name, directory, runs.get(name), queue) for name in known_names(runs, only, directory)]


def known_names(runs: Mapping[str, Run], only: Sequence[str] | None, directory: Path) -> list[str]:
    """Those of `only`, each once; else of all `runs` and of what lies in the folder.  ConfigError if one is unknown."""
    names = [*runs, *(name for name in known_runs(directory) if name not in runs)]
    if unknown := [name for name in only or [] if name not in names]:
        raise ConfigError([f"no run is named {unknown[0]!r}; allowed: {', '.join(names) or 'none'}"])
    return list(dict.fromkeys(only or names))


def runs_of(directory: Path, config: Path, must_exist: bool) -> Iterable[Run]:
    """The checked runs of the configuration; none where there is no file, unless it must exist (ConfigError)."""
    path = directory / config
    try:
        data = yaml_file.read(path)
    except FileNotFoundError as error:
        if must_exist or config != CONFIG:
            raise ConfigError([f"{path}: not found; add -d FOLDER, or --config FILE"]) from error
        return ()
    return read_checked_runs(_own_part(data), directory)


def config_of(path: Path) -> Mapping[str, object]:
    """The part of a configuration file that is ours."""
    return _own_part(yaml_file.read(path))


def _own_part(data: Any) -> Mapping[str, object]:
    """A workflow that imports us keeps our part below this key (docs/module.md)."""
    inner = data.get("unbroken") if isinstance(data, dict) else None
    return inner or data or {}
