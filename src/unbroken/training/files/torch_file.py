"""Write torch files that are complete or absent, each with a digest that is checked before anything is loaded.

The digest of `model.pt` is in `model.pt.digest`, next to it.  While the file is replaced, it names the old content and
the new one, so that a kill at any moment leaves a file that proves to be one of the two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import reading
from unbroken.store.progress import FileDigest
from unbroken.system import fs
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.torch.serialization import INLINE_ALGORITHM, save_verified
from unbroken.training.torch.state import tensor_bytes, torch_load

DIGEST_SUFFIX = ".digest"

Location = str | os.PathLike[str]


def atomic_torch_save(obj: object, path: Location, **options: Any) -> FileDigest:
    """Save like `torch.save(obj, path)`, completely or not at all, and return size and digest.

    The file is on the disk when this returns, and so is the digest next to it.  A kill leaves the earlier file.  One
    process may write a file at a time; `options` are those of `torch.save`.  Raise StorageError if the disk is full.
    """
    target = Path(path)
    with _draft_of(target, tensor_bytes(obj)) as draft:
        made = save_verified(obj, draft, zip_checksums=True, **options)
        entry = _Entry(INLINE_ALGORITHM, made) if made else _digested(draft)
        fs.flush(draft)
        _show(draft, target, entry)
    return entry.made


def verified_torch_load(
    path: Location, *, trusted: bool = False, map_location: str | torch.device | None = "cpu"
) -> Any:
    """Load what `atomic_torch_save` saved, after every byte is checked and before torch opens the file.

    Only tensors, numbers, text and containers of them are loaded (`weights_only=True`); whole models and other pickled
    objects run code when they are loaded, so they are refused unless the file is `trusted`: made by yourself.  Raise
    CheckpointError if it is bad.
    """
    check_file(path)
    try:
        return torch_load(Path(path), map_location=map_location, weights_only=not trusted)
    except Exception as error:  # what is in the file decides what loading it raises
        raise CheckpointError(_refusal(Path(path), error, trusted=trusted)) from error


def check_file(path: Location) -> None:
    """Read a file of `atomic_torch_save` again; raise CheckpointError if it, or its digest, is not as written."""
    target = Path(path)
    entries = _read_entries(target)
    if not entries:
        raise CheckpointError(
            f"{target}: there is no {target.name}{DIGEST_SUFFIX} beside it; allowed: files that atomic_torch_save "
            "wrote; others load with torch.load(..., weights_only=True)"
        )
    with reading(target):
        size = target.stat().st_size
        fitting = [entry for entry in entries if entry.made.size_bytes == size]
        if not fitting:
            raise CheckpointError(f"{target}: {size} bytes, written with {entries[0].made.size_bytes}")
        if not any(digest_file(target, entry.algorithm) == entry.made.digest for entry in fitting):
            raise CheckpointError(f"{target}: the content changed since it was written (digest)")


@dataclass(frozen=True)
class _Entry:
    """Hold the digest of one content that the file may have."""

    algorithm: str
    made: FileDigest


def _show(draft: Path, target: Path, entry: _Entry) -> None:
    """Put the flushed draft into its place; before and after each step the file fits its digests."""
    before = [] if not target.exists() else _read_entries(target) or [_digested(target)]
    _write_entries(target, [entry, *before])
    os.replace(draft, target)
    fs.flush(target.parent)
    if before:
        _write_entries(target, [entry])


@contextmanager
def _draft_of(target: Path, size_bytes: int) -> Iterator[Path]:
    """Yield the path of a new file that takes the target's place, and is removed if it does not come to that.

    What killed writers of this file left half done is removed first.
    """
    for name in (target.name, _beside(target).name):
        fs.remove_drafts(target.parent, fs.DRAFT_SECONDS, name)
    draft = target.with_name(fs.unique_name(target.name))
    with fs.storage_errors(target, size_bytes):
        try:
            yield draft
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _digested(path: Path) -> _Entry:
    algorithm = preferred_algorithm()
    return _Entry(algorithm, FileDigest(path.stat().st_size, digest_file(path, algorithm)))


def _write_entries(target: Path, entries: Iterable[_Entry]) -> None:
    rows = [{"algorithm": entry.algorithm, **vars(entry.made)} for entry in entries]
    fs.write_atomic(_beside(target), json.dumps(rows, indent=1) + "\n")


def _read_entries(target: Path) -> list[_Entry]:
    """Return the digests that the file may have, the newest first; none if there is no digest file."""
    path = _beside(target)
    with reading(path):
        try:
            rows = json.loads(path.read_text())
            return [_Entry(row["algorithm"], FileDigest(row["size_bytes"], row["digest"])) for row in rows]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: not what atomic_torch_save wrote ({error!r})") from error


def _beside(target: Path) -> Path:
    return target.with_name(target.name + DIGEST_SUFFIX)


def _refusal(path: Path, error: Exception, *, trusted: bool) -> str:
    if trusted or ("weights_only" not in str(error).lower() and "Unsupported" not in str(error)):
        return f"{path}: cannot be read ({error})"
    found = ", ".join(torch.serialization.get_unsafe_globals_in_checkpoint(path)) or "pickled objects"
    return (
        f"{path}: holds {found}, which can run code when it is loaded; allowed: tensors, numbers, text and containers "
        "of them; if you made the file yourself, type: trusted=True"
    )
