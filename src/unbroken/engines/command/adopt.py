"""Restart files of a program that ran elsewhere become a run's first checkpoint, with all its outputs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.command.adopt_outputs import TakenOutputs, take_outputs
from unbroken.engines.files.reading import Reading, confirm_check, reading_of, why_not_whole
from unbroken.engines.files.rewritten import restarts_in, whole_lines_bytes, why_incomplete, write_once
from unbroken.engines.files.settings import OutputSetting, Program, SavedBy
from unbroken.engines.files.states import RestartState, complete_states, copied, matching, states_in
from unbroken.engines.foreign import Foreign, Found, compared_inputs, confirm_steady, stamp
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.layout import RunFolder
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import Run
from unbroken.system import fs
from unbroken.system.copying import append_range

# The unit where nothing says how far a program is.
COUNTED = "checkpoints"


def adopted(run: Run, program: Program, base: Path, foreign: Foreign, draft: Path) -> Found:
    """Fill the draft from the folder in which the program ran; CheckpointError says why it cannot be."""
    folder = foreign.path
    if not folder.is_dir():
        raise ConfigError([f"{run.name}: --from: found {folder}, a file; allowed: the folder in which the program ran"])
    if foreign.done is not None:
        raise ConfigError([f"{run.name}: --done: the settings of the run say how to read how far it is; leave it out"])
    if program.finished_file and matching(folder, [program.finished_file]):
        raise CheckpointError(f"{run.name}: {folder}: finished_file {program.finished_file} is there: the run is done")
    confirm_check(run, program)
    same, others = compared_inputs((*program.inputs, *program.templates), base, folder)
    with _tables(run, program, folder, draft) as tables:
        why = f"no complete file in it matches {', '.join(program.files)}"
        for state in _candidates(folder, program):
            try:
                found = _filled(run, program, state, tables, draft)
            except CheckpointError as error:
                why = str(error)
                fs.remove_tree(draft)
                draft.mkdir()
                continue
            taken = _outputs(run, program, base, state, draft, tables) if _is_left(run, found) else TakenOutputs()
            checked, not_checked = (*found.checked, *taken.taken), (*found.not_checked, *taken.not_taken)
            return replace(found, checked=(*checked, *same), not_checked=(*not_checked, *others), copies=taken.copies)
    raise CheckpointError(f"{run.name}: {folder}: {why}; nothing was taken over")


def _is_left(run: Run, found: Found) -> bool:
    """Return False for a run that has reached its goal, which is refused."""
    progress = found.handover.progress
    return run.goal is None or progress.unit == COUNTED or progress.done < run.goal


def _outputs(run: Run, program: Program, base: Path, state: RestartState, draft: Path, tables: Tables) -> TakenOutputs:
    written_ns = max((stamp[2] for stamp in state.stamps.values()), default=0)
    return take_outputs(RunFolder(run.name, base), program, state.folder, written_ns, draft, tables.folder)


# --- the restart files ---


def _filled(run: Run, program: Program, state: RestartState, tables: Tables, draft: Path) -> Found:
    """A state and its records; CheckpointError if one of them is not whole."""
    if not copied(state, draft):
        raise CheckpointError(f"{', '.join(state.files)} changed while copied; stop the program first")
    if why := _why_not_whole(run, program, draft):
        raise CheckpointError(why)
    reading = _reading(run, program, tables.source, draft, state)
    checked = [f"restart files that belong together: {', '.join(state.files)}"]
    not_checked = [] if program.check_command else [_unproved(program)]
    if program.check_command:
        checked.append(f"check_command {' '.join(program.check_command)} found them whole")
    if reading.done is None:
        if program.outputs:
            raise CheckpointError("nobody knows which records of `outputs` belong to the restart files")
        not_checked.append("how far they are: the settings do not say how to read it")
        return Found(Handover(Progress(1, run.goal, COUNTED)), tuple(checked), tuple(not_checked))
    if reading.done <= 0:
        raise CheckpointError(f"its restart files say {reading.done:.10g}: nothing to go on from ({reading.how})")
    checked.append(f"how far they are: {reading.how}")
    if program.outputs:
        checked += tables.checked(program, reading.done)
    progress = Progress(reading.done, run.goal, program.goal_unit)
    return Found(Handover(progress), tuple(checked), tuple(not_checked))


def _candidates(folder: Path, program: Program) -> Iterator[RestartState]:
    """A program that has left, or was killed: where nothing tells which files are complete, the newest ones."""
    if program.saved_by in (SavedBy.MARKER, SavedBy.NEXT) and not program.check_command:
        yield from complete_states(folder, program)
    else:
        yield from states_in(folder, program.files)


def _unproved(program: Program) -> str:
    words = {
        SavedBy.OBSERVED: "whether they are whole: nothing was observed, the program ran elsewhere",
        SavedBy.EXIT: "whether they are whole: only the program's good exit says so (saved_by: exit)",
        SavedBy.RENAME: "whether they are whole: the program is said to rename them when they are (saved_by: rename)",
        SavedBy.MARKER: "whether they are whole: the marker says so (saved_by: marker)",
        SavedBy.NEXT: "whether they are whole: the program had begun the next ones (saved_by: next)",
    }
    return words[program.saved_by]


def _why_not_whole(run: Run, program: Program, draft: Path) -> str:
    """Asked of a copy of the copy: what the user's command writes beside the files is no part of a checkpoint."""
    if not program.check_command:
        return ""
    scratch = _scratch(draft)
    try:
        return why_not_whole(run, program, scratch)
    finally:
        fs.remove_tree(scratch)


