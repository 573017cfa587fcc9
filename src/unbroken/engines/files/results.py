"""Fill `final/` of a run with the outputs of its last checkpoint, and report which of them were not joined."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.content import OutputFile, is_as_listed, put_head_back
from unbroken.engines.files.outputs import (
    REWRITTEN,
    OutputList,
    drop_pieces,
    piece_path,
    place_of,
    read_outputs,
    remove_emptied,
)
from unbroken.engines.files.tables import is_joined
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Checkpoint
from unbroken.system import copying, fs
from unbroken.system.copying import copy_head

SEGMENTS = "segments"
_DIGITS = re.compile(r"[0-9]+")


def fill_outputs(
    checkpoint: Checkpoint, run_folder: Path, final: Path, tables: Mapping[str, re.Pattern[bytes]] | None = None
) -> None:
    """Put all outputs into `final`, those that segments began again below `segments/`, but `tables` in one piece.

    Raise CheckpointError for an output that is missing, or not as the checkpoint lists it.
    """
    listed = read_outputs(checkpoint)
    _fill(checkpoint, listed, run_folder, final)
    for name, pattern in (tables or {}).items():
        _join(listed, name, pattern, final, math.inf)
    drop_pieces(run_folder, listed)
    for name, leads_to in listed.links.items():
        (final / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(leads_to, final / name)


def fill_tables(
    checkpoint: Checkpoint, run_folder: Path, folder: Path, tables: Mapping[str, re.Pattern[bytes]]
) -> None:
    """Put the tables into a folder, up to a checkpoint; raise CheckpointError as `fill_outputs` does."""
    listed = read_outputs(checkpoint)
    files = {name: entry for name, entry in listed.files.items() if name in tables}
    listed = replace(listed, files=files, pieces=tuple(piece for piece in listed.pieces if piece.name in tables))
    _fill(checkpoint, listed, run_folder, folder)
    for name, pattern in tables.items():
        _join(listed, name, pattern, folder, checkpoint.passport.progress.done)


def _fill(checkpoint: Checkpoint, listed: OutputList, run_folder: Path, final: Path) -> None:
    places = _places(listed, final)
    for piece in listed.pieces:
        source = piece_path(run_folder, piece.sequence, piece.name)
        _put(source, piece.listed, listed.algorithm, next(places), f"{checkpoint.name} lists a piece of {piece.name}")
    for name, entry in listed.files.items():
        target = next(places)
        if entry.is_rewritten:
            target.parent.mkdir(parents=True, exist_ok=True)
            copying.copy_file(checkpoint.folder / REWRITTEN / name, target)
        else:
            source = place_of(run_folder, name, entry, listed.algorithm)
            _put(source, entry, listed.algorithm, target, f"{checkpoint.name} lists an output")


def _join(listed: OutputList, name: str, pattern: re.Pattern[bytes], final: Path, up_to: float) -> None:
    """Join the pieces of a table; they stay where they are if their records do not count up."""
    names = [*(piece.name for piece in listed.pieces), *listed.files]
    pieces = [place for place, each in zip(_places(listed, final), names, strict=True) if each == name]
    joined = (final / name).with_name(fs.unique_name("joined"))
    if (len(pieces) > 1 or up_to < math.inf) and is_joined(pieces, pattern, joined, up_to):
        for place in pieces:
            place.unlink()
        remove_emptied(final, [place.relative_to(final).as_posix() for place in pieces])
        joined.parent.mkdir(parents=True, exist_ok=True)
        os.replace(joined, final / name)


def _places(listed: OutputList, final: Path) -> Iterator[Path]:
    """Yield where each piece lies in `final`, and then each output.

    The pieces that one segment has begun again and again have numbers, in the order in which a shell sorts them.
    """
    in_pieces = _in_pieces(listed)
    parts = [(piece.name, piece.segment) for piece in listed.pieces]
    parts += [(name, entry.segment) for name, entry in listed.files.items()]
    count, taken = Counter(parts), Counter[tuple[str, int]]()
    for at, (name, segment) in enumerate(parts):
        taken[name, segment] += 1
        number = f"-{taken[name, segment]:03d}" if count[name, segment] > 1 else ""
        is_below = at < len(listed.pieces) or name in in_pieces
        yield final / SEGMENTS / f"{segment:03d}{number}" / name if is_below else final / name


def _in_pieces(listed: OutputList) -> set[str]:
    """Return the outputs that are joined from pieces, or left in pieces.

    Of a series (`dump.500.txt`, `dump.1000.txt`, ...) a program that stops and resumes at the step of a file writes
    it a second time: the last one is the whole output.
    """
    return {piece.name for piece in listed.pieces if not _is_next_of_series(listed, piece.name)}


def _is_next_of_series(listed: OutputList, name: str) -> bool:
    """Return True if the segment that began this output again began with it: those before have the lower numbers."""
    own = listed.files.get(name)
    pattern, numbers = _DIGITS.sub("#", name), _numbers(name)
    if own is None or not numbers:
        return False
    again = {piece.name for piece in listed.pieces}
    earlier = [
        _numbers(other)
        for other, entry in listed.files.items()
        if other not in again and entry.segment < own.segment and _DIGITS.sub("#", other) == pattern
    ]
    return len(earlier) > 1 and max(earlier) < numbers


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(name)]


def _put(source: Path, entry: OutputFile, algorithm: str, target: Path, said: str) -> None:
    """Make a second name of an output; a copy of what is listed of one that is longer."""
    if not source.is_file() or source.stat().st_size < entry.size_bytes:
        raise CheckpointError(
            f"{source}: {said} here that is gone, or shorter than {entry.size_bytes:,} bytes; put it back"
        )
    if entry.resume_bytes >= 0 and not is_as_listed(source, entry, algorithm):
        raise CheckpointError(f"{source}: {said} here with other content; put it back from a backup")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.stat().st_size == entry.size_bytes:
        copying.clone_or_link(source, target)
    else:
        copy_head(source, target, entry.size_bytes)
        put_head_back(target, entry)


def remarks(checkpoint: Checkpoint, final: Path) -> list[str]:
    """Return a line for each output that segments began again: where its pieces lie, and how to join them."""
    listed = read_outputs(checkpoint)
    in_pieces = _in_pieces(listed)
    left = sorted(name for name in in_pieces if not (final / name).exists())
    twice = sorted({piece.name for piece in listed.pieces} - in_pieces)
    return [
        f"{name}: segments began it again; its pieces are in {SEGMENTS}/, to join them: cat {SEGMENTS}/*/{name}"
        for name in left
    ] + [
        f"{name}: more than one segment wrote it; the last one counts, those before are {SEGMENTS}/*/{name}"
        for name in twice
    ]


def output_sizes(checkpoint: Checkpoint) -> dict[str, int | None]:
    """Return the outputs that `final/` must hold under their own names, with their sizes in bytes."""
    listed = read_outputs(checkpoint)
    in_pieces = _in_pieces(listed)
    return {name: entry.size_bytes for name, entry in listed.files.items() if name not in in_pieces}
