"""Takes over the output files of a program that ran elsewhere: copies of all that lies beside its restart files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.command.export import SO_FAR
from unbroken.engines.export import SCRIPT
from unbroken.engines.files.base import FileKinds
from unbroken.engines.files.content import OutputFile, described, is_changed_inside
from unbroken.engines.files.listing import written_after
from unbroken.engines.files.outputs import REWRITTEN, OutputList, bytes_words
from unbroken.engines.files.settings import Program
from unbroken.engines.files.workspace import SMALL_BYTES
from unbroken.engines.foreign import DRAFT, confirm_steady, stamp
from unbroken.runs.adopted import SEGMENT
from unbroken.runs.layout import LOGS, RESULTS, RunFolder
from unbroken.system import fs

# A program that saves as its last action closes its outputs so long after it.
LAST_ACTION_SECONDS = 2.0
_TOOLS = (".unbroken", ".snakemake", ".git")
_EXPORT_NOTE = "EXPORT.txt"
_SHOWN = 5


@dataclass(frozen=True)
class TakenOutputs:
    """Lines for the manifest, what was taken and what was not or is in doubt, and the folder of the copies."""

    taken: tuple[str, ...] = ()
    not_taken: tuple[str, ...] = ()
    copies: Path | None = None


def take_outputs(
    places: RunFolder, program: Program, folder: Path, state_ns: int, draft: Path, tables: Path
) -> TakenOutputs:
    """Copy all outputs in `folder` for the run, list them in the draft, and say what was not taken.

    `state_ns` is when the restart files were written; `tables` has copies of the tables, with each record once.
    CheckpointError if a file changes while it is copied.
    """
    files, links, left = _sorted_out(places, program, folder)
    if not files and not links:
        return TakenOutputs(not_taken=_not_taken(left))
    before = [stamp(folder / name) for name in files]
    copies = places.root / fs.unique_name(DRAFT)
    copies.mkdir()
    listed = OutputList(links=links)
    in_tables = [output.name for output in program.outputs]
    others = [name for name in files if name not in in_tables]
    entries = {name: _taken(folder / name, name, copies, draft, listed.algorithm, state_ns) for name in others}
    for name in in_tables:
        fs.copy_file(tables / name, copies / name)
        size = (copies / name).stat().st_size
        entries[name] = replace(described(copies / name, size, size, SEGMENT, listed.algorithm), is_continued=False)
    confirm_steady([folder / name for name in files], before)
    doubts = tuple(written_after(name) for name, entry in entries.items() if entry.is_late and entry.is_rewritten)
    replace(listed, files=entries, doubts=doubts).write(draft)
    size, late = sum(entry.size_bytes for entry in entries.values()), [name for name in files if entries[name].is_late]
    shown = f"{_many(len(files) + len(links), 'output file')}, {bytes_words(size)}: {_some([*files, *links])}"
    unsure = [f"which part of what was written after the restart files: {_some(late)}"] if late else []
    return TakenOutputs((shown,), (*unsure, *_not_taken(left)), copies)


def _sorted_out(
    places: RunFolder, program: Program, folder: Path
) -> tuple[list[str], dict[str, str], dict[str, list[str]]]:
    """Return the files to take, the links to take, and what is left there, by the reason."""
    kinds, files = FileKinds(program), list[str]()
    links: dict[str, str] = {}
    left: dict[str, list[str]] = {}
    for name in sorted(_names(folder, places.base)):
        if not kinds.is_output(name):
            if kinds.is_dropped(name) and not kinds.is_state(name):
                left.setdefault("dropped, as `discard` says", []).append(name)
            continue
        mode = (folder / name).lstat().st_mode
        if stat.S_ISREG(mode):
            files.append(name)
        elif not stat.S_ISLNK(mode):
            left.setdefault("pipes, sockets, devices", []).append(name)
        elif not kinds.is_below_input(name) and _leads_inside(folder, name):
            links[name] = os.readlink(folder / name)
        else:
            left.setdefault("links to other folders", []).append(name)
    return files, links, left


def _names(folder: Path, base: Path) -> Iterator[str]:
    """Yield the names of all files and links, in order, but not what belongs to unbroken, Snakemake and git."""
    ours = {(base / each).resolve() for each in (RESULTS, LOGS)}
    is_exported = (folder / _EXPORT_NOTE).is_file()
    for parent, folders, names in os.walk(folder):
        below = Path(parent)
        links = [each for each in folders if (below / each).is_symlink()]
        kept = [each for each in folders if each not in links and (below / each).resolve() not in ours]
        folders[:] = sorted(each for each in kept if each not in _TOOLS)
        if is_exported and below == folder:
            folders[:] = [each for each in folders if each != SO_FAR]
            names = [each for each in names if each not in (_EXPORT_NOTE, SCRIPT)]
        yield from ((below / each).relative_to(folder).as_posix() for each in sorted([*names, *links]))


def _leads_inside(folder: Path, name: str) -> bool:
    target = os.readlink(folder / name)
    place = os.path.normpath(os.path.join(os.path.dirname(name), target))
    return not os.path.isabs(target) and place != ".." and not place.startswith("../")


def _taken(source: Path, name: str, copies: Path, draft: Path, algorithm: str, state_ns: int) -> OutputFile:
    """Copy an output and return its entry.

    A format that is changed inside while it grows goes into the checkpoint, all others into the run's folder.
    """
    is_rewritten = is_changed_inside(source)
    target = (draft / REWRITTEN if is_rewritten else copies) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    fs.copy_file(source, target)
    size = target.stat().st_size
    entry = described(target, size, size, SEGMENT, algorithm)
    is_late = entry.mtime_ns > state_ns + LAST_ACTION_SECONDS * 1e9
    # A large file that the program may begin again is kept as a piece.
    has_grown = is_rewritten or size > SMALL_BYTES
    return replace(entry, is_rewritten=is_rewritten, has_grown=has_grown, is_late=is_late)


def _not_taken(left: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(f"not taken: {_some(names)} ({why})" for why, names in left.items())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def _many(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
