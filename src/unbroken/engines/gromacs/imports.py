"""Imports what mdrun left elsewhere as a run's first checkpoint, with all its results from the first step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from unbroken.engines.gromacs.command import CPT, has_plumed
from unbroken.engines.gromacs.cpt import Cpt, read_cpt, verify_outputs
from unbroken.engines.gromacs.cut import bytes_before
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.outcome import MdrunEnd, handover
from unbroken.engines.gromacs.outputs import MDRUN_FILES, part_name
from unbroken.engines.gromacs.parts import write_offsets
from unbroken.engines.gromacs.simulation import Simulation
from unbroken.engines.gromacs.tool import gmx
from unbroken.engines.gromacs.tpr import Tpr
from unbroken.engines.imports import ImportedFiles, ImportSource, unchanged
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.run import Run
from unbroken.system.copying import copy_head
from unbroken.system.digests import sha256_of

# state.cpt, state_prev.cpt, state_step1200.cpt: one simulation.
_CPT_NAME = re.compile(r"(?P<stem>.+?)(_prev|_step\d+)?\.cpt")
_PART = re.compile(r"\.part(?P<number>\d{4,})")
# What mdrun calls its files where no -deffnm names them.
_DEFAULTS = {file.default: file.kind for file in MDRUN_FILES}


@dataclass(frozen=True)
class Output:
    """An output file of mdrun that ran elsewhere: what it is joined with, of which part, how many bytes count."""

    path: Path
    kind: str
    part: int
    size_bytes: int

    @property
    def name(self) -> str:
        """Return what mdrun calls it in a run."""
        return part_name(self.kind, self.part)


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
    folder = cpt.path.parent
    verify_outputs(cpt, folder)
    outputs = _cut(outputs_of(cpt, folder), tpr)
    log = Log(max((each for each in outputs if each.kind == ".log"), key=lambda each: each.part).path)
    log.read()
    parts = draft / PARTS
    parts.mkdir()
    with unchanged([cpt.path, *(output.path for output in outputs)]):
        for output in outputs:
            copy_head(output.path, parts / output.name, output.size_bytes)
        copy_head(cpt.path, draft / CPT, cpt.path.stat().st_size)
    write_offsets(parts, {output.name: output.size_bytes for output in outputs})
    checked = (
        f"{cpt.path.name}: complete, step {cpt.step}, {cpt.atoms} atoms as the tpr",
        f"the outputs of its part {cpt.part} are those that it was written with (size, md5 of the last megabyte)",
        f"the results begin at step {tpr.first_step} and have no hole, by what the logs of mdrun say",
    )
    found = handover(MdrunEnd(cpt, is_final=False), tpr, goal, log, simulation.is_exact)
    return ImportedFiles(found, checked, _not_checked(run, simulation, folder))


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


def outputs_of(cpt: Cpt, folder: Path) -> list[Output]:
    """Return all output files up to the checkpoint; CheckpointError if one has no place in the results."""
    logs = [_parted(position.name)[0] for position in cpt.outputs if position.name.endswith(".log")]
    if not logs:
        raise CheckpointError(f"{cpt.path}: names no log among its outputs")
    found = []
    for position in cpt.outputs:
        plain, number = _parted(position.name)
        kind = _kind(plain, logs[0].removesuffix(".log"), cpt)
        if number is not None:
            found += _earlier(folder, plain, kind, number)
        found.append(Output(folder / position.name, kind, number or cpt.part, position.size_bytes))
    return found


def _kind(plain: str, stem: str, cpt: Cpt) -> str:
    """Return the end of the name that files which are joined have in common."""
    rest = plain.removeprefix(stem)
    if rest != plain and rest[:1] in "._":
        return rest
    if plain in _DEFAULTS:
        return _DEFAULTS[plain]
    ending = Path(plain).suffix
    alike = [position.name for position in cpt.outputs if Path(position.name).suffix == ending]
    if len(alike) == 1 and ending in (".xtc", ".trr", ".edr"):
        return ending
    raise CheckpointError(f"{cpt.path}: names the output {plain}, and nobody knows what to join it with")


def _parted(name: str) -> tuple[str, int | None]:
    """Return `md.part0002.xtc` as `md.xtc` and 2."""
    match = _PART.search(name)
    return (name, None) if match is None else (name[: match.start()] + name[match.end() :], int(match["number"]))


def _earlier(folder: Path, plain: str, kind: str, number: int) -> list[Output]:
    """Return the files of the parts before: one that mdrun had appended to, then those with a number of their own."""
    found = []
    for path in folder.iterdir():
        name, part = _parted(path.name)
        if name == plain and path.is_file() and (part or 0) < number:
            found.append(Output(path, kind, part or 0, path.stat().st_size))
    found.sort(key=lambda output: output.part)
    if found and found[0].part == 0:  # which has the numbers of all parts up to the first one that was not appended
        following = [output.part for output in found[1:]] + [number]
        found[0] = replace(found[0], part=following[0] - 1)
    return found


def _cut(outputs: Sequence[Output], tpr: Tpr) -> list[Output]:
    """Return the outputs as far as they count; CheckpointError if the results have a hole.

    By what their logs say, the first part begins at the beginning, and each other one at a checkpoint of the one
    before, up to which that one counts.  Of the last part the checkpoint says it.
    """
    logs = sorted((output for output in outputs if output.kind == ".log"), key=lambda output: output.part)
    begun = _first_step(logs[0].path)
    if begun is not None and begun != tpr.first_step:
        what = f"begins at step {begun}, and the parts before are not there: put them there"
        raise CheckpointError(f"{logs[0].path}: {what}")
    ends: dict[int, int] = {}  # the step of each part but the last at which the next one goes on
    for before, log in pairwise(logs):
        step = _first_step(log.path)
        if step is None:
            raise CheckpointError(f"{log.path}: does not say from which step of the part before it goes on")
        ends[before.part] = step
    for log in logs:
        there = {output.kind for output in outputs if output.part == log.part}
        if missing := sorted({output.kind for output in outputs} - there):
            raise CheckpointError(f"{log.path}: part {log.part} has no file for {', '.join(missing)}")
    return [_counted(output, ends[output.part], tpr) if output.part in ends else output for output in outputs]


def _counted(output: Output, end: int, tpr: Tpr) -> Output:
    return replace(output, size_bytes=bytes_before(output.path, output.kind, end, tpr.time_ps(end), tpr.dt_ps))


def _first_step(log: Path) -> int | None:
    """Return the step of the checkpoint with which a log begins; None if it begins without one."""
    is_reading = False
    with log.open("rb") as file:
        for raw in file:
            line = raw.decode(errors="replace").strip()
            if line.startswith("Reading checkpoint file"):
                is_reading = True
            elif is_reading and line.startswith("step:"):
                return int(line.split()[1])
            elif line.startswith("Started mdrun on rank 0"):
                return None
    return None
