"""Make a checkpoint whose progress is right and whose state is not: what a broken restore would put back."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.rehearsal.stage import without_numbers
from unbroken.rehearsal.states import members
from unbroken.store.checkpoint import FILE_NAME, PARTS, Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.store.progress import FileDigest, amount
from unbroken.system import fs
from unbroken.system.digests import digest_file

_NUMBER = re.compile(rb"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_PLAIN = (".pkl", ".json")  # members of an archive that hold steps, and no tensors
_BLOCKS = 4096
_NOT_OF_THAT_FORMAT = (ValueError, zipfile.BadZipFile, RecursionError, OverflowError)
# Larger files stay as they are.
LARGEST_BYTES = 1024**3


def make_wrong(places: RunFolder) -> tuple[Checkpoint, str] | None:
    """Leave the last checkpoint before the goal as a run's newest, with a wrong state; return it, and what is wrong.

    What is wrong in it comes from another checkpoint.  None if there is none before the goal, or all hold the same.
    """
    known = Store(places.checkpoints).readable()
    before = [each for each in known if not each.passport.is_finished]
    if not before or not (wrong := _wrong_files(before[-1], [*before[:-1], known[-1]])):
        return None
    newest = before[-1]
    for folder in (places.work, places.segments, places.final, places.root / "failed"):
        shutil.rmtree(folder, ignore_errors=True)
    places.history.unlink(missing_ok=True)
    for each in known:
        if each.age > newest.age:
            shutil.rmtree(each.folder)
    _rewrite(newest, wrong)
    files = f"{next(iter(wrong))}{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}"
    return newest, f"a wrong {files} at {amount(newest.passport.progress.done)} {newest.passport.progress.unit}"


def _wrong_files(newest: Checkpoint, others: Sequence[Checkpoint]) -> dict[str, bytes]:
    """Return what to write into a checkpoint: the state of another one, the earliest that differs."""
    done = newest.passport.progress.done
    # The state; all of it where it is nothing but the progress; output, where there is no state.
    changes: tuple[Callable[[bytes, bytes], bytes], ...] = (
        lambda right, other: right if _is_growing(right, other) else mixed(right, other, done),
        lambda right, other: right if _is_growing(right, other) else other,
        lambda right, other: shortened(right) if _is_growing(right, other) else right,
    )
    for change in changes:
        for other in others:
            pairs = _pairs(newest, other.folder)
            if wrong := {name: data for name, right, their in pairs if (data := change(right, their)) != right}:
                return wrong
    return {}


def _pairs(newest: Checkpoint, other: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield each file that another checkpoint has otherwise, maybe with another number in its name, and both contents.

    Pieces of the result are left alone.
    """
    theirs = {without_numbers(str(name)): name for name in fs.tree_files(other)}
    for name, entry in sorted(newest.passport.files.items()):
        found = theirs.get(without_numbers(name))
        if found is not None and entry.size_bytes <= LARGEST_BYTES and not name.startswith(f"{PARTS}/"):
            right, their = (newest.folder / name).read_bytes(), (other / found).read_bytes()
            if right != their:
                yield name, right, their


def _rewrite(checkpoint: Checkpoint, changed: Mapping[str, bytes]) -> None:
    """Replace the files, which others may be links to, and write a manifest that fits them."""
    files = dict(checkpoint.passport.files)
    for name, content in changed.items():
        path = checkpoint.folder / name
        draft = path.with_name(fs.unique_name("wrong"))
        draft.write_bytes(content)
        shutil.copymode(path, draft)
        os.replace(draft, path)
        files[name] = FileDigest(len(content), digest_file(path, checkpoint.passport.algorithm))
    fs.write_atomic(checkpoint.folder / FILE_NAME, replace(checkpoint.passport, files=files).to_text())


# --- files ---


def _is_growing(right: bytes, other: bytes) -> bool:
    """Return True for output: one of the two continues where the other ends."""
    return right.startswith(other) or other.startswith(right)


def mixed(right: bytes, other: bytes, done: float) -> bytes:
    """Return `right` with what `other` has in it, but for numbers that are `done`, the progress."""
    for mix in (_archive, _json, _text):
        try:
            if (found := mix(right, other, done)) is not None:  # it is of that format
                return found
        except _NOT_OF_THAT_FORMAT:
            continue
    return _half(right, other)


def shortened(data: bytes) -> bytes:
    """Return an output without one of its last lines, or with another last byte."""
    lines = data.splitlines(keepends=True)
    if len(lines) > 2 and b"\0" not in data:
        return b"".join([*lines[:-2], lines[-1]])
    return data[:-1] + bytes([data[-1] ^ 1]) if data else data


def _archive(right: bytes, other: bytes, _done: float) -> bytes | None:
    """Mix archives of torch.save, NumPy or Keras: all members of the same size are the other's, but for plain ones."""
    if not (right.startswith(b"PK") and other.startswith(b"PK")):
        return None
    # torch.save calls the folder in it after the file.
    theirs = {info.filename.partition("/")[2] or info.filename: data for info, data in members(other)}
    target, is_changed = io.BytesIO(), False
    with zipfile.ZipFile(target, "w") as new:
        for info, data in members(right):
            given = theirs.get(info.filename.partition("/")[2] or info.filename, data)
            if len(given) != len(data) or info.filename.endswith(_PLAIN):
                given = data
            made = zipfile.ZipInfo(info.filename, info.date_time)
            made.compress_type = info.compress_type
            new.writestr(made, given)
            is_changed |= given != data
    return target.getvalue() if is_changed else right


def _json(right: bytes, other: bytes, done: float) -> bytes | None:
    if right[:1].strip() not in (b"{", b"["):
        return None
    value = json.loads(right)
    found = _mixed_value(value, json.loads(other), done)
    return right if found == value else json.dumps(found).encode() + (b"\n" if right.endswith(b"\n") else b"")


def _mixed_value(right: object, other: object, done: float) -> object:
    if isinstance(right, Mapping) and isinstance(other, Mapping):
        return {key: _mixed_value(value, other.get(key, value), done) for key, value in right.items()}
    if isinstance(right, list) and isinstance(other, list):
        pairs = zip(right, [*other, *right[len(other) :]], strict=False)
        return [_mixed_value(a, b, done) for a, b in pairs]
    is_kept = type(right) is not type(other) or (isinstance(right, (int, float)) and right == done)
    return right if is_kept else other


def _text(right: bytes, other: bytes, done: float) -> bytes | None:
    """Mix texts with the same words, and as many numbers in each."""
    ours, theirs = _NUMBER.split(right), _NUMBER.split(other)  # numbers stand at the odd places
    if b"\0" in right + other or ours[::2] != theirs[::2]:
        return None
    (right + other).decode()
    is_number = (at % 2 == 1 for at in range(len(ours)))
    return b"".join(b if is_it and float(a) != done else a for a, b, is_it in zip(ours, theirs, is_number, strict=True))


def _half(right: bytes, other: bytes) -> bytes:
    """Return the file with the later half of what differs, as far as both go, from the other."""
    length = min(len(right), len(other))
    one, two = right[:length], other[:length]
    size = max(1, length // _BLOCKS)
    places = [at for at in range(0, length, size) if one[at : at + size] != two[at : at + size]]
    if len(places) == 1:
        begin = places[0]
        places = [at for at in range(begin, min(begin + size, length)) if one[at] != two[at]]
    middle = places[len(places) // 2] if places else length
    return one[:middle] + two[middle:] + right[length:]
