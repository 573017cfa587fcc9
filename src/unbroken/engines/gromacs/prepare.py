"""Where a run's tpr comes from: the config names it, or `gmx grompp` makes it once, from .mdp, structure, topology."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from unbroken.engines.gromacs.settings import ALONE, has_replicas, tpr_setting
from unbroken.engines.gromacs.tool import must_gmx
from unbroken.errors import ConfigError, SegmentError
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.system import fs
from unbroken.system.digests import sha256_of
from unbroken.system.flush import flush_tree

# The files that a tpr is made of; all of them are settings, in the order in which they are told to grompp.
_SOURCES = {"mdp": "-f", "structure": "-c", "topology": "-p", "index": "-n", "reference": "-r"}
TPR = "topol.tpr"
PREPARED = "prepared"
# What it was made of, beside it: written with it in one step.
NOTE = "made_of.json"


def is_prepared_here(run: Run) -> bool:
    """True if the run names no tpr, but what one is made of."""
    return not run.settings["tpr"] and not has_replicas(run)


def prepared_record(run: Run, segment: int) -> list[str]:
    """The record of the preparation that the first segment waits for; none if the run names its tpr."""
    if segment > 1 or not is_prepared_here(run):
        return []
    return [str(RunFolder(run.name).root / "prepared.json")]


def tpr_of(run: Run, base: Path, replica: str = ALONE) -> Path:
    """Return the tpr of a run, or of one of its replicas.

    SegmentError if it was to be prepared and is not there, or was made of other files.
    """
    if not is_prepared_here(run):
        return base / tpr_setting(run, replica)
    folder = _folder(run, base)
    record = RunFolder(run.name).root / "prepared.json"
    remedy = f"type: rm -rf {folder} {base / record} && snakemake {record}"
    try:
        note = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError) as error:
        raise SegmentError(f"{folder / TPR}: not prepared; {remedy}") from error
    if _digest(folder / TPR) != note["tpr"]:
        raise SegmentError(f"{folder / TPR}: not the tpr that was prepared; {remedy}")
    if changed := _changes(note["made_of"], made_of(run, base)):
        raise SegmentError(f"{folder / TPR}: was made of another {', '.join(changed)}; {remedy}")
    return folder / TPR


def prepare(run: Run, base: Path) -> Path:
    """Makes the tpr unless it is there, made of the same files, and returns it; SegmentError in grompp's own words.

    If the process dies inside, either nothing is to be seen or the whole.
    """
    folder = _folder(run, base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / NOTE).exists():
        draft = folder.with_name(fs.unique_name(PREPARED))
        draft.mkdir()
        try:
            _fill(run, base, draft)
            os.rename(draft, folder)
        finally:
            if draft.exists():
                fs.remove_tree(draft)
    return tpr_of(run, base)


def _fill(run: Run, base: Path, draft: Path) -> None:
    _grompp(run, base, draft)
    note = {"tpr": _digest(draft / TPR), "made_of": made_of(run, base)}
    fs.write_new(draft / NOTE, json.dumps(note, indent=2) + "\n")
    flush_tree(draft)


def made_of(run: Run, base: Path) -> dict[str, str]:
    """Each setting that shapes the tpr, and the digest of each file among them."""
    files = {name: _digest(base / path) for name, path in _files(run)}
    values = {name: json.dumps(run.settings[name], default=list) for name in ("fixed_rlist_nm", "grompp_options")}
    return {**files, **values}


def mdp_with_fixed_list(text: str, rlist_nm: float) -> str:
    """The .mdp with the pair list fixed, so that a restart under pressure coupling changes no bit; its own lines go.

    nstlist stays 20 unless the text says otherwise, for the buffer does not follow it any more.
    """
    fixed = {"verlet-buffer-tolerance": "-1", "rlist": f"{rlist_nm:g}"}
    kept = [line for line in text.splitlines() if _key_of(line) not in fixed]
    if not any(_key_of(line) == "nstlist" for line in kept):
        fixed["nstlist"] = "20"
    return "\n".join([*kept, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _grompp(run: Run, base: Path, draft: Path) -> None:
    mdp = base / str(run.settings["mdp"])
    rlist = run.settings["fixed_rlist_nm"]
    if isinstance(rlist, (int, float)):
        fixed = draft / "fixed.mdp"
        fixed.write_text(mdp_with_fixed_list(mdp.read_text(), rlist))
        mdp = fixed
    words = []
    for name, option in _SOURCES.items():
        if run.settings[name]:
            path = mdp if name == "mdp" else base / str(run.settings[name])
            words += [option, os.path.relpath(path, base)]
    options = run.settings["grompp_options"]
    extra = [str(word) for word in options] if isinstance(options, (list, tuple)) else []
    left = ["-o", os.path.relpath(draft / TPR, base), "-po", os.path.relpath(draft / "mdout.mdp", base)]
    must_gmx(run, "grompp", *words, *left, *extra, folder=base, base=base)


def _files(run: Run) -> Iterator[tuple[str, str]]:
    for name in _SOURCES:
        if run.settings[name]:
            yield name, str(run.settings[name])
    inputs = run.settings["inputs"]
    for name in inputs if isinstance(inputs, (list, tuple)) else ():
        yield f"inputs {name}", str(name)


def _changes(was: dict[str, str], now: dict[str, str]) -> list[str]:
    return sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))


def _folder(run: Run, base: Path) -> Path:
    return RunFolder(run.name, base).root / PREPARED


def _key_of(line: str) -> str:
    """grompp takes `verlet_buffer_tolerance` and `Verlet-Buffer-Tolerance` for the same."""
    return line.partition(";")[0].partition("=")[0].strip().lower().replace("_", "-")


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
