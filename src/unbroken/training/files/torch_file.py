"""Write torch files that are complete or absent, each with a digest at its end that is checked before it is loaded.

The digest is one line after what `torch.save` wrote, which torch and unzip read past.  The CRC-32 of the zip format
would not do: it does not cover the table of contents, and with some flipped bits there torch loads other memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import reading
from unbroken.system import fs
from unbroken.system.digests import CHUNK_BYTES, digest_file, new_hasher
from unbroken.training.torch.serialization import INLINE_ALGORITHM, save_verified
from unbroken.training.torch.state import tensor_bytes, torch_load

_LINE = re.compile(rb"\nunbroken (xxh3_128|blake2b ) ([0-9a-f]{32})\n")
_LINE_BYTES = 52

Location = str | os.PathLike[str]


def atomic_torch_save(obj: object, path: Location, **options: Any) -> None:
    """Save like `torch.save(obj, path)`, completely or not at all, with a digest at the end.

    The file is on the disk when this returns.  A kill leaves the earlier file.  One process may write a file at a time;
    `options` are those of `torch.save`.  Raise StorageError if the disk is full.
    """
    target = Path(path)
    with _draft_of(target, tensor_bytes(obj)) as draft:
        made = save_verified(obj, draft, zip_checksums=True, **options)
        algorithm = INLINE_ALGORITHM if made else "blake2b"
        digest = made.digest if made else digest_file(draft, algorithm)
        with draft.open("ab") as file:
            file.write(f"\nunbroken {algorithm:8} {digest}\n".encode())
        fs.flush(draft)
        os.replace(draft, target)
        fs.flush(target.parent)


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
    """Read a file of `atomic_torch_save` again; raise CheckpointError if any byte of it is not as written."""
    target = Path(path)
    with reading(target), target.open("rb", buffering=0) as file:
        size = max(file.seek(0, os.SEEK_END) - _LINE_BYTES, 0)
        file.seek(size)
        found = _LINE.fullmatch(file.read())
        if found is None:
            raise CheckpointError(
                f"{target}: no digest is at its end; allowed: complete files that atomic_torch_save wrote; others load "
                "with torch.load(..., weights_only=True)"
            )
        hasher = new_hasher(found[1].decode().strip())
        file.seek(0)
        for left in range(size, 0, -CHUNK_BYTES):
            hasher.update(file.read(min(left, CHUNK_BYTES)))
    if hasher.hexdigest() != found[2].decode():
        raise CheckpointError(f"{target}: the content changed since it was written (digest)")


@contextmanager
def _draft_of(target: Path, size_bytes: int) -> Iterator[Path]:
    """Yield the path of a new file that takes the target's place, and is removed if it does not come to that.

    What killed writers of this file left half done is removed first.
    """
    fs.remove_drafts(target.parent, fs.DRAFT_SECONDS, target.name)
    draft = target.with_name(fs.unique_name(target.name))
    with fs.storage_errors(target, size_bytes):
        try:
            yield draft
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _refusal(path: Path, error: Exception, *, trusted: bool) -> str:
    if trusted or ("weights_only" not in str(error).lower() and "Unsupported" not in str(error)):
        return f"{path}: cannot be read ({error})"
    found = ", ".join(torch.serialization.get_unsafe_globals_in_checkpoint(path)) or "pickled objects"
    return (
        f"{path}: holds {found}, which can run code when it is loaded; allowed: tensors, numbers, text and containers "
        "of them; if you made the file yourself, type: trusted=True"
    )
