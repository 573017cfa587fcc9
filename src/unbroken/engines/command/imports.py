"""Import a program's restart files, the records of its tables that belong to them, and all its other files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.base import LAST_ACTION_SECONDS
from unbroken.engines.files.content import OutputFile, described, is_changed_inside
from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.listing import written_after
from unbroken.engines.files.outputs import REWRITTEN, OutputList, bytes_words
from unbroken.engines.files.reading import confirm_check, reading_of, why_not_whole
from unbroken.engines.files.settings import OutputSetting, Program, SavedBy
from unbroken.engines.files.states import RestartState, complete_states, copied, matching, states_in
from unbroken.engines.files.tables import is_written_once, whole_lines_bytes, why_incomplete
from unbroken.engines.files.workspace import SMALL_BYTES
from unbroken.engines.imports import COUNTED, OUTPUT, ImportedFiles, ImportSource, unchanged
from unbroken.errors import CheckpointError, ConfigError, SegmentError
from unbroken.runs.checkpoint import IMPORT_SEGMENT
from unbroken.runs.layout import LOGS, RESULTS
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import RunSpec
from unbroken.system import copying, fs
from unbroken.system.copying import append_range
from unbroken.system.digests import sha256_of

_TOOLS = (".unbroken", ".snakemake", ".git")
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
    tables = _copy_tables(program, folder, draft)
    why = f"no complete file in it matches {', '.join(program.files)}"
    for state in _candidates(folder, program):
        try:
            found = _import_state(run, program, state, tables, draft)
        except (CheckpointError, SegmentError) as error:
            why = str(error)
            fs.remove_tree(draft)
            draft.mkdir()
            continue
        checked, not_checked = _import_outputs(program, base, state, tables, draft)
        not_checked += _differing_inputs(program, base, folder)
        return replace(found, checked=(*found.checked, *checked), not_checked=(*found.not_checked, *not_checked))
    raise CheckpointError(f"{run.name}: {folder}: {why}; nothing was imported")


def _differing_inputs(program: Program, base: Path, folder: Path) -> list[str]:
    there = {name: folder / Path(name).name for name in (*program.inputs, *program.templates)}
    found = [name for name, path in there.items() if path.is_file() and sha256_of(path) != sha256_of(base / name)]
    return [f"input {name}: differs from {there[name]}" for name in found]


# --- restart files ---


def _candidates(folder: Path, program: Program) -> Iterator[RestartState]:
    """Yield the states that may be complete, the furthest first: the program has left, or was killed."""
    if program.saved_by in (SavedBy.MARKER, SavedBy.NEXT) and not program.check_command:
        return complete_states(states_in(folder, program.files), program)
    return iter(states_in(folder, program.files))


def _import_state(run: RunSpec, program: Program, state: RestartState, tables: Path, draft: Path) -> ImportedFiles:
    """Copy a state and the records that belong to it; raise CheckpointError or SegmentError if one is missing."""
    names = ", ".join(state.files)
    if not copied(state, draft):
        raise CheckpointError(f"{names} changed while copied; stop the program first")
    checked, not_checked = [f"restart files that belong together: {names}"], list[str]()
    with _scratch_copy(draft) as scratch:  # what the user's commands write next to the files is no part of them
        if why := why_not_whole(run, program, scratch):
            raise CheckpointError(why)
        by_command = program.progress_command and not state.number
        reading = reading_of(run, program, scratch if by_command else state.folder, state.number)
    if program.check_command:
        checked.append(f"check_command {' '.join(program.check_command)} found them complete")
    else:
        not_checked.append(f"whether they are complete: no check_command says it (saved_by: {program.saved_by.value})")
    if reading.done is None:
        if program.outputs:
            raise CheckpointError("nobody knows which records of `outputs` belong to the restart files")
        not_checked.append("how far they are: the settings do not say how to read it")
        return ImportedFiles(Handover(Progress(1, run.goal, COUNTED)), tuple(checked), tuple(not_checked))
    if reading.done <= 0:
        raise CheckpointError(f"its restart files say {reading.done:.10g}: nothing to resume from ({reading.how})")
    checked.append(f"how far they are: {reading.how}")
    if program.outputs:
        _confirm_tables(program, tables, reading.done)
        checked += [f"{output.name}: its records up to {reading.done:.10g}, each once" for output in program.outputs]
    handover = Handover(Progress(reading.done, run.goal, program.goal_unit))
    return ImportedFiles(handover, tuple(checked), tuple(not_checked))


@contextmanager
def _scratch_copy(draft: Path) -> Iterator[Path]:
    scratch = draft.with_name("asked")
    shutil.copytree(draft, scratch)
    try:
        yield scratch
    finally:
        fs.remove_tree(scratch)


# --- tables ---


def _copy_tables(program: Program, folder: Path, draft: Path) -> Path:
    """Copy the tables, each record once, to a folder next to the draft; raise CheckpointError if one is not there."""
    tables = draft.with_name("tables")
    tables.mkdir()
    for output in program.outputs:
        if not (folder / output.name).is_file():
            what = f"has no {output.name}, which `outputs` names: the joined results would lack their beginning"
            raise CheckpointError(f"{folder}: {what}")
    with unchanged([folder / output.name for output in program.outputs]):
        for output in program.outputs:
            _copy_once(output, folder / output.name, tables / output.name)
    return tables


def _copy_once(output: OutputSetting, path: Path, target: Path) -> None:
    """Copy a table without the records that the program wrote again after it was killed and resumed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = target.with_name(fs.unique_name("whole"))
    with whole.open("wb") as new:
        append_range(path, new, 0, whole_lines_bytes(path))
    if is_written_once(whole, output.record, target):
        whole.unlink()
    else:
        whole.rename(target)


