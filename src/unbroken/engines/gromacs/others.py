"""Keeps the files of mdrun's folder that are none of its own, such as PLUMED's tables, each cut at its checkpoint.

A checkpoint has in `parts/others` what its segment added to each of them: the bytes behind those that were put back,
or all of a file that the segment began again.  With PLUMED it has each complete file, too, in `state/`, which is put
back as a copy: PLUMED reads its hills from there, and continues in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.gromacs.command import EXTENDED_TPR
from unbroken.engines.gromacs.cut import bytes_before
from unbroken.engines.gromacs.parts import parts_of
from unbroken.engines.gromacs.settings import ALONE
from unbroken.engines.gromacs.time_table import Span, cut_at
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.system import fs
from unbroken.system.copying import append_range, copy_head

STATE, OTHERS, INDEX = "state", "others", "others.json"
_TRAJECTORIES = (".xtc", ".trr")
_COMPARED_BYTES = 64 * 1024
# Left by a program that crashes, and what it can make again.
_LEFT_OUT = re.compile(r"core(\.\d+)?")
_CACHES = {"__pycache__", ".cache"}


@dataclass(frozen=True)
class OtherFile:
    """Describe a file in mdrun's folder: what was put back, whether the program continued in it, how much counts."""

    name: str
    put_back_bytes: int
    is_continued: bool
    size_bytes: int


@dataclass(frozen=True)
class Moment:
    """Describe a checkpoint of mdrun and the span up to it.

    `is_last`: mdrun wrote it as its last act; `is_good_end`: and it is known to have left by itself.
    """

    step: int
    span: Span
    dt_ps: float
    is_last: bool
    is_good_end: bool


class Others:
    """Find the other files of one attempt, which resumed from `origin`; `are_state`: they are needed to resume."""

    def __init__(self, folder: Path, origin: Checkpoint | None, inputs: Mapping[str, Path], *, are_state: bool) -> None:
        self.folder, self.are_state = folder, are_state
        self._origin = origin.folder / STATE if origin else None
        self._inputs = inputs

    def put_back(self) -> None:
        """Copy the files of the checkpoint into mdrun's folder, in place of the inputs of the same names."""
        for name, source in self._stored().items():
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            copy_head(source, target, source.stat().st_size)

    def at(self, moment: Moment, own: Sequence[str]) -> list[OtherFile]:
        """Return the files as they belong to a moment; CheckpointError names one that cannot be cut there.

        `own` are the names of mdrun's own files.
        """
        stored = self._stored()
        return [found for name in self._names(own) if (found := self._cut(name, stored.get(name), moment)) is not None]

    def _names(self, own: Sequence[str]) -> list[str]:
        found = []
        for path in fs.tree_files(self.folder):
            name, full = str(path), self.folder / path
            is_own = name in own or name == EXTENDED_TPR or path.suffix == ".cpt"
            is_left_out = is_own or _LEFT_OUT.fullmatch(path.name) or _CACHES & set(path.parts)
            if full.is_symlink() or not full.is_file() or is_left_out or self._is_unchanged_input(name):
                continue
            found.append(name)
        return found

    def _is_unchanged_input(self, name: str) -> bool:
        source = self._inputs.get(name)
        if source is None or name in self._stored() or not source.is_file():
            return False
        size = source.stat().st_size
        return size == (self.folder / name).stat().st_size and _begins_with(self.folder / name, source, size)

    def _cut(self, name: str, stored: Path | None, moment: Moment) -> OtherFile | None:
        path = self.folder / name
        size, before = path.stat().st_size, stored.stat().st_size if stored else 0
        is_continued = stored is not None and size >= before and _begins_with(path, stored, before)
        whole = OtherFile(name, before if is_continued else 0, is_continued, size)
        if path.suffix in _TRAJECTORIES and (self.are_state or not moment.is_good_end):
            return replace(whole, size_bytes=_frames_before(path, moment))
        if moment.is_good_end or (is_continued and size == before):
            return whole
        cut = cut_at(path, whole.put_back_bytes, moment.span)
        if cut is None:
            return self._uncut(whole, moment)
        if cut.gap_ps > 0 and self.are_state:
            raise CheckpointError(
                f"{path}: ends {cut.gap_ps:.6g} ps before the checkpoint at {moment.span.end_ps:.6g} ps: the rest was "
                "not yet written when mdrun was killed"
            )
        return replace(whole, size_bytes=cut.size_bytes)

    def _uncut(self, whole: OtherFile, moment: Moment) -> OtherFile | None:
        """A file without times: it is needed at exactly this moment, or it is only output."""
        if moment.is_last or not self.are_state:
            return whole
        raise CheckpointError(
            f"{self.folder / whole.name}: has no times in its first column, so it cannot be cut at the checkpoint at "
            f"{moment.span.end_ps:.6g} ps"
        )

    def _stored(self) -> dict[str, Path]:
        if self._origin is None or not self._origin.is_dir():
            return {}
        return {str(name): self._origin / name for name in fs.tree_files(self._origin)}


def write_others(
    files: Sequence[OtherFile],
    folder: Path,
    draft: Path,
    before: Sequence[OtherFile] = (),
    *,
    are_state: bool,
    replica: str = ALONE,
) -> None:
    """Copy to the draft of a checkpoint what belongs to it; `before` lies in the earlier one of the same part."""
    earlier = {file.name: file.size_bytes for file in before}
    index = {}
    for file in files:
        begin = earlier.get(file.name, file.put_back_bytes)
        index[file.name] = file.is_continued or file.name in earlier
        if file.size_bytes > begin or not index[file.name]:
            target = parts_of(draft, replica) / OTHERS / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as piece:
                append_range(folder / file.name, piece, begin, file.size_bytes)
        if are_state:
            target = draft / STATE / replica / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_head(folder / file.name, target, file.size_bytes)
    if index:
        (parts_of(draft, replica) / INDEX).write_text(json.dumps(index) + "\n")


def _frames_before(path: Path, moment: Moment) -> int:
    """A frame of the checkpoint's step is written again by the part that resumes there."""
    try:
        return bytes_before(path, path.suffix, moment.step, moment.span.end_ps, moment.dt_ps)
    except CheckpointError:
        if not moment.is_good_end:
            raise
        return path.stat().st_size


def _begins_with(path: Path, source: Path, size_bytes: int) -> bool:
    """True if a file begins with the bytes of another, by the first and the last of them."""
    places = {0, max(0, size_bytes - _COMPARED_BYTES)}
    with path.open("rb") as ours, source.open("rb") as theirs:
        for at in places:
            ours.seek(at)
            theirs.seek(at)
            length = min(_COMPARED_BYTES, size_bytes - at)
            if ours.read(length) != theirs.read(length):
                return False
    return True
