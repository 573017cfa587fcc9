"""Write a file of tensors and its digest, both in one pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from unbroken.errors import CheckpointError
from unbroken.store.progress import FileDigest
from unbroken.system import fs
from unbroken.system.digests import Hasher, digest_file, new_hasher, preferred_algorithm
from unbroken.training.torch.state import canonical, tensor_bytes

# In `finish`, the name of a file in that format.
SAFETENSORS = ".safetensors"
# Small enough that what was just written is still in the processor's cache when it is digested.
CHUNK_BYTES = 1024 * 1024
# blake2b would more than double the time of a save; the parent process can do it while the training continues.
INLINE_ALGORITHM = "xxh3_128"
_SWITCH = threading.Lock()


def save_verified(obj: object, path: Path, *, zip_checksums: bool = False, **options: Any) -> FileDigest | None:
    """Save like `torch.save` and return size and digest; return None if xxhash is missing (digest the file later).

    `options` are those of `torch.save`.

    The zip checksums (CRC-32) inside the file are left out, because torch never looks at them and the digest finds
    more in less time; other programs that unzip the file need `zip_checksums=True`.  Nothing is flushed to the disk.
    Raise StorageError if the disk is full; the file is not usable then.
    """
    is_inline = preferred_algorithm() == INLINE_ALGORITHM
    hasher = new_hasher(INLINE_ALGORITHM) if is_inline else None
    with (
        fs.storage_errors(path, tensor_bytes(obj)),
        path.open("wb", buffering=CHUNK_BYTES) as file,
        ExitStack() as switch,
    ):
        # The switch is one for the whole process, in which the user may save something in another thread.  torch has
        # read it when it writes the first byte.
        switch.enter_context(_zip_checksums(are_wanted=zip_checksums or not is_inline))
        writer = _Writer(file, hasher, switch.close)
        try:
            torch.save(obj, writer, **options)  # type: ignore[arg-type]
        except RuntimeError as error:  # about the zip archive, in place of the error of `write`
            raise writer.error or error from None
    return FileDigest(writer.size_bytes, hasher.hexdigest()) if hasher else None


def digest_of(path: Path) -> FileDigest:
    """Return size and digest of a file."""
    return FileDigest(path.stat().st_size, digest_file(path, preferred_algorithm()))


class _Writer:
    """Provide what torch.save needs of a file; `error` is why a write failed."""

    def __init__(self, file: BinaryIO, hasher: Hasher | None, begin: Callable[[], None]) -> None:
        self.size_bytes = 0
        self.error: OSError | None = None
        self._file, self._hasher, self._begin = file, hasher, begin

    def write(self, data: bytes | memoryview) -> int:
        self._begin()
        view = memoryview(data)
        try:
            for start in range(0, len(view), CHUNK_BYTES):
                chunk = view[start : start + CHUNK_BYTES]
                self._file.write(chunk)
                if self._hasher:
                    self._hasher.update(chunk)
        except OSError as error:
            self.error = error
            raise
        self.size_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def _zip_checksums(*, are_wanted: bool) -> Iterator[None]:
    """Set torch's switch for zip checksums inside the context."""
    with _SWITCH:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(are_wanted)
        try:
            yield
        finally:
            torch.serialization.set_crc32_options(before)


def save_result(path: Path, content: object) -> FileDigest | None:
    """Save a result of a finished training, by the ending of its name."""
    if path.suffix == SAFETENSORS:
        _save_safetensors(path, content)
        return None
    with suppress(CheckpointError):  # it is the user's own file: what torch.save can write is good enough
        content = canonical(content, path.name)
    return save_verified(content, path, zip_checksums=True)


def _save_safetensors(path: Path, content: object) -> None:
    """Save a dictionary of tensors; raise CheckpointError if they share memory, or the package is missing."""
    try:
        from safetensors.torch import save_file

        save_file({name: value.detach().cpu().contiguous() for name, value in dict(content).items()}, path)  # type: ignore[call-overload]
    except ImportError as error:
        raise CheckpointError(f"finish(): {path.name} needs a package; type pip install safetensors") from error
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        found = str(error).strip().splitlines()[0]
        raise CheckpointError(f"finish(): {path.name}: {found}; allowed: a dictionary of tensors by name") from error
