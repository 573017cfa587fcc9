"""Cut tables that mdrun's checkpoint does not count, or not as the next part needs it.

A table of times has the time in ps in its first column, and says so: PLUMED names its columns (`#! FIELDS time phi`),
an xvg its axis.

mdrun prints the tables of enforced rotation at fixed steps, before it writes the checkpoint of a step.  Whether the
part that resumes at that step prints its row again depends on the release; the head and the reference slabs it prints
again always.  Most of these tables are in no checkpoint, and their times have four digits, so the rows are counted by
steps [GROMACS, src/gromacs/pulling/pull_rotation.cpp].
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.outputs import ROTATION_LOGS, ROTATION_TABLE, part_name
from unbroken.engines.gromacs.simulation import Tpr
from unbroken.errors import CheckpointError

_HEAD_BYTES = 64 * 1024
_COMMENT = (b"#", b"@", b"&")
_TIME_COLUMN = re.compile(rb'(?m)^#! FIELDS +time\s|^@ +xaxis +label +"[Tt]ime')
# Of so many rows one sees whether they come at regular times.
_ROWS_OF_A_RHYTHM = 4
_SLACK = 1e-6
# What makes mdrun write each row at once: else a kill takes rows from before the checkpoint.
WRITE_AT_ONCE = {"GMX_LOG_BUFFER": "0"}
_REFERENCE_TIME = -1.0


# --- tables of times ---


@dataclass(frozen=True)
class Row:
    """Hold a complete row of a table, and where it begins."""

    begin: int
    text: bytes

    @property
    def end(self) -> int:
        """Return where the next row begins."""
        return self.begin + len(self.text)

    @property
    def time_ps(self) -> float | None:
        """Return the number with which the row begins; None if it is none."""
        try:
            return float(self.text.split(maxsplit=1)[0])
        except ValueError:
            return None


@dataclass(frozen=True)
class Cut:
    """Say where a table ends at a checkpoint; `gap_ps` is how long before it regular rows stop, 0 if they do not."""

    size_bytes: int
    gap_ps: float


def cut_at(path: Path, begin: int, end_ps: float) -> Cut | None:
    """Return where the rows after a byte are cut at a time; None if it is no table of times."""
    with path.open("rb") as file:
        names_time = _TIME_COLUMN.search(file.read(_HEAD_BYTES))
    rows = rows_of(path, begin)
    times = [row.time_ps for row in rows if row.time_ps is not None]
    if not names_time or len(times) < len(rows) or any(later < earlier for earlier, later in pairwise(times)):
        return None
    kept = [time for time in times if time <= end_ps + _slack(end_ps)]
    head_bytes = rows[0].begin if rows else path.stat().st_size
    return Cut(rows[len(kept) - 1].end if kept else head_bytes, _gap(kept, end_ps))


def repeated_bytes(path: Path, begin: int, time_ps: float) -> int:
    """Return how many bytes after a byte repeat the row of a time, which a program prints again where it resumes."""
    before = rows_of(path, max(0, begin - _HEAD_BYTES), begin)
    if not before or not _is_time(before[-1], time_ps):
        return 0
    rows = rows_of(path, begin)
    first = next((row.begin for row in rows if not _is_time(row, time_ps)), rows[-1].end if rows else begin)
    return first - begin


def rows_of(path: Path, begin: int = 0, end: int | None = None) -> list[Row]:
    """Return the rows with numbers between two bytes; a torn last one is left out."""
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read() if end is None else file.read(end - begin)
    lines = data.splitlines(keepends=True)
    begins = itertools.accumulate(map(len, lines), initial=begin)
    rows = [Row(at, line) for at, line in zip(begins, lines, strict=False) if line.endswith(b"\n") and line.strip()]
    return [row for row in rows if not row.text.startswith(_COMMENT)]


def _is_time(row: Row, time_ps: float) -> bool:
    return row.time_ps is not None and abs(row.time_ps - time_ps) <= _slack(time_ps)


def _slack(time_ps: float) -> float:
    return _SLACK * (1 + abs(time_ps))


def _gap(times: list[float], end_ps: float) -> float:
    """Return how long before the end regular rows stop: a kill has taken what was not yet written."""
    if len(times) < _ROWS_OF_A_RHYTHM:
        return 0.0
    steps = [later - earlier for earlier, later in pairwise(times[-_ROWS_OF_A_RHYTHM:])]
    missing = end_ps - times[-1]
    is_regular = max(steps) <= 1.01 * min(steps)
    return missing if is_regular and missing > 1.01 * max(steps) else 0.0


# --- tables of enforced rotation ---


def logs_of(cpt: Cpt, folder: Path) -> list[str]:
    """Return the names of the tables of a part that its checkpoint does not count."""
    return [name for kind in ROTATION_LOGS if (folder / (name := part_name(kind, cpt.part))).is_file()]


def is_reference(row: Row) -> bool:
    """Return True for a row about the reference structure, which each part prints."""
    return row.time_ps == _REFERENCE_TIME


def counted_bytes(cpt: Cpt, folder: Path, tpr: Tpr, first_step: int) -> dict[str, int]:
    """Return for each table of a part the bytes of the rows that the next part does not print.

    Raise CheckpointError if rows are missing.
    """
    has_first = int(_prints_first_step(cpt, folder, tpr, first_step))
    found = {}
    for kind in (ROTATION_TABLE, *ROTATION_LOGS):
        path = folder / part_name(kind, cpt.part)
        every = tpr.rotation_steps if kind == ROTATION_TABLE else tpr.slab_steps
        if path.is_file() and every > 0:
            steps = _multiples(first_step + 1 - has_first, cpt.step - has_first, every)
            found[path.name] = _bytes_of(path, steps, has_groups=kind != ROTATION_TABLE)
    return found


def _prints_first_step(cpt: Cpt, folder: Path, tpr: Tpr, first_step: int) -> bool:
    """Return True of a release that prints the step where a part begins: the next part prints the checkpoint's, too.

    2022 does not, later ones do.  The checkpoint counts the rows of one table up to its own step.
    """
    name, every = part_name(ROTATION_TABLE, cpt.part), tpr.rotation_steps
    size = next((output.size_bytes for output in cpt.outputs if output.name == name), None)
    if size is None or every <= 0:
        return False
    if first_step % every == 0:
        counted = [row for row in _rotation_rows(folder / name) if row.begin < size]
        return len(counted) >= _multiples(first_step, cpt.step, every)
    slabs = [row for each in logs_of(cpt, folder) for row in _rotation_rows(folder / each)]
    half_ps = tpr.slab_steps * tpr.dt_ps / 2
    return bool(slabs) and abs((slabs[0].time_ps or 0.0) - tpr.time_ps(first_step)) < half_ps


def _multiples(begin: int, end: int, every: int) -> int:
    """Return how many multiples of a number there are from one step to another, both included."""
    return max(0, end // every - -(-begin // every) + 1)


def _bytes_of(path: Path, steps: int, *, has_groups: bool) -> int:
    """Return where the rows of so many steps end; a table of groups has a row of each group for each step."""
    rows = _rotation_rows(path)
    wanted = steps * (len({row.text.split()[1] for row in rows}) if has_groups else 1)
    if wanted > len(rows):
        raise CheckpointError(f"{path}: {len(rows)} rows, {wanted} belong to its checkpoint")
    if wanted < len(rows):
        return rows[wanted].begin
    return rows[-1].end if rows else path.stat().st_size


def _rotation_rows(path: Path) -> list[Row]:
    return [row for row in rows_of(path) if len(row.text.split()) > 1 and not is_reference(row)]
