"""Import a program's restart files, the records of its tables that belong to them, and all its other files."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.content import is_changed_inside
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import ProgramEnd, written_after
from unbroken.engines.files.outputs import OutputList, bytes_words
from unbroken.engines.files.reading import Reading, confirm_check, reading_of, why_not_whole
from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.states import RestartState, complete_states, copied, matching, newest_ns, states_in
from unbroken.engines.files.supervisor import LAST_ACTION_SECONDS
from unbroken.engines.files.tables import copy_once, why_incomplete
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import SMALL_BYTES, Workspace
from unbroken.engines.imports import COUNTED, OUTPUT, ImportedFiles, ImportSource, unchanged
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.store.checkpoint import IMPORT_SEGMENT
from unbroken.store.layout import LOGS, RESULTS
from unbroken.store.progress import Handover, Progress
from unbroken.store.run import RunSpec
from unbroken.system import copying, fs
from unbroken.system.digests import sha256_of

_TOOLS = {".unbroken", ".snakemake", ".git"}
_SHOWN = 5


def import_files(run: RunSpec, program: Program, base: Path, source: ImportSource, draft: Path) -> ImportedFiles:
    """Fill the draft from the folder in which the program ran; raise CheckpointError with what does not fit."""
    folder = source.path
    source.refuse_done(run)
    if not folder.is_dir():
        raise ConfigError([f"{run.name}: --from: found {folder}, a file; allowed: the folder in which the program ran"])
    if program.finished_file and matching(folder, [program.finished_file]):
        raise CheckpointError(f"{run.name}: {folder}: finished_file {program.finished_file} is there: the run is done")
    confirm_check(run, program)
    names = _names(folder, base)
    _copy_tables(program, folder, draft)
    why = f"no complete file in it matches {', '.join(program.files)}"
    for state in _candidates(folder, program):
        try:
            found = _import_state(run, program, state, draft)
        except (CheckpointError, SegmentError) as error:
            why = str(error)
            fs.remove_tree(draft)
            draft.mkdir()
            continue
        checked, not_checked = _import_outputs(program, state, names, draft)
        not_checked += _differing_inputs(program, base, folder)
        return replace(found, checked=(*found.checked, *checked), not_checked=(*found.not_checked, *not_checked))
    raise CheckpointError(f"{run.name}: {folder}: {why}; nothing was imported")


def _names(folder: Path, base: Path) -> list[str]:
    """Return the names of all files and links, but not what belongs to unbroken, Snakemake and git."""
    ours = [(base / each).resolve() for each in (RESULTS, LOGS)]
    root, found = folder.resolve(), (name for name in fs.tree_files(folder) if not _TOOLS.intersection(name.parts))
    return [name.as_posix() for name in found if not any((root / name).is_relative_to(each) for each in ours)]


# --- restart files ---


def _candidates(folder: Path, program: Program) -> Iterator[RestartState]:
    """Yield the states that may be complete, the furthest first: the program has left, or was killed."""
    if program.saved_by in (SavedBy.MARKER, SavedBy.NEXT) and not program.check_command:
        return complete_states(states_in(folder, program.files), program)
    return iter(states_in(folder, program.files))


def _import_state(run: RunSpec, program: Program, state: RestartState, draft: Path) -> ImportedFiles:
    """Copy a state; raise CheckpointError or SegmentError if it is torn, or lacks records that belong to it."""
    names = ", ".join(state.files)
    if not copied(state, draft):
        raise CheckpointError(f"{names} changed while copied; stop the program first")
    checked, not_checked = [f"restart files that belong together: {names}"], list[str]()
    if program.check_command:
        checked.append(f"check_command {' '.join(program.check_command)} found them complete")
    else:
        not_checked.append(f"whether they are complete: no check_command says it (saved_by: {program.saved_by.value})")
    reading = _checked_reading(run, program, state, draft)
    if reading.done is None:
        if program.outputs:
            raise CheckpointError("nobody knows which records of `outputs` belong to the restart files")
        not_checked.append("how far they are: the settings do not say how to read it")
        return ImportedFiles(Handover(Progress(1, run.goal, COUNTED)), tuple(checked), tuple(not_checked))
    if reading.done <= 0:
        raise CheckpointError(f"its restart files say {reading.done:.10g}: nothing to resume from ({reading.how})")
    checked.append(f"how far they are: {reading.how}")
    for output in program.outputs:
        if why := why_incomplete(draft.with_name(OUTPUT) / output.name, output.record, reading.done):
            raise CheckpointError(f"{output.name}: records are missing: {why}")
        checked.append(f"{output.name}: its records up to {reading.done:.10g}, each once")
    handover = Handover(Progress(reading.done, run.goal, program.goal_unit))
    return ImportedFiles(handover, tuple(checked), tuple(not_checked))


def _checked_reading(run: RunSpec, program: Program, state: RestartState, draft: Path) -> Reading:
    """Return how far a state is, once the user's commands accept it: what they write next to it is no part of it."""
    scratch = draft.with_name("asked")
    shutil.copytree(draft, scratch)
    try:
        if why := why_not_whole(run, program, scratch):
            raise CheckpointError(why)
        return reading_of(run, program, scratch if program.progress_command else state.folder, state.number)
    finally:
        fs.remove_tree(scratch)


