"""Find or make a run's tpr: the config names it, or `gmx grompp` makes it once from .mdp, structure and topology."""

from __future__ import annotations

import json
import os
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE, has_replicas, number_of, replica_names, words_of
from unbroken.engines.gromacs.tool import must_gmx
from unbroken.errors import ConfigError, SegmentError
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import RunSpec
from unbroken.system import fs
from unbroken.system.digests import sha256_of
from unbroken.system.flush import flush_tree

# The files that a tpr is made of; all of them are settings, in the order of grompp's arguments.
_SOURCES = {"mdp": "-f", "structure": "-c", "topology": "-p", "index": "-n", "reference": "-r"}
TPR = "topol.tpr"
PREPARED = "prepared"
# The record of its sources, next to it: written with it in one step.
NOTE = "made_of.json"


def is_prepared_here(run: RunSpec) -> bool:
    """Return True if the run names no tpr, but what one is made of."""
    return not run.settings["tpr"] and not has_replicas(run)


def prepared_record(run: RunSpec, segment: int) -> list[str]:
    """Return the record of the preparation that the first segment waits for; none if the run names its tpr."""
    return [str(RunFolder(run.name).root / "prepared.json")] if segment == 1 and is_prepared_here(run) else []


def tpr_of(run: RunSpec, base: Path, replica: str = ALONE) -> Path:
    """Return the tpr of a run, or of one of its replicas.

    Raise SegmentError if it was to be prepared and is not there, or was made of other files.
    """
    if not is_prepared_here(run):
        tpr = words_of(run, "replicas")[replica_names(run).index(replica)] if replica else run.settings["tpr"]
        return base / str(tpr)
    folder, (record,) = _folder(run, base), prepared_record(run, 1)
    remedy = f"type: rm -rf {folder} {base / record} && snakemake {record}"
    try:
        note = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError) as error:
        raise SegmentError(f"{folder / TPR}: not prepared; {remedy}") from error
    if _digest(folder / TPR) != note["tpr"]:
        raise SegmentError(f"{folder / TPR}: not the tpr that was prepared; {remedy}")
    was, now = note["made_of"], made_of(run, base)
    if changed := sorted(name for name in {*was, *now} if was.get(name) != now.get(name)):
        raise SegmentError(f"{folder / TPR}: was made of another {', '.join(changed)}; {remedy}")
    return folder / TPR


def prepare(run: RunSpec, base: Path) -> Path:
    """Make the tpr unless it is there, made of the same files, and return it; raise SegmentError with grompp's text.

    If the process dies inside, either nothing is to be seen or all of it.
    """
    folder = _folder(run, base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / NOTE).exists():
        draft = folder.with_name(fs.unique_name(PREPARED))
        draft.mkdir()
        try:
            _grompp(run, base, draft)
            note = {"tpr": _digest(draft / TPR), "made_of": made_of(run, base)}
            fs.write_new(draft / NOTE, json.dumps(note, indent=2) + "\n")
            flush_tree(draft)
            os.rename(draft, folder)
        finally:
            if draft.exists():
                fs.remove_tree(draft)
    return tpr_of(run, base)


def made_of(run: RunSpec, base: Path) -> dict[str, str]:
    """Return each setting that shapes the tpr, and the digest of each file among them."""
    sources = {name: _digest(base / path) for name, path in _sources(run).items()}
    inputs = {f"inputs {name}": _digest(base / name) for name in words_of(run, "inputs")}
    values = {name: json.dumps(run.settings[name], default=list) for name in ("fixed_rlist_nm", "grompp_options")}
    return {**sources, **inputs, **values}


def mdp_with_fixed_list(text: str, rlist_nm: float) -> str:
    """Return the .mdp with the pair list fixed, so that a restart under pressure coupling changes no bit.

    Its own lines about the list go.  nstlist becomes 20 where the text does not name it, for no buffer follows it.
    """
    fixed = {"verlet-buffer-tolerance": "-1", "rlist": f"{rlist_nm:g}"}
    kept = [line for line in text.splitlines() if _key_of(line) not in fixed]
    if not any(_key_of(line) == "nstlist" for line in kept):
        fixed["nstlist"] = "20"
    return "\n".join([*kept, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _grompp(run: RunSpec, base: Path, draft: Path) -> None:
    files = {_SOURCES[name]: base / path for name, path in _sources(run).items()}
    if (rlist := number_of(run, "fixed_rlist_nm")) is not None:
        text = mdp_with_fixed_list(files["-f"].read_text(), rlist)
        files["-f"] = draft / "fixed.mdp"
        files["-f"].write_text(text)
    files |= {"-o": draft / TPR, "-po": draft / "mdout.mdp"}
    words = [word for option, path in files.items() for word in (option, os.path.relpath(path, base))]
    must_gmx(run, "grompp", *words, *words_of(run, "grompp_options"), folder=base, base=base)


def _sources(run: RunSpec) -> dict[str, str]:
    return {name: str(run.settings[name]) for name in _SOURCES if run.settings[name]}


def _folder(run: RunSpec, base: Path) -> Path:
    return RunFolder(run.name, base).root / PREPARED


def _key_of(line: str) -> str:
    """Return the key as grompp takes it, for which `verlet_buffer_tolerance` and `Verlet-Buffer-Tolerance` are one."""
    return line.partition(";")[0].partition("=")[0].strip().lower().replace("_", "-")


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
