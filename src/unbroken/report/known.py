"""The runs of a folder, those of its configuration and those that have left anything there: their folders and logs.

A run of the config lies in `results`, one of `unbroken exec` in `.unbroken`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.config import yaml_file
from unbroken.config.found import absent, unknown_run
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError, LeaseError
from unbroken.exec.call import CALL, Call, read_call
from unbroken.exec.stores import known_stores
from unbroken.store import lease
from unbroken.store.layout import RESULTS, STORES, RunFolder
from unbroken.store.run import RunSpec

CONFIG = Path("config/config.yaml")
# Before the name of a run of `unbroken exec` where a run of the config has the same.
PREFIX = f"{STORES}/"


# --- the configuration ---


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


# --- folders and logs ---


def run_folder(name: str, base: Path) -> RunFolder:
    """Return the folder of a run, also of one that has none yet; a run in `results` comes first."""
    plain, own = RunFolder(name, base), name.removeprefix(PREFIX)
    store = base / STORES / own
    is_of_exec = (store / CALL).exists() and (own != name or not plain.root.is_dir())
    return RunFolder(own, base, store) if is_of_exec else plain


def known_runs(base: Path) -> list[str]:
    """Return the names of the runs that have left anything here."""
    results = base / RESULTS
    plain = sorted(path.parent.name for path in results.glob("*/lease")) if results.is_dir() else []
    return [*plain, *(f"{PREFIX}{name}" if name in plain else name for name in known_stores(base))]


def segment_logs(places: RunFolder) -> dict[int, Path]:
    """Return the logs of a run by segment, each that of the last attempt that started the program."""
    folder = places.log(1).parent
    paths = sorted(folder.glob("*.log")) if folder.is_dir() else []
    return {int(path.stem): path for path in paths if path.stem.isdecimal()}


def segment_to_show(places: RunFolder, logs: Mapping[int, Path]) -> int:
    """Return the segment that is running; else the newest one whose log says anything.  `logs` must not be empty.

    A job that waits for its turn has an empty log already.
    """
    with suppress(LeaseError, OSError):
        claim, why_free = lease.current_claim(places.lease)
        if claim is not None and not why_free and claim.segment in logs:
            return claim.segment
    return max((number for number in logs if _says_anything(logs[number])), default=max(logs))


def _says_anything(log: Path) -> bool:
    try:
        return log.stat().st_size > 0
    except OSError:  # Snakemake has just removed it, for the next attempt
        return False


def call_of(places: RunFolder) -> Call | None:
    """Return what a run of `unbroken exec` was called with; None for a run of the config."""
    return read_call(places.store) if places.store else None


def goes_on_with(places: RunFolder, slurm_job: str) -> str:
    """Return what to type so that a run resumes."""
    if (call := call_of(places)) is not None:
        return f"the same command again (unbroken exec --name {places.name} ... -- {shlex.join(call.program)})"
    return "snakemake --profile slurm" if slurm_job else "snakemake"


def results_of(places: RunFolder) -> str:
    """Return where the results of a finished run are."""
    call = call_of(places)
    if call is None:
        return f"results: {places.final}"
    return f"results: {', '.join(_seen(call, name) for name in call.outputs)}" if call.outputs else "done"


def _seen(call: Call, output: str) -> str:
    """Return where the program made it; short if that is the folder in which we are."""
    return output if Path.cwd() == Path(call.folder) else str(Path(call.folder, output))
