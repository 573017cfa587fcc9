"""Imports what mdrun left elsewhere as a run's first checkpoint, with all its results from the first step."""

from __future__ import annotations

import re
from pathlib import Path

from unbroken.engines.gromacs.command import CPT, has_plumed
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.outcome import MdrunEnd, handover
from unbroken.engines.gromacs.outputs import MDRUN_FILES, part_name
from unbroken.engines.gromacs.parts import write_offsets
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.tool import gmx
from unbroken.engines.imports import ImportedFiles, ImportSource, unchanged
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.run import Run
from unbroken.system.copying import copy_head
from unbroken.system.digests import sha256_of

# state.cpt, state_prev.cpt, state_step1200.cpt: one simulation.
_CPT_NAME = re.compile(r"(?P<stem>.+?)(_prev|_step\d+)?\.cpt")
_FIRST_PART = ".part0001"
# What mdrun calls its files where no -deffnm names them.
_DEFAULTS = {file.default: file.kind for file in MDRUN_FILES}


def import_files(run: Run, simulation: Simulation, source: ImportSource, draft: Path) -> ImportedFiles:
    """Fill the draft from mdrun's folder, or from one checkpoint in it; CheckpointError says what does not fit."""
    source.refuse_done(run)
    try:
        simulation.remarks()
        tpr, goal = simulation.known_tpr, simulation.end_step
        atoms = _atoms(run, simulation.path, simulation.base)
    except SegmentError as error:
        raise CheckpointError(str(error)) from error
    cpt = _chosen(run, source.path)
    if cpt.atoms != atoms:
        what = f"{cpt.path} has {cpt.atoms} atoms, {simulation.path} has {atoms}: another system"
        raise CheckpointError(f"{run.name}: {what}")
    if cpt.step < tpr.first_step:
        what = f"{cpt.path} is at step {cpt.step}, {simulation.path} begins at {tpr.first_step}"
        raise CheckpointError(f"{run.name}: {what}")
    verify_outputs(cpt, cpt.path.parent)
    names = part_names(cpt)
    log = Log(next(cpt.path.parent / name for name in names if name.endswith(".log")))
    log.read()
    parts = draft / PARTS
    parts.mkdir()
    with unchanged([cpt.path, *(cpt.path.parent / name for name in names)]):
        for output in cpt.outputs:
            copy_head(cpt.path.parent / output.name, parts / names[output.name], output.size_bytes)
        copy_head(cpt.path, draft / CPT, cpt.path.stat().st_size)
    write_offsets(parts, {names[output.name]: output.size_bytes for output in cpt.outputs})
    checked = (
        f"{cpt.path.name}: complete, step {cpt.step}, {cpt.atoms} atoms as the tpr",
        "its outputs are those that it was written with (size, md5 of the last megabyte)",
    )
    found = handover(MdrunEnd(cpt, is_final=False), tpr, goal, log, simulation.is_exact)
    return ImportedFiles(found, checked, _not_checked(run, simulation, cpt.path.parent))


def _not_checked(run: Run, simulation: Simulation, folder: Path) -> tuple[str, ...]:
    """Return what GROMACS does not note, and which files are not imported."""
    own = sha256_of(simulation.path)
    lines = ["whether mdrun ran with the same number of ranks and threads, and -reprod"]
    if not any(sha256_of(path) == own for path in folder.glob("*.tpr")):
        lines.append("whether the run's tpr is what the checkpoint was made with: there is no copy of it")
    if simulation.known_tpr.slab_steps:
        lines.append("tables of enforced rotation (-ra, -rs, -rt): they are not imported")
    if has_plumed(run):
        lines.append("PLUMED's own files: they are not imported; name those with which it continues in `inputs`")
    return tuple(lines)


# --- the checkpoint ---


def _chosen(run: Run, path: Path) -> Cpt:
    """Return the checkpoint that is named, or the newest complete one of the one simulation in a folder."""
    if path.is_file():
        return read_cpt(path)
    names = sorted(each.name for each in path.glob("*.cpt"))
    stems = sorted({match["stem"] for name in names if (match := _CPT_NAME.fullmatch(name))})
    if not stems:
        what = "no .cpt in it; name the folder in which mdrun ran, or its checkpoint"
        raise CheckpointError(f"{run.name}: {path}: {what}")
    if len(stems) > 1:
        what = ", ".join(f"{stem}.cpt" for stem in stems)
        first = path / f"{stems[0]}.cpt"
        raise ConfigError([f"{run.name}: {path}: several simulations, {what}; type for example --from {first}"])
    found, why = list[Cpt](), ""
    for name in names:
        try:
            found.append(read_cpt(path / name))
        except CheckpointError as error:
            why = str(error)
    if not found:
        raise CheckpointError(f"{run.name}: {why}")
    return max(found, key=lambda cpt: (cpt.step, not cpt.path.stem.endswith("_prev")))


def _atoms(run: Run, tpr: Path, base: Path) -> int:
    def is_atoms(line: str) -> bool:
        return line.split("=")[0].strip() == "natoms"

    answer = gmx(run, "dump", "-s", str(tpr.resolve()), is_enough=is_atoms, base=base)
    for line in answer.lines:
        if is_atoms(line) and "=" in line:
            return int(line.partition("=")[2])
    raise CheckpointError(f"{run.name}: `gmx dump -s {tpr}` does not say how many atoms it has")


# --- the results ---


def part_names(cpt: Cpt) -> dict[str, str]:
    """Return the outputs of a checkpoint, with what a run's mdrun calls each; CheckpointError if one has no place."""
    found = [output.name for output in cpt.outputs]
    if later := [name for name in found if ".part" in name and _FIRST_PART not in name]:
        what = "is a part of an mdrun with -noappend; only outputs to which mdrun appends can be imported"
        raise CheckpointError(f"{cpt.path.parent / later[0]}: {what}")
    logs = [name for name in found if name.endswith(".log")]
    if not logs:
        raise CheckpointError(f"{cpt.path}: names no log among its outputs")
    stem = logs[0].replace(_FIRST_PART, "").removesuffix(".log")
    return {name: part_name(_kind(cpt, name.replace(_FIRST_PART, ""), stem), cpt.part) for name in found}


def _kind(cpt: Cpt, plain: str, stem: str) -> str:
    """Return the end of the name that files which are joined have in common."""
    rest = plain.removeprefix(stem)
    if rest != plain and rest[:1] in "._":
        return rest
    if plain in _DEFAULTS:
        return _DEFAULTS[plain]
    ending = Path(plain).suffix
    alike = [output.name for output in cpt.outputs if Path(output.name).suffix == ending]
    if len(alike) == 1 and ending in (".xtc", ".trr", ".edr"):
        return ending
    raise CheckpointError(f"{cpt.path}: names the output {plain}, and nobody knows what to join it with")
