"""Keep outputs as they were at a checkpoint, in `pieces/<sequence>/NAME`: later segments begin them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from unbroken.engines.files.content import OutputFile, is_as_listed
from unbroken.engines.files.outputs import OutputList, Piece
from unbroken.store.layout import OUTPUT, PIECES, piece_place
from unbroken.system import fs


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
