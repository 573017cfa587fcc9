"""A checkpoint whose progress is right and whose state is not: what a restore that does not work would put back."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.rehearsal.mixed import mixed, shortened
from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.runs.passport import FILE_NAME, read_passport
from unbroken.runs.progress import FileDigest, amount
from unbroken.runs.store import Store
from unbroken.system import fs
from unbroken.system.digests import digest_file

_DIGITS = re.compile(r"\d+")
# Larger files stay as they are.
LARGEST_BYTES = 1024**3


@dataclass(frozen=True)
class WrongRestore:
    """The checkpoint to go on from, and which of its files hold another state than they should."""

    checkpoint: Checkpoint
    files: tuple[str, ...]

    def describe(self) -> str:
        """Return what is wrong, in a few words: `a wrong state.json at 285 steps`."""
        more = f" and {len(self.files) - 1} more" if self.files[1:] else ""
        progress = self.checkpoint.passport.progress
        return f"a wrong {self.files[0]}{more} at {amount(progress.done)} {progress.unit}"


def made_wrong(run_root: Path, last: Path) -> WrongRestore | None:
    """Leave in a run's folder, as of a run that is done, a newest checkpoint with a wrong state.

    It is the last one before the goal.  What is wrong in it comes from an earlier one, or else from the run's last
    one, a copy of which lies in `last`.  None if there is none before the goal, or all hold the same.
    """
    store = Store(run_root / "checkpoints")
    known = store.readable()
    before = [each for each in known if not each.passport.is_finished]
    if not before:
        return None
    newest = before[-1]
    for each in known:
        if each.age > newest.age:
            shutil.rmtree(each.folder)
    _forget_attempts(run_root)
    others = [each.folder for each in before[:-1]] + [last]
    for change in (_states, _whole_files, _outputs):
        for other in others:
            if changed := dict(change(newest, other)):
                return WrongRestore(_rewritten(newest, changed), tuple(changed))
    return None


def _forget_attempts(run_root: Path) -> None:
    """Remove what says that these segments are done, and what killed attempts left."""
    for name in ("work", "segments", "final", "failed"):
        if (run_root / name).is_dir():
            fs.remove_tree(run_root / name)
    (run_root / "history.jsonl").unlink(missing_ok=True)


def _states(newest: Checkpoint, other: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the state, with what another checkpoint has in those of the same name."""
    for name, right, their in _pairs(newest, other):
        wrong = mixed(right, their, newest.passport.progress.done)
        if wrong is not None:
            yield name, wrong


def _outputs(newest: Checkpoint, other: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that grew, without something that was in them: for a program whose state is its output."""
    for name, right, their in _pairs(newest, other):
        wrong = shortened(right) if _is_growing(right, their) else None
        if wrong is not None:
            yield name, wrong


def _whole_files(newest: Checkpoint, other: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the state as another checkpoint has them: nothing differs in them but the progress."""
    for name, right, their in _pairs(newest, other):
        if not _is_growing(right, their):
            yield name, their


def _is_growing(right: bytes, their: bytes) -> bool:
    return right.startswith(their) or their.startswith(right)


def _pairs(newest: Checkpoint, other: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield each file that another checkpoint has otherwise, be it with another number in its name, and both contents.

    What is a piece of the result by its place is left alone.
    """
    theirs = {_DIGITS.sub("0", str(name)): name for name in fs.tree_files(other) if str(name) != FILE_NAME}
    for name, entry in sorted(newest.passport.files.items()):
        found = theirs.get(_DIGITS.sub("0", name))
        if name.startswith(f"{PARTS}/") or found is None or entry.size_bytes > LARGEST_BYTES:
            continue
        right, their = (newest.folder / name).read_bytes(), (other / found).read_bytes()
        if right != their:
            yield name, right, their


def _rewritten(checkpoint: Checkpoint, changed: Mapping[str, bytes]) -> Checkpoint:
    """Replace the files, which others may be links to, and write a manifest that fits them."""
    files = dict(checkpoint.passport.files)
    for name, content in changed.items():
        path = checkpoint.folder / name
        draft = path.with_name(fs.unique_name("wrong"))
        draft.write_bytes(content)
        shutil.copymode(path, draft)
        os.replace(draft, path)
        files[name] = FileDigest(len(content), digest_file(path, checkpoint.passport.algorithm))
    passport = replace(checkpoint.passport, files=files)
    fs.write_atomic(checkpoint.folder / FILE_NAME, passport.to_text())
    return Checkpoint(checkpoint.folder, read_passport(checkpoint.folder))
