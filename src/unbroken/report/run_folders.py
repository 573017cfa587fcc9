"""The folder and the logs of a name: a run of the config lies in `results`, one of `unbroken exec` in `.unbroken`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from unbroken.errors import LeaseError
from unbroken.exec.call import CALL, Call, read_call
from unbroken.exec.stores import known_stores
from unbroken.store import lease
from unbroken.store.layout import RESULTS, STORES, RunFolder

# Before the name of a run of `unbroken exec` where a run of the config has the same.
PREFIX = f"{STORES}/"


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