# --- what else it wrote ---


def _copy_tables(program: Program, folder: Path, draft: Path) -> None:
    """Copy the tables, each record once, to the run's output; raise CheckpointError if one is not there."""
    paths = [folder / output.name for output in program.outputs]
    if missing := [path for path in paths if not path.is_file()]:
        what = f"has no {missing[0].name}, which `outputs` names: the joined results would lack their beginning"
        raise CheckpointError(f"{folder}: {what}")
    with unchanged(paths):
        for output in program.outputs:
            copy_once(folder / output.name, output.record, draft.with_name(OUTPUT) / output.name)


def _import_outputs(
    program: Program, state: RestartState, names: Sequence[str], draft: Path
) -> tuple[list[str], list[str]]:
    """Copy all other files to the run's output and list them; return what was taken, and what was not or is in doubt.

    Raise CheckpointError if a file changes while it is copied.
    """
    folder, kinds, output = state.folder, FileKinds(program), draft.with_name(OUTPUT)
    found = [name for name in names if kinds.is_output(name) and not kinds.is_table(name)]
    plain = [name for name in found if (folder / name).is_file() and not (folder / name).is_symlink()]
    with unchanged([folder / name for name in plain]):
        for name in plain:
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            copying.copy_file(folder / name, output / name)
    dropped = [name for name in names if kinds.is_dropped(name) and not kinds.is_state(name)]
    late_ns = newest_ns(state.stamps) + LAST_ACTION_SECONDS * 1e9
    late = [name for name in plain if (output / name).stat().st_mtime_ns > late_ns]
    size = bytes_words(sum((output / name).stat().st_size for name in plain))
    if plain or program.outputs:
        _list_outputs(kinds, draft, late)
    return (
        _line(f"other files, {size}", plain),
        [
            *_line("which part was written after the restart files", late),
            *_line("not imported, links and special files", sorted(set(found) - set(plain))),
            *_line("not imported, as `discard` says", dropped),
        ],
    )


def _list_outputs(kinds: FileKinds, draft: Path, late: Collection[str]) -> None:
    """List what lies in the run's output; the `late` files were written after the restart files."""
    output = draft.with_name(OUTPUT)
    tracker = OutputTracker(Workspace(draft.parent, output), IMPORT_SEGMENT, 0, OutputList(), kinds)
    # A large file that the program may begin again is kept as a piece.
    grown = [
        name for name, path in tracker.files().items() if path.stat().st_size > SMALL_BYTES or is_changed_inside(path)
    ]
    tracker.list_into(draft, None, grown, ProgramEnd(is_finished=True))
    files = {name: replace(entry, is_late=name in late) for name, entry in tracker.listed.files.items()}
    rewritten = [name for name, entry in files.items() if entry.is_rewritten]
    for name in rewritten:
        (output / name).unlink()
    doubts = tuple(written_after(name) for name in rewritten if name in late)
    replace(tracker.listed, files=files, doubts=doubts).write(draft)


def _differing_inputs(program: Program, base: Path, folder: Path) -> list[str]:
    there = {name: folder / Path(name).name for name in (*program.inputs, *program.templates)}
    found = [name for name, path in there.items() if path.is_file() and sha256_of(path) != sha256_of(base / name)]
    return [f"input {name}: differs from {there[name]}" for name in found]


def _line(what: str, names: Sequence[str]) -> list[str]:
    """Return one line that names some of the files; none if there are none."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return [f"{what}: {', '.join(names[:_SHOWN])}{more}"] if names else []
