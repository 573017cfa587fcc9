"""What mdrun left elsewhere becomes a run's first checkpoint, with all its results from the first step on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from unbroken.engines.foreign import Foreign, Found, copy_steady, copy_steady_head
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
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.run import Run
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
        """As our own mdrun would have called it."""
        return part_name(self.kind, self.part)


def adopted(run: Run, simulation: Simulation, foreign: Foreign, draft: Path) -> Found:
    """Fills the draft from mdrun's folder, or from one checkpoint in it; CheckpointError says why it cannot be."""
    if foreign.done is not None:
        raise ConfigError([f"{run.name}: --done: GROMACS's checkpoint says how far it is; leave it out"])
    try:
        simulation.remarks()
        tpr, goal = simulation.known_tpr, simulation.end_step
        atoms = _atoms(run, simulation.path, simulation.base)
    except SegmentError as error:
        raise CheckpointError(str(error)) from error
    cpt = _chosen(run, foreign.path)
    if cpt.atoms != atoms:
        raise CheckpointError(
            f"{run.name}: {cpt.path} has {cpt.atoms} atoms, {simulation.path} has {atoms}: another system"
        )
    if cpt.step < tpr.first_step:
        raise CheckpointError(
            f"{run.name}: {cpt.path} is at step {cpt.step}, {simulation.path} begins at {tpr.first_step}"
        )
    folder = cpt.path.parent
    verify_outputs(cpt, folder)
    outputs = outputs_of(cpt, folder)
    outputs, no_hole = _cut(run, outputs, cpt, tpr)
    log = _log(outputs)
    checked = [
        f"{cpt.path.name}: whole, step {cpt.step}, {cpt.atoms} atoms as the tpr",
        f"the outputs of its part {cpt.part} are those that it was written with (size, md5 of the last megabyte)",
        no_hole,
    ]
    not_checked = ["whether what ran was given the same number of ranks and threads, and -reprod"]
    said, is_same = _tpr_line(simulation.path, folder)
    (checked if is_same else not_checked).append(said)
    if tpr.slab_steps:
        not_checked.append("tables of enforced rotation that no checkpoint counts (-ra, -rs, -rt): they are not taken")
    if has_plumed(run):
        not_checked.append("PLUMED's own files: they are not taken; name those that it goes on from in `inputs`")
    parts = draft / PARTS
    parts.mkdir()
    for output in outputs:
        copy_steady_head(output.path, parts / output.name, output.size_bytes)
    write_offsets(parts, {output.name: output.size_bytes for output in outputs})
    copy_steady([(cpt.path, draft / CPT)])
    if (read_cpt(draft / CPT).step, read_cpt(draft / CPT).part) != (cpt.step, cpt.part):
        raise CheckpointError(f"{cpt.path}: changed while it was copied; its mdrun is alive: stop it first")
    found = handover(MdrunEnd(cpt, is_final=False), tpr, goal, log, simulation.is_exact)
    return Found(found, tuple(checked), tuple(not_checked))


# --- the checkpoint ---


def _chosen(run: Run, path: Path) -> Cpt:
    """The newest whole one of the one simulation in a folder, or the one that is named."""
    if path.is_file():
        return read_cpt(path)
    stems = {match["stem"] for each in path.glob("*.cpt") if (match := _CPT_NAME.fullmatch(each.name))}
    if not stems:
        raise CheckpointError(
            f"{run.name}: {path}: no .cpt in it; name the folder in which mdrun ran, or its checkpoint"
        )
    if len(stems) > 1:
        names = ", ".join(f"{stem}.cpt" for stem in sorted(stems))
        first = path / f"{min(stems)}.cpt"
        raise ConfigError([f"{run.name}: {path}: several simulations, {names}; type for example --from {first}"])
    found, why = [], ""
    for each in sorted(path.glob("*.cpt")):
        try:
            found.append(read_cpt(each))
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
        name, mark, value = line.partition("=")
        if mark and name.strip() == "natoms":
            return int(value)
    raise CheckpointError(f"{run.name}: `gmx dump -s {tpr}` does not say how many atoms it has")


