"""Import what mdrun left elsewhere as a run's first checkpoint, and export a folder in which it resumes."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from unbroken.engines.exports import write_script
from unbroken.engines.gromacs.command import CPT, has_plumed, inputs_of, mdrun_command, threads_per_rank
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.join import counted_pieces, joinable_line
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.others import Others
from unbroken.engines.gromacs.outputs import MDRUN_FILES, STEM, part_name
from unbroken.engines.gromacs.parts import whole_checkpoints, write_offsets
from unbroken.engines.gromacs.prepare import TPR
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.tool import gmx
from unbroken.engines.imports import ImportedFiles, ImportSource, unchanged
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.runs.progress import Handover, Metric, Progress
from unbroken.runs.run import RunSpec
from unbroken.system.copying import copy_head
from unbroken.system.digests import sha256_of

# state.cpt, state_prev.cpt, state_step1200.cpt: one simulation.
_CPT_NAME = re.compile(r"(?P<stem>.+?)(_prev|_step\d+)?\.cpt")
_FIRST_PART = ".part0001"
# What mdrun calls its files where no -deffnm names them.
_DEFAULTS = {file.default: file.kind for file in MDRUN_FILES}


def import_files(run: RunSpec, simulation: Simulation, source: ImportSource, draft: Path) -> ImportedFiles:
    """Fill the draft from mdrun's folder, or one checkpoint in it; raise CheckpointError with what does not fit."""
    source.refuse_done(run)
    try:
        simulation.remarks()
        first_step, atoms = simulation.known_tpr.first_step, _atoms(run, simulation.path, simulation.base)
    except SegmentError as error:
        raise CheckpointError(str(error)) from error
    cpt = _chosen(run, source.path)
    folder, parts = cpt.path.parent, draft / PARTS
    if cpt.atoms != atoms:
        what = f"{cpt.path} has {cpt.atoms} atoms, {simulation.path} has {atoms}: another system"
        raise CheckpointError(f"{run.name}: {what}")
    if cpt.step < first_step:
        what = f"{cpt.path} is at step {cpt.step}, {simulation.path} begins at {first_step}"
        raise CheckpointError(f"{run.name}: {what}")
    verify_outputs(cpt, folder)
    names = part_names(cpt)
    log = Log(next(folder / name for name in names if name.endswith(".log")))
    log.read()
    parts.mkdir()
    with unchanged([cpt.path, *(folder / name for name in names)]):
        for output in cpt.outputs:
            copy_head(folder / output.name, parts / names[output.name], output.size_bytes)
        copy_head(cpt.path, draft / CPT, cpt.path.stat().st_size)
    write_offsets(parts, {names[output.name]: output.size_bytes for output in cpt.outputs})
    checked = (
        f"{cpt.path.name}: complete, step {cpt.step}, {cpt.atoms} atoms as the tpr",
        "its outputs are those that it was written with (size, md5 of the last megabyte)",
    )
    found = handover(cpt, simulation, log, is_final=False, is_exact=simulation.is_exact)
    return ImportedFiles(found, checked, _not_checked(run, simulation, folder))


def handover(cpt: Cpt, simulation: Simulation, log: Log, *, is_final: bool, is_exact: bool) -> Handover:
    """Return what the manifest is to say of a checkpoint of mdrun."""
    tpr = simulation.known_tpr
    metrics: dict[str, Metric] = {"time_ps": round(cpt.time_ps, 6), "part": cpt.part, "is_exact": is_exact}
    if tpr.last_step is not None:
        metrics["extended_ps"] = round(cpt.time_ps - tpr.time_ps(tpr.last_step), 6)
    if log.performance:
        metrics["ns_per_day"] = float(log.performance)
    progress = Progress(cpt.step, simulation.end_step, "steps", metrics)
    return Handover(progress, is_finished=is_final, versions={"gromacs": log.version or cpt.program})


def _not_checked(run: RunSpec, simulation: Simulation, folder: Path) -> tuple[str, ...]:
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


def _chosen(run: RunSpec, path: Path) -> Cpt:
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
    found = whole_checkpoints(path, "*.cpt")
    return found[0] if found else read_cpt(path / names[0])  # which says what is wrong with it


def _atoms(run: RunSpec, tpr: Path, base: Path) -> int:
    def is_atoms(line: str) -> bool:
        return line.split("=")[0].strip() == "natoms"

    lines = gmx(run, "dump", "-s", str(tpr.resolve()), is_enough=is_atoms, base=base).lines
    found = next((line.partition("=")[2].strip() for line in lines if is_atoms(line)), "")
    if not found.isdecimal():
        raise CheckpointError(f"{run.name}: `gmx dump -s {tpr}` does not say how many atoms it has")
    return int(found)


# --- the results ---


def part_names(cpt: Cpt) -> dict[str, str]:
    """Return the outputs of a checkpoint, with mdrun's name of each; raise CheckpointError if one has no place."""
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


# --- export ---


def export_files(run: RunSpec, base: Path, simulation: Simulation, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Fill the folder; return lines about it."""
    made = simulation.tpr_to_run(folder, checkpoint.passport.progress.done)
    if made.parent.resolve() == folder.resolve():
        made.rename(folder / TPR)
    else:
        shutil.copyfile(made, folder / TPR)
    shutil.copyfile(checkpoint.folder / CPT, folder / CPT)
    line = joinable_line(checkpoint)
    # Also of a simulation that was done: mdrun resumes at the checkpoint, and writes what follows again.
    line[-1] = replace(checkpoint, passport=replace(checkpoint.passport, is_finished=False))
    for piece in counted_pieces(line):
        copy_head(piece.path, folder / piece.path.name, piece.size_bytes)
    inputs = inputs_of(run, base)
    for name, path in inputs.items():
        shutil.copyfile(path, folder / name)
    Others(folder, checkpoint, inputs, are_state=has_plumed(run)).put_back()
    command = _here(mdrun_command(run, folder / TPR, folder / CPT, 1.0, base), folder)
    write_script(folder, run, command, {"OMP_NUM_THREADS": str(threads_per_rank(run))})
    return [
        f"resume.sh starts mdrun from {CPT}; it writes the next part, {STEM}.partNNNN.*, next to those that are there",
        f"the parts meet without overlap: gmx trjcat -f {STEM}.part*.xtc -o {STEM}.xtc -cat joins them",
    ]


def _here(command: list[str], folder: Path) -> list[str]:
    """Return the command without a time limit, and with names in the folder itself."""
    at = command.index("-maxh")
    prefix = f"{folder.resolve()}/"
    return [word.removeprefix(prefix) for word in command[:at] + command[at + 2 :]]
