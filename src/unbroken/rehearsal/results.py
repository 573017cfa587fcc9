"""What the runs of a rehearsal left, each under its name, and what differs between two of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.rehearsal.compare import Difference, Kind, begun_again, compare_folders, is_excepted, table
from unbroken.rehearsal.piece import Piece
from unbroken.rehearsal.stage import BESIDE, LAST, Stage
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.passport import FILE_NAME as PASSPORT
from unbroken.runs.results import SUMMARY
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system.fs import tree_files

MOST_NAMES = 3


@dataclass(frozen=True)
class Results:
    """Below `root`: `whole` has the results of that run, `state-whole` its last checkpoint, `beside-whole` what the
    program wrote to where it was started, a folder a piece."""

    root: Path
    run: Run
    engine: Engine

    def keep(self, stage: Stage, piece: Piece, name: str) -> Path:
        """Take the results out of the folder of the last piece; return what is left of its run."""
        carried = stage.carry(piece.folder)
        newest = Store(carried / piece.places.checkpoints.name).readable()[-1]
        shutil.copytree(newest.folder, self.state_of(name))
        if (stage.root / BESIDE).exists():
            os.rename(stage.root / BESIDE, self.root / f"beside-{name}")
        os.rename(carried / piece.places.final.name, self.root / name)
        return carried

    def kept(self, name: str, carried: Path) -> list[str]:
        """Return the names of all files in the results, and in the checkpoints of a run's folder."""
        found = [str(path) for path in tree_files(self.root / name)]
        for folder in ("checkpoints", PARTS, "live"):
            found += [str(path) for path in tree_files(carried / folder)]
        return found

    def state_of(self, name: str) -> Path:
        """Return where a copy of the last checkpoint lies."""
        return self.root / f"state-{name}"

    def differences(self, one: str, other: str) -> list[Difference]:
        """Of the results, and of what lies beside them: first what tells most, and what happened first."""
        found = self._compared(self.root / one, self.root / other) + self._beside(one, other)
        return sorted(found, key=lambda each: (list(Kind).index(each.kind), each.position or 0.0))

    def excepted(self, *runs: str) -> list[str]:
        """Return the names of files that the engine writes for each piece, which are not compared."""
        names = {str(path) for run in runs for path in tree_files(self.root / run)}
        again = {name for run in runs[1:] for name in begun_again(self.root / runs[0], self.root / run)}
        return sorted({name for name in names if is_excepted(name, self.engine.results_of_pieces)} | again)

    def state_differences(self, one: str, other: str) -> list[Difference]:
        """Of the last checkpoints, which may hold more than the results."""
        return self._compared(self.state_of(one), self.state_of(other))

    def _beside(self, one: str, other: str) -> list[Difference]:
        """Of the files that the program writes to where it is started, which no checkpoint holds.

        In real life they stay there, so a program that appends to one has what all pieces wrote, one behind the other.
        """
        whole, pieces = self.root / f"beside-{one}", self.root / f"beside-{other}"
        if not whole.exists():
            return []
        first = min(whole.iterdir())
        parts = sorted(pieces.iterdir()) if pieces.exists() else []
        joined = self.root / f"joined-{other}"
        for name in tree_files(first):
            having = [part for part in parts if (part / name).exists()]
            having = [part for part in having if part.name.endswith(LAST)] or having  # which has that of all before
            _join(first / name, [part / name for part in having], joined / name)
        found = self._compared(first, joined)
        return [replace(each, file=f"{each.file} (beside results/)", leaf=f"beside {each.leaf}") for each in found]

    def _compared(self, one: Path, other: Path) -> list[Difference]:
        def position(path: Path, offset: int) -> str:
            return self.engine.position(self.run, path, offset)

        return compare_folders(one, other, (SUMMARY, PASSPORT, *self.engine.results_of_pieces), position)


def listed(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMES} more" if known[MOST_NAMES:] else ""
    return ", ".join(known[:MOST_NAMES]) + more


def _join(whole: Path, parts: list[Path], target: Path) -> None:
    """What the pieces wrote; the last one alone if that is all of it, for a program that writes the file anew."""
    target.parent.mkdir(parents=True, exist_ok=True)
    texts = [part.read_bytes() for part in parts]
    is_all_in_the_last = bool(texts) and texts[-1] == whole.read_bytes()
    target.write_bytes(texts[-1] if is_all_in_the_last else b"".join(texts))
    if table.has_same_rows(whole, target):  # a header that comes again
        shutil.copyfile(whole, target)