def _tpr_line(tpr: Path, folder: Path) -> tuple[str, bool]:
    there = sorted(folder.glob("*.tpr"))
    same = [path.name for path in there if sha256_of(path) == sha256_of(tpr)]
    if same:
        return f"the run's tpr is {same[0]} of that folder", True
    what = f"{', '.join(path.name for path in there)} differ from it" if there else "there is none to compare it with"
    return f"whether the run's tpr is what the checkpoint was made with: {what}", False


# --- the results ---


def outputs_of(cpt: Cpt, folder: Path) -> list[Output]:
    """All output files up to the checkpoint, oldest part first; CheckpointError if one has no place in the results."""
    stem = _stem(cpt)
    found = []
    for position in cpt.outputs:
        plain, number = _parted(position.name)
        kind = _kind(plain, stem, cpt)
        if number is not None:
            found += _earlier(folder, plain, kind, number)
        found.append(Output(folder / position.name, kind, number or cpt.part, position.size_bytes))
    return found


def _stem(cpt: Cpt) -> str:
    logs = [_parted(position.name)[0] for position in cpt.outputs if position.name.endswith(".log")]
    if not logs:
        raise CheckpointError(f"{cpt.path}: names no log among its outputs")
    return logs[0].removesuffix(".log")


def _kind(plain: str, stem: str, cpt: Cpt) -> str:
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
    """`md.part0002.xtc` as `md.xtc` and 2."""
    match = _PART.search(name)
    return (name, None) if match is None else (name[: match.start()] + name[match.end() :], int(match["number"]))


def _earlier(folder: Path, plain: str, kind: str, number: int) -> list[Output]:
    """The files of the parts before: one that mdrun had appended to, then those with a number of their own."""
    found = []
    for path in folder.iterdir():
        name, part = _parted(path.name)
        if name == plain and path.is_file() and (part or 0) < number:
            found.append(Output(path, kind, part or 0, path.stat().st_size))
    found.sort(key=lambda output: output.part)
    if found and found[0].part == 0:  # which has the numbers of all parts up to the first one that was not appended
        following = [output.part for output in found[1:]] + [number]
        found[0] = Output(found[0].path, kind, following[0] - 1, found[0].size_bytes)
    return found


def _log(outputs: Sequence[Output]) -> Log:
    log = Log(max((output for output in outputs if output.kind == ".log"), key=lambda output: output.part).path)
    log.read()
    return log


def _cut(run: Run, outputs: Sequence[Output], cpt: Cpt, tpr: Tpr) -> tuple[list[Output], str]:
    """The outputs as far as they count, and why they have no hole.

    By what their logs say the first part begins at the beginning, and each other one at a checkpoint of the one before,
    up to which that one counts.
    """
    logs = sorted((output for output in outputs if output.kind == ".log"), key=lambda output: output.part)
    kinds = {output.kind for output in outputs}
    ends: dict[int, int] = {}  # the step of each part but the last at which the next one goes on
    for before, log in pairwise([None, *logs]):
        if log is None:
            continue
        begun = _first_step(log.path)
        if before is None and begun is not None and begun != tpr.first_step:
            raise _broken(run, log, f"begins at step {begun}, and the parts before are not there: put them there")
        if before is not None:
            if begun is None:
                raise _broken(run, log, "does not say from which step of the part before it goes on")
            ends[before.part] = begun
        if missing := sorted(kinds - {output.kind for output in outputs if output.part == log.part}):
            raise _broken(run, log, f"part {log.part} has no file for {', '.join(missing)}")
    counted = [_counted(output, ends.get(output.part), tpr) for output in outputs]
    so_far = f"the results begin at step {tpr.first_step} and have no hole up to step {cpt.step}"
    return counted, f"{so_far}, by what {len(logs)} logs of mdrun say"


def _counted(output: Output, end: int | None, tpr: Tpr) -> Output:
    """Of the last part the checkpoint says it."""
    if end is None:
        return output
    size = bytes_before(output.path, output.kind, end, tpr.time_ps(end), tpr.dt_ps)
    return replace(output, size_bytes=size)


def _broken(run: Run, log: Output, what: str) -> CheckpointError:
    return CheckpointError(f"{run.name}: {log.path}: {what}")


def _first_step(log: Path) -> int | None:
    """The step of the checkpoint with which a log begins; None if it begins without one."""
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
