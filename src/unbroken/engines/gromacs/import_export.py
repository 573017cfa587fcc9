"""Find what `unbroken init` can start from, import what a plain mdrun left, and export a folder in which it resumes."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.exports import write_script
from unbroken.engines.gromacs.command import has_plumed, inputs_of, mdrun_command, threads_per_rank
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.join import counted_pieces, joinable_line
from unbroken.engines.gromacs.mdrun_line import CPT, FILES, STEM
from unbroken.engines.gromacs.others import Others
from unbroken.engines.gromacs.pieces import whole_checkpoints, write_offsets
from unbroken.engines.gromacs.tpr import TPR, Simulation
from unbroken.engines.imports import ImportedFiles, ImportSource, unchanged
from unbroken.engines.starter import Starter, as_yaml, files_like, given_file, run_name
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.store.progress import Handover, Metric, Progress
from unbroken.store.run import RunSpec
from unbroken.system.copying import copy_head
from unbroken.system.digests import sha256_of

# state.cpt, state_prev.cpt, state_step1200.cpt: one simulation.
_CPT_NAME = re.compile(r"(?P<stem>.+?)(_prev|_step\d+)?\.cpt")
# What mdrun calls its files where no -deffnm names them.
_DEFAULTS = {file.default: file.kind for file in FILES.values()}
# The names that grompp and most tutorials give to what is to be run.
_USUAL = ("topol.tpr", "md.tpr", "prod.tpr", "production.tpr")
_GOAL = "# until_ps: 100000  # farther than the tpr says; raise it later and start again"


# --- init ---


def starters(folder: Path, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
    """Yield a run for the tpr that is named or has a usual name, else for each tpr, else for mdp, gro and top."""
    given = given_file("gromacs", folder, words) if is_named or (words[:1] and words[0].endswith(".tpr")) else None
    tprs = [given] if given else [] if words else files_like(folder, "*.tpr")
    usual = [path for path in tprs if path.name in _USUAL]
    for path in usual[:1] or tprs:
        yield _starter(folder, path, [f"tpr: {as_yaml(str(path.relative_to(folder)))}"])
    if tprs or words:
        return
    found = [files_like(folder, pattern) for pattern in ("*.mdp", "*.gro", "*.top")]
    if all(len(paths) == 1 for paths in found):
        keys = zip(("mdp", "structure", "topology"), (path for (path,) in found), strict=True)
        yield _starter(folder, found[0][0], [f"{key}: {as_yaml(path.name)}" for key, path in keys])
    elif is_named:
        raise ConfigError(
            [f"init gromacs: no tpr, and not one mdp, gro and top each, in {folder.resolve()}; type gmx grompp"]
        )


def _starter(folder: Path, source: Path, settings: Sequence[str]) -> Starter:
    name, todo = run_name(source.stem, "md"), list[str]()
    if not shutil.which("gmx"):
        todo.append("gmx is not on the PATH; name its module below the run: `modules: [gromacs]`")
    # As `-deffnm` or mdrun itself calls it.
    begun = next((path for stem in (source.stem, "state") if (path := folder / f"{stem}.cpt").is_file()), None)
    if begun is not None:
        at = "a simulation has begun"
        try:
            at += f", and is at step {read_cpt(begun).step}"
        except CheckpointError:  # `import` looks for the one before, and says what is wrong with this one
            begun = folder
        words = ["unbroken", "import", name, "--from", str(begun), *(["-d", str(folder)] if folder != Path() else [])]
        todo.append(f"{begun}: {at}; to continue from there, stop mdrun and type this first: {shlex.join(words)}")
    return Starter(name, source.name, (*settings, _GOAL), todo=tuple(todo))


# --- import ---


def import_files(run: RunSpec, simulation: Simulation, source: ImportSource, draft: Path) -> ImportedFiles:
    """Fill the draft from mdrun's folder, or one checkpoint in it; raise CheckpointError with what does not fit."""
    source.refuse_done(run)
    cpt = _chosen(run, source.path)
    folder, parts = cpt.path.parent, draft / PARTS
    _refuse_other_system(run, simulation, cpt)
    verify_outputs(cpt, folder)
    names = part_names(cpt)
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
    found = handover(cpt, simulation, is_final=False, is_exact=simulation.is_exact)
    return ImportedFiles(found, checked, _not_checked(run, simulation, folder))


