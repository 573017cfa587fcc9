"""Fills `final/` of a run with the outputs that belong to its last checkpoint, and says what of them was not joined."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from unbroken.engines.files.outputs import REWRITTEN, OutputList, Piece, is_as_listed, put_head_back, read_outputs
from unbroken.engines.files.workspace import drop_pieces, piece_path
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import OUTPUT
from unbroken.system import fs
from unbroken.system.copying import copy_head

SEGMENTS = "segments"


def fill_outputs(checkpoint: Checkpoint, run_folder: Path, final: Path) -> None:
    """Put all outputs into `final`, those that segments began again below `segments/`.

    CheckpointError names an output that is gone, or not as the checkpoint lists it.
    """
    listed = read_outputs(checkpoint)
    in_pieces = {piece.name for piece in listed.pieces}
    for name in listed.files:
        if name not in in_pieces:
            _put(checkpoint, run_folder, listed, name, final / name)
    pieces = list(_pieces(listed))
    count, taken = Counter((name, segment) for name, segment, _ in pieces), Counter[tuple[str, int]]()
    for name, segment, source in pieces:
        folder = final / SEGMENTS / f"{segment:03d}"
        taken[name, segment] += 1
        if count[name, segment] > 1:  # the same segment was begun again; in the order of names, as a shell sorts them
            folder = folder.with_name(f"{folder.name}-{taken[name, segment]:03d}")
        if source is None:
            _put(checkpoint, run_folder, listed, name, folder / name)
        else:
            _put_piece(source, run_folder, listed.algorithm, folder / name)
    drop_pieces(run_folder, listed)
    for name, target in listed.links.items():
        _parents(final / name)
        os.symlink(target, final / name)


def remarks(checkpoint: Checkpoint) -> list[str]:
    """Return a line for each output that segments began again: where its pieces lie, and how to join them."""
    names = sorted({piece.name for piece in read_outputs(checkpoint).pieces})
    return [
        f"{name}: segments began it again; its pieces are in {SEGMENTS}/, to join them: cat {SEGMENTS}/*/{name}"
        for name in names
    ]


def output_sizes(checkpoint: Checkpoint) -> dict[str, int | None]:
    """Return the outputs that `final/` must hold under their own names, with their sizes in bytes."""
    listed = read_outputs(checkpoint)
    in_pieces = {piece.name for piece in listed.pieces}
    return {name: entry.size_bytes for name, entry in listed.files.items() if name not in in_pieces}


def _pieces(listed: OutputList) -> Iterator[tuple[str, int, Piece | None]]:
    """Yield the pieces in order: name, segment, and the piece; None for the last one, which is in its own place."""
    for piece in listed.pieces:
        yield piece.name, piece.segment, piece
    for name in dict.fromkeys(piece.name for piece in listed.pieces):
        if name in listed.files:
            yield name, listed.files[name].segment, None


def _put(checkpoint: Checkpoint, run_folder: Path, listed: OutputList, name: str, target: Path) -> None:
    entry = listed.files[name]
    if entry.is_rewritten:
        _parents(target)
        fs.copy_file(checkpoint.folder / REWRITTEN / name, target)
        return
    source = run_folder / OUTPUT / name
    if not source.is_file() or source.stat().st_size < entry.size_bytes:
        raise CheckpointError(f"{source}: an output of {entry.size_bytes:,} bytes is gone, or shorter; put it back")
    if entry.resume_bytes >= 0 and not is_as_listed(source, entry, listed.algorithm):
        raise CheckpointError(f"{source}: not the output that {checkpoint.name} lists; put it back from a backup")
    _link(source, entry.size_bytes, target)
    if source.stat().st_size > entry.size_bytes:
        put_head_back(target, entry)


def _put_piece(piece: Piece, run_folder: Path, algorithm: str, target: Path) -> None:
    source = piece_path(run_folder, piece.sequence, piece.name)
    if not source.is_file() or source.stat().st_size < piece.size_bytes:
        raise CheckpointError(f"{source}: a piece of {piece.name} is gone, or shorter; put it back from a backup")
    if not is_as_listed(source, piece.listed, algorithm):
        raise CheckpointError(f"{source}: not the piece of {piece.name} that was kept; put it back from a backup")
    _link(source, piece.size_bytes, target)


def _link(source: Path, size: int, target: Path) -> None:
    """Make a second name of a file that is so long; else a copy of that many bytes."""
    _parents(target)
    if source.stat().st_size == size:
        fs.clone_or_link(source, target)
    else:
        copy_head(source, target, size)


def _parents(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