def _reading(run: Run, program: Program, folder: Path, draft: Path, state: RestartState) -> Reading:
    if state.number or not program.progress_command:
        return reading_of(run, program, folder, state.number)
    scratch = _scratch(draft)
    try:
        return reading_of(run, program, scratch, state.number)
    except SegmentError as error:
        raise CheckpointError(str(error)) from error
    finally:
        fs.remove_tree(scratch)


def _scratch(draft: Path) -> Path:
    scratch = draft.with_name(fs.unique_name("asked"))
    shutil.copytree(draft, scratch)
    return scratch


# --- what belongs to them ---


@dataclass(frozen=True)
class Tables:
    """Copies of the outputs, each record in them once; `remarks` says of which some were there twice."""

    source: Path
    folder: Path
    remarks: Mapping[str, str]

    def checked(self, program: Program, done: float) -> list[str]:
        """Say what of them is taken; CheckpointError if records up to `done` are missing."""
        for output in program.outputs:
            if why := why_incomplete(self.folder / output.name, output.record, done):
                raise CheckpointError(f"{output.name}: records are missing: {why}")
        return [f"{each.name}: its records up to {done:.10g}{self.remarks[each.name]}" for each in program.outputs]


@contextmanager
def _tables(run: Run, program: Program, folder: Path, draft: Path) -> Iterator[Tables]:
    if missing := [output.name for output in program.outputs if not (folder / output.name).is_file()]:
        found = f"no {missing[0]}, which `outputs` names: the joined results would lack their beginning"
        raise CheckpointError(f"{run.name}: {folder}: has {found}")
    once = draft.with_name(fs.unique_name("once"))
    paths = [folder / output.name for output in program.outputs]
    before = [stamp(path) for path in paths]
    once.mkdir()
    try:
        remarks = {output.name: _copied_once(output, folder, once) for output in program.outputs}
        confirm_steady(paths, before)
        yield Tables(folder, once, remarks)
    finally:
        fs.remove_tree(once)


def _copied_once(output: OutputSetting, folder: Path, once: Path) -> str:
    """Copies an output without what a program wrote again after a restart; what was left out."""
    path, target = folder / output.name, once / output.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as new:
        append_range(path, new, 0, whole_lines_bytes(path))
    restarts = restarts_in(target, output.record)
    if len(restarts) < 2:
        return ""
    whole = target.with_name(fs.unique_name("whole"))
    target.rename(whole)
    left_out = write_once(whole, output.record, restarts, target)
    whole.unlink()
    return f", without {left_out} that stood there twice after {len(restarts) - 1} restarts"