def handover(cpt: Cpt, simulation: Simulation, *, is_final: bool, is_exact: bool) -> Handover:
    """Return what the manifest is to say of a checkpoint of mdrun."""
    tpr = simulation.tpr
    metrics: dict[str, Metric] = {"time_ps": round(cpt.time_ps, 6), "part": cpt.part, "is_exact": is_exact}
    if tpr.last_step is not None:
        metrics["extended_ps"] = round(cpt.time_ps - tpr.time_ps(tpr.last_step), 6)
    progress = Progress(cpt.step, simulation.end_step, "steps", metrics)
    return Handover(progress, is_finished=is_final, versions={"gromacs": cpt.program})


def _not_checked(run: RunSpec, simulation: Simulation, folder: Path) -> tuple[str, ...]:
    """Return what GROMACS does not note, and which files are not imported."""
    own = sha256_of(simulation.path)
    lines = ["whether mdrun ran with the same number of ranks and threads, and -reprod"]
    if not any(sha256_of(path) == own for path in folder.glob("*.tpr")):
        lines.append("whether the run's tpr is what the checkpoint was made with: there is no copy of it")
    if simulation.tpr.rotates or has_plumed(run):
        what = "tables of enforced rotation, and files of PLUMED: they are not imported"
        lines.append(f"{what}; name those with which PLUMED continues in `inputs`")
    return tuple(lines)


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


def _refuse_other_system(run: RunSpec, simulation: Simulation, cpt: Cpt) -> None:
    """Raise CheckpointError if the checkpoint has another number of atoms than the tpr, or is before its first step."""
    try:
        simulation.remarks()
        path, tpr = simulation.path, simulation.tpr
    except SegmentError as error:
        raise CheckpointError(str(error)) from error
    if cpt.atoms != tpr.atoms:
        raise CheckpointError(f"{run.name}: {cpt.path} has {cpt.atoms} atoms, {path} has {tpr.atoms}: another system")
    if cpt.step < tpr.first_step:
        raise CheckpointError(f"{run.name}: {cpt.path} is at step {cpt.step}, {path} begins at {tpr.first_step}")


def part_names(cpt: Cpt) -> dict[str, str]:
    """Return the outputs of a checkpoint, with the engine's name of each; raise CheckpointError if one has no place."""
    found = [output.name for output in cpt.outputs]
    if part := next((name for name in found if ".part" in name), None):
        what = "is a part of an mdrun with -noappend; only outputs to which mdrun appends can be imported"
        raise CheckpointError(f"{cpt.path.parent / part}: {what}")
    stem = next((name.removesuffix(".log") for name in found if name.endswith(".log")), None)
    if stem is None:
        raise CheckpointError(f"{cpt.path}: names no log among its outputs")
    names = {}
    for name in found:
        rest = name.removeprefix(stem)
        # By `-deffnm`, or without it.
        kind = rest if rest != name and rest[:1] in "._" else _DEFAULTS.get(name)
        if kind is None:
            raise CheckpointError(f"{cpt.path}: names the output {name}, and nobody knows what to join it with")
        begin, _, ending = kind.rpartition(".")
        names[name] = f"{STEM}{begin}.part{cpt.part:04d}.{ending}"
    return names


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
    command = mdrun_command(run, folder / TPR, folder / CPT, 1.0, base)
    at, prefix = command.index("-maxh"), f"{folder.resolve()}/"
    # Without a time limit, and with names in the folder itself.
    here = [word.removeprefix(prefix) for word in command[:at] + command[at + 2 :]]
    write_script(folder, run, here, {"OMP_NUM_THREADS": str(threads_per_rank(run))})
    return [
        f"resume.sh starts mdrun from {CPT}; it writes the next part, {STEM}.partNNNN.*, next to those that are there",
        f"the parts meet without overlap: gmx trjcat -f {STEM}.part*.xtc -o {STEM}.xtc -cat joins them",
    ]
