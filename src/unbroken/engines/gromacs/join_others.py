"""Puts the files that are none of mdrun's own into the results: as one where that is right, else segment by segment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from unbroken.engines.gromacs.cut import frames_of
from unbroken.engines.gromacs.others import INDEX, OTHERS
from unbroken.engines.gromacs.parts import own_time_ps, parts_of
from unbroken.engines.gromacs.settings import ALONE
from unbroken.engines.gromacs.time_table import first_time, is_comment, last_time, names_time, time_of
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system.copying import append_range

SEGMENTS = "segments"
_TRAJECTORIES = (".xtc", ".trr")
_SLACK = 1e-6


@dataclass(frozen=True)
class Piece:
    """Hold what one checkpoint has of a file, and the time where its part of the simulation began."""

    path: Path
    begin_ps: float


@dataclass
class Written:
    """Hold a file as segments wrote it without beginning again; `end_ps` is the time of its last checkpoint."""

    segment: int
    pieces: list[Piece] = field(default_factory=list)
    end_ps: float = 0.0


def join_others(line: Sequence[Checkpoint], final: Path, replica: str = ALONE) -> None:
    """Fill `final` with the other files of an ancestry of checkpoints, oldest first."""
    taken = {path.name for path in final.iterdir()}
    for name, written in sorted(_written(line, replica).items()):
        found = [each for each in written if each.pieces]
        is_free = Path(name).parts[0] not in {*taken, SEGMENTS}
        if is_free and (len(found) == 1 or _is_one(name, found)):
            _write(final / name, found)
            continue
        for each in found:
            _write(_free(final / SEGMENTS / f"{each.segment:03d}", name), [each])


def _written(line: Sequence[Checkpoint], replica: str) -> Mapping[str, list[Written]]:
    found: dict[str, list[Written]] = {}
    begin_ps = 0.0
    for each in line:
        end_ps = _time_ps(each, replica, begin_ps)
        for name, is_continued in _index(each, replica).items():
            files = found.setdefault(name, [])
            if not files or not is_continued:
                files.append(Written(each.passport.segment))
            files[-1].end_ps = end_ps
            path = parts_of(each.folder, replica) / OTHERS / name
            if path.is_file():
                files[-1].pieces.append(Piece(path, begin_ps))
        begin_ps = end_ps
    return found


def _index(checkpoint: Checkpoint, replica: str) -> Mapping[str, bool]:
    try:
        return {
            str(name): bool(value) for name, value in json.loads(_index_path(checkpoint, replica).read_text()).items()
        }
    except FileNotFoundError:
        return {}


def _index_path(checkpoint: Checkpoint, replica: str) -> Path:
    return parts_of(checkpoint.folder, replica) / INDEX


def _time_ps(checkpoint: Checkpoint, replica: str, default: float) -> float:
    if (own := own_time_ps(checkpoint.folder, replica)) is not None:
        return own
    found = checkpoint.passport.progress.metrics.get("time_ps")
    return float(found) if isinstance(found, (int, float)) else default


def _is_one(name: str, files: Sequence[Written]) -> bool:
    """True if what several segments began again is one trajectory, or one table of times."""
    if Path(name).suffix in _TRAJECTORIES:
        return all(_is_trajectory(each, Path(name).suffix) for each in files)
    heads = {_columns(each) for each in files}
    return len(heads) == 1 and all(_is_in_time(each) for each in files)


def _is_trajectory(written: Written, kind: str) -> bool:
    try:
        steps = [frame.step for piece in written.pieces for frame in frames_of(piece.path, kind)]
    except CheckpointError:
        return False
    return all(earlier < later for earlier, later in pairwise(steps))


def _columns(written: Written) -> tuple[bytes, ...]:
    """The lines of the head that say what is in the columns."""
    with written.pieces[0].path.open("rb") as file:
        return tuple(_until_row(file))


def _until_row(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        if not is_comment(line):
            return
        if line.startswith((b"#!", b"@")):
            yield line


def _is_in_time(written: Written) -> bool:
    """True if the rows lie between the checkpoints where the segments began and ended."""
    first, last = written.pieces[0], written.pieces[-1]
    has_names = names_time(first.path)
    begin, end = first_time(first.path), last_time(last.path, last.path.stat().st_size)
    if has_names is False or begin is None or end is None:
        return False
    return begin >= first.begin_ps - _slack(first.begin_ps) and end <= written.end_ps + _slack(written.end_ps)


def _slack(time_ps: float) -> float:
    return _SLACK * (1 + abs(time_ps))


def _write(target: Path, files: Sequence[Written]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix in _TRAJECTORIES and len(files) > 1:
        _write_trajectory(target, files)
        return
    with target.open("wb") as joined:
        for number, each in enumerate(files):
            until = first_time(files[number + 1].pieces[0].path) if number + 1 < len(files) else None
            _append(joined, each, has_head=number == 0, until_ps=until)


def _append(joined: BinaryIO, written: Written, *, has_head: bool, until_ps: float | None) -> None:
    """The pieces of a file: the row of a step where a segment resumed once, none that the next file has too."""
    before: float | None = None
    for number, piece in enumerate(written.pieces):
        again = before if number and before is not None and _is_same(before, piece.begin_ps) else None
        size = piece.path.stat().st_size
        skipped = 0 if again is None else _repeated_bytes(piece.path, again)
        if has_head and until_ps is None:
            append_range(piece.path, joined, skipped, size)
        else:
            _append_rows(joined, piece.path, skipped, has_head=has_head, until_ps=until_ps)
        before = last_time(piece.path, size) or before


def _append_rows(joined: BinaryIO, path: Path, skipped: int, *, has_head: bool, until_ps: float | None) -> None:
    with path.open("rb") as file:
        file.seek(skipped)
        for row in file:
            if is_comment(row):
                joined.write(row if has_head else b"")
            elif until_ps is None or (time := time_of(row)) is None or time < until_ps:
                joined.write(row)


def _repeated_bytes(path: Path, time_ps: float) -> int:
    """Where the first row behind the given time begins, in what a program added to a file that has rows of it."""
    at = 0
    with path.open("rb") as file:
        for row in file:
            time = None if is_comment(row) else time_of(row)
            if not is_comment(row) and (time is None or not _is_same(time, time_ps)):
                break
            at += len(row)
    return at


def _is_same(time_ps: float, other_ps: float) -> bool:
    return abs(time_ps - other_ps) <= _slack(other_ps)


def _write_trajectory(target: Path, files: Sequence[Written]) -> None:
    kind = target.suffix
    with target.open("wb") as joined:
        for number, each in enumerate(files):
            later = files[number + 1] if number + 1 < len(files) else None
            first = next((frame.step for frame in frames_of(later.pieces[0].path, kind)), None) if later else None
            for piece in each.pieces:
                end = piece.path.stat().st_size
                if first is not None:
                    end = next((frame.begin for frame in frames_of(piece.path, kind) if frame.step >= first), end)
                append_range(piece.path, joined, 0, end)


def _free(folder: Path, name: str) -> Path:
    """A place in a segment's folder; the second attempt of a segment has a folder of its own."""
    number, found = 2, folder / name
    while found.exists():
        found = folder.with_name(f"{folder.name}.{number}") / name
        number += 1
    return found
