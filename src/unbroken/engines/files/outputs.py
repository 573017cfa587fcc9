"""List the output files that belong to a checkpoint, in `unbroken-output/list.json` of its folder.

An output file lies once per run, in the program's folder: a checkpoint holds its length and the digests of its first
and last 64 KiB.  What the program writes again from its beginning is copied into the checkpoint, to
`unbroken-output/rewritten`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from unbroken.engines.files.content import OutputFile, is_as_listed
from unbroken.engines.files.states import LISTED
from unbroken.errors import CheckpointError, FormatError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import OUTPUT, PIECES, RunOutput, parse_json, piece_place
from unbroken.system import fs
from unbroken.system.digests import preferred_algorithm

LIST = f"{LISTED}/list.json"
REWRITTEN = f"{LISTED}/rewritten"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Piece:
    """Locate an output that a later segment began again: `pieces/<sequence>/NAME` of the run's folder."""

    name: str
    sequence: int  # of the checkpoint from which that segment resumed
    segment: int  # that began the piece
    size_bytes: int
    head: str  # digests of its first and last bytes
    tail: str

    @property
    def listed(self) -> OutputFile:
        """Return it as an output of its own, to be compared with the file."""
        return OutputFile(self.size_bytes, self.size_bytes, self.head, self.tail, self.segment, 0)


@dataclass(frozen=True)
class OutputList:
    """Hold all outputs at a checkpoint, by their names in the program's folder."""

    files: Mapping[str, OutputFile] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    doubts: tuple[str, ...] = ()
    algorithm: str = field(default_factory=preferred_algorithm)

    def write(self, draft: Path) -> None:
        """Write the list into the draft of a checkpoint."""
        path = draft / LIST
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **vars(self)}, default=vars) + "\n")

    def with_doubt(self, doubt: str) -> OutputList:
        """Return the list with one more reason why the result may not be that of one uninterrupted run."""
        return self if doubt in self.doubts else replace(self, doubts=(*self.doubts, doubt))


def read_outputs(checkpoint: Checkpoint | None) -> OutputList:
    """Return the outputs of a checkpoint; an empty list where it has none.

    Raise CheckpointError if the list cannot be read, FormatError if a newer unbroken wrote it.
    """
    if checkpoint is None or LIST not in checkpoint.passport.files:
        return OutputList()
    return read_list(checkpoint.folder)


def read_list(folder: Path) -> OutputList:
    """Return the list of outputs in the folder of a checkpoint, or in its draft."""
    path = folder / LIST
    try:
        data = parse_json(path.read_text())
        if data["schema_version"] > SCHEMA_VERSION:
            raise FormatError(f"{path}: format {data['schema_version']}, this unbroken reads up to {SCHEMA_VERSION}")
        return OutputList(
            {name: OutputFile(**entry) for name, entry in data["files"].items()},
            data["links"],
            tuple(Piece(**piece) for piece in data["pieces"]),
            tuple(data["doubts"]),
            data["algorithm"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a list of outputs ({error!r})") from error


def outputs_outside(checkpoint: Checkpoint) -> list[RunOutput]:
    """Return the outputs of a checkpoint that lie in the run's folder and not in the checkpoint's own."""
    return list(_outside(read_outputs(checkpoint), is_finished=checkpoint.passport.is_finished))


def _outside(listed: OutputList, *, is_finished: bool) -> Iterator[RunOutput]:
    def has_what_is_listed(path: Path, entry: OutputFile) -> bool:
        return entry.resume_bytes < 0 or is_as_listed(path, entry, listed.algorithm)

    for piece in listed.pieces:
        is_whole = partial(has_what_is_listed, entry=piece.listed)
        yield RunOutput(piece.name, piece.size_bytes, piece=piece.sequence, is_as_listed=is_whole)
    for name, entry in listed.files.items():
        size = entry.size_bytes if is_finished else entry.resume_bytes
        if size >= 0 and not entry.is_rewritten:
            yield RunOutput(
                name,
                size,
                max(entry.resume_bytes, 0),
                f"{entry.head} {entry.tail}",
                head=base64.b64decode(entry.head_base64),
                mtime_ns=entry.mtime_ns,
                is_as_listed=partial(has_what_is_listed, entry=entry),
            )


# --- pieces: outputs as they were at a checkpoint, in `pieces/<sequence>/NAME`; later segments begin them again ---


def piece_path(run_folder: Path, sequence: int, name: str) -> Path:
    """Return where an output lies as it was at the checkpoint of that number."""
    return run_folder / piece_place(sequence, name)


def piece_of(name: str, sequence: int, entry: OutputFile) -> Piece:
    """Return the piece that an output was up to the checkpoint of that number."""
    return Piece(name, sequence, entry.segment, entry.resume_bytes, entry.head, entry.tail)


def pieces_of(run_folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    """Yield the pieces of an output, each with the number of its checkpoint, the newest first."""
    for folder in _folders(run_folder):
        if (folder / name).is_file():
            yield int(folder.name), folder / name


def place_of(run_folder: Path, name: str, entry: OutputFile, algorithm: str) -> Path:
    """Return where an output lies as it is listed, also if a later segment has begun it again; else its own place."""
    own = run_folder / OUTPUT / name
    if entry.resume_bytes < 0:  # it is not put back
        return own
    found = (own, *(piece for _, piece in pieces_of(run_folder, name)))
    return next((path for path in found if is_as_listed(path, entry, algorithm)), own)


def drop_pieces(run_folder: Path, listed: OutputList, sequence: int | None = None) -> None:
    """Remove pieces that no checkpoint up to `sequence` needs, but not those that were made just for it.

    Without a number: copies of outputs that a finished run continued.
    """
    used = {(piece.sequence, piece.name) for piece in listed.pieces}
    for folder in _folders(run_folder):
        if int(folder.name) == sequence:
            continue
        for name in fs.tree_files(folder):
            if (int(folder.name), name.as_posix()) not in used:
                (folder / name).unlink()
                remove_emptied(folder, [name.as_posix()])
        with suppress(OSError):
            folder.rmdir()


def remove_emptied(root: Path, names: Iterable[str]) -> None:
    """Remove the folders below `root` that have become empty because these files were taken away."""
    for folder in sorted({parent for name in names for parent in Path(name).parents}, reverse=True):
        if folder != Path():
            with suppress(OSError):
                (root / folder).rmdir()


def _folders(run_folder: Path) -> list[Path]:
    found = [path for path in (run_folder / PIECES).glob("[0-9]*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def bytes_words(size_bytes: float) -> str:
    """Return a size such as `3.41 GB`."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while size_bytes >= 1000 and units[1:]:
        size_bytes /= 1000
        units.pop(0)
    digits = 0 if size_bytes >= 99.95 or units[0] == "bytes" else 1 if size_bytes >= 9.995 else 2
    return f"{size_bytes:,.{digits}f} {units[0]}"