def _confirm_tables(program: Program, tables: Path, done: float) -> None:
    """Raise CheckpointError if a table lacks records up to `done`."""
    for output in program.outputs:
        if why := why_incomplete(tables / output.name, output.record, done):
            raise CheckpointError(f"{output.name}: records are missing: {why}")


# --- all other files ---


def _import_outputs(
    program: Program, base: Path, state: RestartState, tables: Path, draft: Path
) -> tuple[list[str], list[str]]:
    """Put tables and all other files into the run's output; return what was taken, and what was not or is in doubt.

    Raise CheckpointError if a file changes while it is copied.
    """
    folder, kinds = state.folder, FileKinds(program)
    found = [name for name in _names(folder, base) if kinds.is_output(name) and not kinds.is_table(name)]
    names = [name for name in found if (folder / name).is_file() and not (folder / name).is_symlink()]
    written_ns = max(stamp[2] for stamp in state.stamps.values())
    listed = OutputList()
    with unchanged([folder / name for name in names]):
        entries = {name: _copy_output(folder, name, draft, listed.algorithm, written_ns) for name in names}
    late = [name for name in names if entries[name].is_late]
    doubts = tuple(written_after(name) for name in late if entries[name].is_rewritten)
    size = bytes_words(sum(entry.size_bytes for entry in entries.values()))
    entries |= {each.name: _put_table(tables, each.name, draft, listed.algorithm) for each in program.outputs}
    if entries:
        replace(listed, files=entries, doubts=doubts).write(draft)
    dropped = [name for name in _names(folder, base) if kinds.is_dropped(name) and not kinds.is_state(name)]
    return (
        _line(f"other files, {size}", names),
        [
            *_line("which part was written after the restart files", late),
            *_line("not imported, links and special files", sorted(set(found) - set(names))),
            *_line("not imported, as `discard` says", dropped),
        ],
    )


def _put_table(tables: Path, name: str, draft: Path, algorithm: str) -> OutputFile:
    """Move the copy of a table to the run's output and return its entry: the program begins it again."""
    target = draft.with_name(OUTPUT) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(tables / name, target)
    size = target.stat().st_size
    return replace(described(target, size, size, IMPORT_SEGMENT, algorithm), is_continued=False)


def _names(folder: Path, base: Path) -> list[str]:
    """Return the names of all files and links, but not what belongs to unbroken, Snakemake and git."""
    ours = {(base / each).resolve() for each in (RESULTS, LOGS)}
    found = list[str]()
    for parent, folders, names in os.walk(folder):
        links = [each for each in folders if os.path.islink(os.path.join(parent, each))]
        kept = (each for each in folders if each not in (*links, *_TOOLS))
        folders[:] = [each for each in kept if (Path(parent) / each).resolve() not in ours]
        found += [(Path(parent) / each).relative_to(folder).as_posix() for each in (*names, *links)]
    return sorted(found)


def _copy_output(folder: Path, name: str, draft: Path, algorithm: str, written_ns: int) -> OutputFile:
    """Copy an output and return its entry; a format that is changed inside while it grows goes into the checkpoint."""
    is_rewritten = is_changed_inside(folder / name)
    target = (draft / REWRITTEN if is_rewritten else draft.with_name(OUTPUT)) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    copying.copy_file(folder / name, target)
    size = target.stat().st_size
    entry = described(target, size, size, IMPORT_SEGMENT, algorithm)
    is_late = entry.mtime_ns > written_ns + LAST_ACTION_SECONDS * 1e9
    # A large file that the program may begin again is kept as a piece.
    has_grown = is_rewritten or size > SMALL_BYTES
    return replace(entry, is_rewritten=is_rewritten, has_grown=has_grown, is_late=is_late)


def _line(what: str, names: list[str]) -> list[str]:
    """Return one line that names some of the files; none if there are none."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return [f"{what}: {', '.join(names[:_SHOWN])}{more}"] if names else []
