"""Cuts the tables of enforced rotation, which mdrun prints at fixed steps, before it writes the checkpoint of a step.

Whether the part that resumes at that step prints its row again depends on the release; the head and the reference slabs
it prints again always.  Most of the tables are in no checkpoint, and their times have four digits, so the rows are
counted by steps [GROMACS, src/gromacs/pulling/pull_rotation.cpp].
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.outputs import ROTATION_LOGS, ROTATION_TABLE, part_name
from unbroken.engines.gromacs.tpr import Tpr
from unbroken.errors import CheckpointError

# What makes mdrun write each row at once: else a kill takes rows from before the checkpoint.
WRITE_AT_ONCE = {"GMX_LOG_BUFFER": "0"}
_REFERENCE_TIME = -1.0


def logs_of(cpt: Cpt, folder: Path) -> list[str]:
    """Return the names of the tables of a part that its checkpoint does not count."""
    return [name for kind in ROTATION_LOGS if (folder / (name := part_name(kind, cpt.part))).is_file()]


def counted_bytes(cpt: Cpt, folder: Path, tpr: Tpr, first_step: int) -> dict[str, int]:
    """Return for each table of a part the bytes of the rows that the next part does not print.

    CheckpointError if rows are missing.
    """
    has_first = _prints_first_step(cpt, folder, tpr, first_step)
    found = {}
    for kind, every in [(ROTATION_TABLE, tpr.rotation_steps), *((kind, tpr.slab_steps) for kind in ROTATION_LOGS)]:
        path = folder / part_name(kind, cpt.part)
        if path.is_file() and every > 0:
            end = cpt.step - 1 if has_first else cpt.step
            begin = first_step if has_first else first_step + 1
            found[path.name] = _bytes_of(path, _multiples(begin, end, every))
    return found


def _prints_first_step(cpt: Cpt, folder: Path, tpr: Tpr, first_step: int) -> bool:
    """True of a release that prints the step where a part begins: the next part prints the checkpoint's step, too.

    2022 does not, later ones do.  The checkpoint counts the rows of one table up to its own step.
    """
    name, every = part_name(ROTATION_TABLE, cpt.part), tpr.rotation_steps
    size = next((output.size_bytes for output in cpt.outputs if output.name == name), None)
    if size is None or every <= 0:
        return False
    rows = [row for at, row in _rows(folder / name) if at < size]
    if first_step % every == 0:
        return len(rows) >= _multiples(first_step, cpt.step, every)
    slabs = [row for each in logs_of(cpt, folder) for _, row in _rows(folder / each)]
    half_ps = tpr.slab_steps * tpr.dt_ps / 2
    return bool(slabs) and abs(float(slabs[0].split()[0]) - tpr.time_ps(first_step)) < half_ps


def is_reference(row: bytes) -> bool:
    """Return True for a row about the reference structure, which each part prints."""
    words = row.split(maxsplit=1)
    return bool(words) and _is_number(words[0]) and float(words[0]) == _REFERENCE_TIME


def _multiples(begin: int, end: int, every: int) -> int:
    """Return how many multiples of a number there are from one step to another, both included."""
    return max(0, end // every - -(-begin // every) + 1)


def _bytes_of(path: Path, steps: int) -> int:
    """Return where the rows of so many steps end; each step has a row of each group."""
    rows = list(_rows(path))
    has_groups = any(path.name.startswith(part_name(kind, 0).partition(".")[0]) for kind in ROTATION_LOGS)
    groups = len({row.split()[1] for _, row in rows}) if has_groups else 1
    wanted = steps * groups
    if wanted > len(rows):
        raise CheckpointError(f"{path}: {len(rows)} rows, {wanted} belong to its checkpoint")
    if wanted < len(rows):
        return rows[wanted][0]
    return rows[-1][0] + len(rows[-1][1]) if rows else path.stat().st_size


def _rows(path: Path) -> Iterator[tuple[int, bytes]]:
    """The rows with where they begin; a torn last one is left out."""
    at = 0
    with path.open("rb") as file:
        for line in file:
            if line[:1] not in b"#@\n" and line.endswith(b"\n") and len(line.split()) > 1 and not is_reference(line):
                yield at, line
            at += len(line)


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
