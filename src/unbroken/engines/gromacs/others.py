"""Keep the files of mdrun's folder that are none of its own, such as PLUMED's tables.

Without PLUMED they are output: a checkpoint has in `parts/others` all that its segment wrote.  With PLUMED they are
needed to resume: the checkpoint with which mdrun leaves has them in `state/`, and they are put back as copies.  PLUMED
reads its hills from there, and continues in the file.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbroken.engines.gromacs.command import ALONE
from unbroken.engines.gromacs.tpr import EXTENDED_TPR
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.system import fs
from unbroken.system.copying import copy_head

_STATE, _OTHERS, _SEGMENTS = "state", "others", "segments"
# What mdrun does not need again, and what a program that crashes leaves.
_LEFT_OUT = re.compile(r"core(\.\d+)?|.*\.cpt")
_CACHES = {"__pycache__", ".cache"}
# The head of a table of PLUMED whose first column is the time.
_OF_TIMES = b"#! FIELDS time"


class Others:
    """Handle the other files of one attempt, which resumed from `origin`; `are_state`: they are needed to resume."""

    def __init__(self, folder: Path, origin: Checkpoint | None, inputs: Mapping[str, Path], *, are_state: bool) -> None:
        self.folder, self.are_state, self._inputs = folder, are_state, inputs
        self._stored = _files_below(origin.folder / _STATE) if origin else {}

    def put_in(self) -> None:
        """Fill mdrun's folder: the inputs as links, or as copies that PLUMED may change, and the checkpoint's files."""
        for name, path in self._inputs.items():
            if self.are_state and path.is_file():
                _copy(path, self.folder / name)
            else:
                (self.folder / name).symlink_to(path)
        self.put_back()

    def put_back(self) -> None:
        """Copy the files of the checkpoint into mdrun's folder, in place of the inputs of the same names."""
        for name, source in self._stored.items():
            (self.folder / name).unlink(missing_ok=True)
            _copy(source, self.folder / name)

    def write(self, draft: Path, own: Sequence[str], replica: str = ALONE) -> None:
        """Copy the files to the draft of a checkpoint; `own` are the names of mdrun's own files."""
        target = draft / _STATE if self.are_state else draft / PARTS / replica / _OTHERS
        for name, path in _files_below(self.folder).items():
            if name not in own and name != EXTENDED_TPR and self._is_other(name, path):
                _copy(path, target / name)

    def _is_other(self, name: str, path: Path) -> bool:
        is_left_out = _LEFT_OUT.fullmatch(path.name) or not _CACHES.isdisjoint(Path(name).parts)
        if is_left_out or path.is_symlink() or not path.is_file():
            return False
        source = self._inputs.get(name)
        is_new = source is None or name in self._stored or not source.is_file()
        return is_new or (source is not None and not filecmp.cmp(path, source, shallow=False))


def collect_others(line: Sequence[Checkpoint], final: Path, replica: str = ALONE) -> None:
    """Copy the other files of an ancestry of checkpoints, oldest first, into the results.

    What several segments wrote, or what has the name of another result, gets a folder of its segment.
    """
    taken = {_SEGMENTS, *(path.name for path in final.iterdir())}
    state = _files_below(line[-1].folder / _STATE)
    found = {name: [(line[-1].passport.segment, path)] for name, path in state.items()}
    for each in line:
        for name, path in _files_below(each.folder / PARTS / replica / _OTHERS).items():
            found.setdefault(name, []).append((each.passport.segment, path))
    for name, sources in sorted(found.items()):
        is_one = len(sources) == 1 and Path(name).parts[0] not in taken
        for segment, source in sources:
            target = final / name if is_one else _free(final / _SEGMENTS / f"{segment:03d}", name)
            _copy(source, target)
            if name in state:
                drop_repeated(target)


def drop_repeated(table: Path) -> None:
    """Take each head of a table of times once, and the row after it: PLUMED prints them again where it resumes."""
    with table.open("rb") as old:
        if not old.readline().startswith(_OF_TIMES):
            return
        old.seek(0)
        kept, heads, before, is_resumed = table.with_name(fs.unique_name(table.name)), set[bytes](), b"", False
        with kept.open("wb") as new:
            for line in old:
                is_head, is_same_time = line.startswith(b"#"), line.split()[:1] == before.split()[:1]
                is_again = line in heads if is_head else line == before or (is_resumed and is_same_time)
                if not is_again:
                    new.write(line)
                heads |= {line} if is_head else set()
                before, is_resumed = (before, is_again) if is_head else (line, False)
    kept.replace(table)


def _free(folder: Path, name: str) -> Path:
    """Return a place in a segment's folder; the second attempt of a segment has a folder of its own."""
    number, found = 2, folder / name
    while found.exists():
        found = folder.with_name(f"{folder.name}.{number}") / name
        number += 1
    return found


def _files_below(folder: Path) -> dict[str, Path]:
    return {str(name): folder / name for name in fs.tree_files(folder)} if folder.is_dir() else {}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_head(source, target, source.stat().st_size)
