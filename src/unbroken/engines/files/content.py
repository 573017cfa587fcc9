"""Check the bytes of an output file: is it as listed, was it flushed, or is it changed before its end?

An output is compared by the digests of its first and last 64 KiB, and cut to the length that belongs to a state.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.heads import counting_bytes, head_at
from unbroken.system import copying, fs
from unbroken.system.copying import append_range
from unbroken.system.digests import new_hasher

EDGE_BYTES = 64 * 1024
# C's buffers have such sizes: an output whose length is a multiple of one was not flushed by the program.
BUFFER_BYTES = 4096
# Formats that are changed at their beginning or in their middle while they grow, by their first bytes: kept as state.
_CHANGED_INSIDE = (b"\x89HDF\r\n\x1a\n", b"SQLite format 3\0", b"PK\x03\x04", b"- of Ulm")  # Ulm: trajectories of ASE


@dataclass(frozen=True)
class OutputFile:
    """Describe an output file at a checkpoint: `size_bytes` belong to the result, `resume_bytes` to the state.

    `segment` has begun the file.  `is_continued` is True if a resumed program continued in the file that was put
    back, False if it began it again, None if that is not known yet.  `head_base64` is the content of a head that counts
    frames; else empty.  `has_grown` is True for a file that was written at more than one checkpoint, or kept open.
    `is_late` is True for a file of an imported run that was written after its restart files.  `is_silent` is True if
    the program had the file open and had written nothing to it since it was started: its lines may lie in a buffer.
    """

    size_bytes: int
    resume_bytes: int
    head: str  # digests of the first and last bytes
    tail: str
    segment: int
    mtime_ns: int
    is_continued: bool | None = None
    is_rewritten: bool = False
    has_grown: bool = False
    head_base64: str = ""
    is_late: bool = False
    is_silent: bool = False


def described(
    path: Path, size: int, resume: int, *, segment: int, algorithm: str, is_flushed_later: bool = False
) -> OutputFile:
    """Flush an output file to the disk and return what to note of it; raise OSError if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        if not is_flushed_later:
            os.fsync(file.fileno())
        counting, head, tail = _edges(file.fileno(), resume, algorithm)
        counted = base64.b64encode(counting).decode()
        mtime_ns = os.fstat(file.fileno()).st_mtime_ns
    return OutputFile(size, resume, head, tail, segment, mtime_ns, head_base64=counted)


def is_as_listed(path: Path, entry: OutputFile, algorithm: str) -> bool:
    """Return True if the file is at least as long as listed, and begins and ends as it did up to that length."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size < entry.resume_bytes:
        return False
    with path.open("rb", buffering=0) as file:
        return _edges(file.fileno(), entry.resume_bytes, algorithm)[1:] == (entry.head, entry.tail)


def _edges(descriptor: int, length: int, algorithm: str) -> tuple[bytes, str, str]:
    """Return a head that counts frames, and the digests of the other first bytes and of the last ones."""
    head = os.pread(descriptor, min(EDGE_BYTES, length), 0)
    kept = counting_bytes(head)
    begin = max(kept, length - EDGE_BYTES)
    tail = os.pread(descriptor, max(0, length - begin), begin)
    return head_at(head, length), _digest(head[kept:], algorithm), _digest(tail, algorithm)


def _digest(data: bytes, algorithm: str) -> str:
    hasher = new_hasher(algorithm)
    hasher.update(data)
    return hasher.hexdigest()


# --- to what it was ---


def is_changed_inside(path: Path) -> bool:
    """Return True for a format that is changed before its end while it grows: cutting does not restore it."""
    with path.open("rb", buffering=0) as file:
        return file.read(16).startswith(_CHANGED_INSIDE)


def put_head_back(path: Path, entry: OutputFile) -> None:
    """Write the head that counts the frames of a file as it was at the checkpoint."""
    if entry.head_base64:
        with path.open("r+b") as file:
            file.write(base64.b64decode(entry.head_base64))


def cut(path: Path, entry: OutputFile, place: Callable[[], Path]) -> bool:
    """Cut a file to the length that belongs to the state; the tail goes to `place()`.  Return True if there was one."""
    if path.stat().st_nlink > 1:  # a result of the run has the same bytes
        draft = path.with_name(fs.unique_name("private"))
        copying.copy_file(path, draft)
        os.replace(draft, path)
    size = path.stat().st_size
    if size > entry.resume_bytes:
        with place().open("wb") as tail:
            append_range(path, tail, entry.resume_bytes, size)
        with path.open("r+b") as file:
            file.truncate(entry.resume_bytes)
            os.fsync(file.fileno())
    if size > entry.resume_bytes or entry.head_base64:
        put_head_back(path, entry)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
    return size > entry.resume_bytes


# --- buffers ---


def is_buffered(path: Path, length: int, length_before: int) -> bool:
    """Return True if the program had not flushed the file when its length was read.

    That shows in a length of whole buffers, in a text that stops within a line, or in a file that had not grown yet.
    """
    is_whole = length in (0, length_before) or length % BUFFER_BYTES == 0
    return is_whole or stops_within_a_line(path, length)


def is_cut_by_a_buffer(path: Path, length: int, size: int) -> bool:
    """Return True for a text whose length at a save, or whose size now, shows that the program buffers it."""
    found = [each for each in (length, size) if each > 0]
    return any(stops_within_a_line(path, each) or (each % BUFFER_BYTES == 0 and is_text(path)) for each in found)


def stops_within_a_line(path: Path, length: int) -> bool:
    """Return True if the first `length` bytes of a text do not end with a line."""
    end = _end(path, length)
    return bool(end) and _is_text(end) and not end.endswith((b"\n", b"\r"))


def is_text(path: Path) -> bool:
    """Return True for a file whose last bytes are a text."""
    return _is_text(_end(path, path.stat().st_size))


def _end(path: Path, length: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), min(512, length), max(0, length - 512))


def _is_text(data: bytes) -> bool:
    """Return True for UTF-8 without control characters, cut anywhere."""
    if any(byte < 9 or 13 < byte < 27 for byte in data):
        return False
    begin = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        data[begin:].decode()
    except UnicodeDecodeError as error:
        return error.start >= len(data) - begin - 3 and error.reason == "unexpected end of data"
    return True
