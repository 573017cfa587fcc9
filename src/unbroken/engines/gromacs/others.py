"""Keep the files of mdrun's folder that are none of its own, such as PLUMED's tables.

Without PLUMED they are output: a checkpoint has in `parts/others` all that its segment wrote.  With PLUMED they are
needed to resume: a checkpoint has in `state/` each complete file, cut at the checkpoint, which is put back as a copy.
PLUMED reads its hills from there, and continues in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE
from unbroken.engines.gromacs.frames import TRAJECTORIES, bytes_before
from unbroken.engines.gromacs.parts import parts_of
from unbroken.engines.gromacs.simulation import EXTENDED_TPR
from unbroken.engines.gromacs.tables import cut_at, repeated_bytes
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs
from unbroken.system.copying import append_range, copy_head

STATE, OTHERS, SEGMENTS = "state", "others", "segments"
_COMPARED_BYTES = 64 * 1024
# Left by a program that crashes, and what it can make again.
_LEFT_OUT = re.compile(r"core(\.\d+)?")
_CACHES = {"__pycache__", ".cache"}


@dataclass(frozen=True)
class OtherFile:
    """Describe a file in mdrun's folder: which bytes belong to a checkpoint, the repeated ones left out."""

    name: str
    size_bytes: int
    repeated: range = range(0)


@dataclass(frozen=True)
class Moment:
    """Describe a checkpoint of mdrun, and the time where its attempt began.

    `is_last`: mdrun wrote it as its last act; `has_left`: mdrun is known to have left by itself; `is_final`: the goal.
    """

    step: int
    begin_ps: float
    end_ps: float
    is_last: bool = False
    has_left: bool = False
    is_final: bool = False


class Others:
    """Find the other files of one attempt, which resumed from `origin`; `are_state`: they are needed to resume."""

    def __init__(self, folder: Path, origin: Checkpoint | None, inputs: Mapping[str, Path], *, are_state: bool) -> None:
        self.folder, self.are_state, self._inputs = folder, are_state, inputs
        self._stored = _files_below(origin.folder / STATE) if origin else {}

    def put_back(self) -> None:
        """Copy the files of the checkpoint into mdrun's folder, in place of the inputs of the same names."""
        for name, source in self._stored.items():
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            copy_head(source, target, source.stat().st_size)

    def at(self, moment: Moment, own: Sequence[str]) -> list[OtherFile]:
        """Return the files as they belong to a moment; raise CheckpointError for one that cannot be cut there.

        `own` are the names of mdrun's own files.
        """
        found = {name: path for name, path in _files_below(self.folder).items() if name not in own}
        names = [name for name, path in found.items() if self._is_other(name, path)]
        return [self._cut(name, moment) if self.are_state else OtherFile(name, _size(found[name])) for name in names]

    def _is_other(self, name: str, path: Path) -> bool:
        source = self._inputs.get(name)
        is_left_out = path.suffix == ".cpt" or _LEFT_OUT.fullmatch(path.name) or _CACHES & set(Path(name).parts)
        if name == EXTENDED_TPR or is_left_out or path.is_symlink() or not path.is_file():
            return False
        if source is None or name in self._stored or not source.is_file():
            return True
        return _size(source) != _size(path) or not _begins_with(path, source)  # a changed input

    def _cut(self, name: str, moment: Moment) -> OtherFile:
        path, stored = self.folder / name, self._stored.get(name)
        size, is_good_end = _size(path), moment.is_last and moment.has_left
        if path.suffix in TRAJECTORIES:
            return OtherFile(name, _frames_before(path, moment, size))
        put_back = _size(stored) if stored and _begins_with(path, stored) else 0
        if stored and put_back == size:
            return OtherFile(name, size)
        again = range(put_back, put_back + (repeated_bytes(path, put_back, moment.begin_ps) if put_back else 0))
        if is_good_end:
            return OtherFile(name, size, again)
        cut = cut_at(path, put_back, moment.end_ps)
        where = f"the checkpoint at {moment.end_ps:.6g} ps"
        if cut is None and not moment.is_last:
            raise CheckpointError(f"{path}: names no time as its first column, so it cannot be cut at {where}")
        if cut is not None and cut.gap_ps > 0:
            what = f"ends {cut.gap_ps:.6g} ps before {where}: the rest was not yet written when mdrun was killed"
            raise CheckpointError(f"{path}: {what}")
        return OtherFile(name, cut.size_bytes if cut else size, again)


def write_others(
    files: Sequence[OtherFile], folder: Path, draft: Path, *, are_state: bool, replica: str = ALONE
) -> None:
    """Copy to the draft of a checkpoint what belongs to it."""
    for file in files:
        target = (draft / STATE if are_state else parts_of(draft, replica) / OTHERS) / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as new:
            append_range(folder / file.name, new, 0, file.repeated.start)
            append_range(folder / file.name, new, file.repeated.stop, max(file.repeated.stop, file.size_bytes))


def collect_others(line: Sequence[Checkpoint], final: Path, replica: str = ALONE) -> None:
    """Copy the other files of an ancestry of checkpoints, oldest first, into the results.

    What several segments wrote, or what has the name of another result, gets a folder of its segment.
    """
    taken = {SEGMENTS, *(path.name for path in final.iterdir())}
    state = _files_below(line[-1].folder / STATE)
    found = {name: [(line[-1].passport.segment, path)] for name, path in state.items()}
    for each in line:
        for name, path in _files_below(parts_of(each.folder, replica) / OTHERS).items():
            found.setdefault(name, []).append((each.passport.segment, path))
    for name, sources in sorted(found.items()):
        is_one = len(sources) == 1 and Path(name).parts[0] not in taken
        for segment, source in sources:
            target = final / name if is_one else _free(final / SEGMENTS / f"{segment:03d}", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_head(source, target, _size(source))


def _free(folder: Path, name: str) -> Path:
    """Return a place in a segment's folder; the second attempt of a segment has a folder of its own."""
    number, found = 2, folder / name
    while found.exists():
        found = folder.with_name(f"{folder.name}.{number}") / name
        number += 1
    return found


def _files_below(folder: Path) -> dict[str, Path]:
    return {str(name): folder / name for name in fs.tree_files(folder)} if folder.is_dir() else {}


def _size(path: Path) -> int:
    return path.stat().st_size


def _frames_before(path: Path, moment: Moment, size: int) -> int:
    """Return the bytes before the checkpoint's step, whose frame the part that resumes there writes again."""
    try:
        return size if moment.is_final else bytes_before(path, moment.step)
    except CheckpointError:
        if not (moment.is_last and moment.has_left):
            raise
        return size


def _begins_with(path: Path, source: Path) -> bool:
    """Return True if a file begins with the bytes of another, by the first and the last of them."""
    size = _size(source)
    if _size(path) < size:
        return False
    with path.open("rb") as ours, source.open("rb") as theirs:
        for at in {0, max(0, size - _COMPARED_BYTES)}:
            ours.seek(at)
            theirs.seek(at)
            length = min(_COMPARED_BYTES, size - at)
            if ours.read(length) != theirs.read(length):
                return False
    return True
