"""The list of output files that belong to a checkpoint, `unbroken-output/list.json` in its folder.

An output file lies once per run, in the program's folder: a checkpoint holds its length and the digests of its first
and last 64 KiB.  What the program writes again from its beginning is copied into the checkpoint, to
`unbroken-output/rewritten`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from unbroken.engines.files.states import LISTED
from unbroken.errors import CheckpointError, FormatError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import RunOutput
from unbroken.system import jsontext
from unbroken.system.digests import new_hasher, preferred_algorithm

LIST = f"{LISTED}/list.json"
REWRITTEN = f"{LISTED}/rewritten"
SCHEMA_VERSION = 1
EDGE_BYTES = 64 * 1024
# C's buffers have such sizes: an output whose length is a multiple of one was not flushed by the program.
BUFFER_BYTES = 4096
# Formats that are changed at their beginning or in their middle while they grow, by their first bytes: kept as state.
_CHANGED_INSIDE = (b"\x89HDF\r\n\x1a\n", b"SQLite format 3\0", b"PK\x03\x04")
# The same for formats that count their frames in the head and only grow behind it: the head is kept, and put back.
# DCD: 4 bytes of length, `CORD`, the number of frames [VMD, plugins/molfile_plugin/src/dcdplugin.c].
# netCDF-3: `CDF`, a version byte, the number of records [Unidata, NetCDF Classic Format Specification].
_COUNTING_HEADS = ((4, b"CORD", 276), (0, b"CDF\x01", 8), (0, b"CDF\x02", 8))


@dataclass(frozen=True)
class OutputFile:
    """An output file at a checkpoint: `size_bytes` belong to the result, `resume_bytes` to the state.

    `segment` has begun the file.  `is_continued` is True if a resumed program went on writing in the file that was put
    back, False if it began it again, None if that is not known yet.  `head_base64` is the content of a head that counts
    frames; else empty.  `has_grown` is True for a file that was written at more than one checkpoint, or kept open.
    `is_late` is True for an imported file that was written after the restart files.  `is_silent` is True if the
    program had the file open and had written nothing to it since it was started: its lines may lie in a buffer.
    """

    size_bytes: int
    resume_bytes: int
    head: str
    tail: str
    segment: int
    mtime_ns: int
    is_continued: bool | None = None
    is_rewritten: bool = False
    has_grown: bool = False
    head_base64: str = ""
    is_late: bool = False
    is_silent: bool = False


@dataclass(frozen=True)
class Piece:
    """An output that a later segment began again: it lies in `pieces/<sequence>/NAME` of the run's folder."""

    name: str
    sequence: int  # of the checkpoint from which that segment resumed
    segment: int  # that began the piece
    size_bytes: int
    head: str  # digests of its first and last bytes
    tail: str

    @property
    def listed(self) -> OutputFile:
        """Return it as an output of its own, to be compared with the file."""
        return OutputFile(self.size_bytes, self.size_bytes, self.head, self.tail, self.segment, 0)


@dataclass(frozen=True)
class OutputList:
    """All outputs at a checkpoint, by their names in the program's folder."""

    files: Mapping[str, OutputFile] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    doubts: tuple[str, ...] = ()
    algorithm: str = field(default_factory=preferred_algorithm)

    def write(self, draft: Path) -> None:
        """Write the list into the draft of a checkpoint."""
        path = draft / LIST
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "schema_version": SCHEMA_VERSION,
            "algorithm": self.algorithm,
            "files": {name: vars(entry) for name, entry in self.files.items()},
            "links": dict(self.links),
            "pieces": [asdict(piece) for piece in self.pieces],
            "doubts": list(self.doubts),
        }
        path.write_text(json.dumps(data) + "\n")

    def with_doubt(self, doubt: str) -> OutputList:
        """Return the list with one more reason why the result may not be that of one uninterrupted run."""
        return self if doubt in self.doubts else replace(self, doubts=(*self.doubts, doubt))


def read_outputs(checkpoint: Checkpoint | None) -> OutputList:
    """Return the outputs of a checkpoint; an empty list where it has none.

    CheckpointError if the list cannot be read, FormatError if a newer unbroken wrote it.
    """
    if checkpoint is None or LIST not in checkpoint.passport.files:
        return OutputList()
    path = checkpoint.folder / LIST
    try:
        data = jsontext.parse(path.read_text())
        if data["schema_version"] > SCHEMA_VERSION:
            raise FormatError(f"{path}: format {data['schema_version']}, this unbroken reads up to {SCHEMA_VERSION}")
        return OutputList(
            {name: OutputFile(**entry) for name, entry in data["files"].items()},
            data["links"],
            tuple(Piece(**piece) for piece in data["pieces"]),
            tuple(data["doubts"]),
            data["algorithm"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a list of outputs ({error!r})") from error


def output_size(listed: OutputList) -> tuple[int, int]:
    """Return how many files the outputs of a checkpoint are, pieces too, and their size in bytes."""
    sizes = [entry.size_bytes for entry in listed.files.values()] + [piece.size_bytes for piece in listed.pieces]
    return len(sizes), sum(sizes)


def outputs_outside(checkpoint: Checkpoint) -> list[RunOutput]:
    """Return the outputs of a checkpoint that lie in the run's folder and not in the checkpoint's own."""
    listed = read_outputs(checkpoint)
    found = [
        RunOutput(
            piece.name,
            piece.size_bytes,
            piece=piece.sequence,
            is_as_listed=partial(_has_what_is_listed, entry=piece.listed, algorithm=listed.algorithm),
        )
        for piece in listed.pieces
    ]
    for name, entry in listed.files.items():
        size = entry.size_bytes if checkpoint.passport.is_finished else entry.resume_bytes
        if size >= 0 and not entry.is_rewritten:
            found.append(
                RunOutput(
                    name,
                    size,
                    max(entry.resume_bytes, 0),
                    f"{entry.head} {entry.tail}",
                    head=base64.b64decode(entry.head_base64),
                    mtime_ns=entry.mtime_ns,
                    is_as_listed=partial(_has_what_is_listed, entry=entry, algorithm=listed.algorithm),
                )
            )
    return found


def _has_what_is_listed(path: Path, entry: OutputFile, algorithm: str) -> bool:
    return entry.resume_bytes < 0 or is_as_listed(path, entry, algorithm)


def described(
    path: Path, size: int, resume: int, segment: int, algorithm: str, is_flushed_later: bool = False
) -> OutputFile:
    """Flush an output file to the disk and return what to note of it; OSError if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        if not is_flushed_later:
            os.fsync(file.fileno())
        found = os.fstat(file.fileno())
        head, kept = _head(file.fileno(), resume)
        return OutputFile(
            size_bytes=size,
            resume_bytes=resume,
            head=_digest(_without_head(head, kept), algorithm),
            tail=_digest(_tail(file.fileno(), resume, kept), algorithm),
            segment=segment,
            mtime_ns=found.st_mtime_ns,
            head_base64=base64.b64encode(head[:kept]).decode(),
        )


def is_as_listed(path: Path, entry: OutputFile, algorithm: str) -> bool:
    """Return True if the file is at least as long as listed, and begins and ends as it did up to that length."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size < entry.resume_bytes:
        return False
    with path.open("rb", buffering=0) as file:
        head, kept = _head(file.fileno(), entry.resume_bytes)
        if _digest(_without_head(head, kept), algorithm) != entry.head:
            return False
        return _digest(_tail(file.fileno(), entry.resume_bytes, kept), algorithm) == entry.tail


def is_changed_inside(path: Path) -> bool:
    """Return True for a format that is changed before its end while it grows: cutting does not restore it."""
    with path.open("rb", buffering=0) as file:
        return file.read(16).startswith(_CHANGED_INSIDE)


def put_head_back(path: Path, entry: OutputFile) -> None:
    """Write the head that counts the frames of a file as it was at the checkpoint."""
    if entry.head_base64:
        with path.open("r+b") as file:
            file.write(base64.b64decode(entry.head_base64))


def is_buffered(path: Path, length: int, length_before: int) -> bool:
    """Return True if the program had not flushed the file when its length was read.

    That shows in a length of whole buffers, in a text that stops within a line, or in a file that had not grown yet.
    """
    if length == length_before or length == 0:
        return True
    if length % BUFFER_BYTES == 0:
        return True
    return stops_within_a_line(path, length)


def stops_within_a_line(path: Path, length: int) -> bool:
    """Return True for a text of which the first `length` bytes do not end with a line."""
    end = _end(path, length)
    return bool(end) and _is_text(end) and not end.endswith((b"\n", b"\r"))


def is_cut_by_a_buffer(path: Path, length: int, size: int) -> bool:
    """Return True for a text whose length at a save, or whose size now, shows that the program buffers it."""
    found = [each for each in (length, size) if each > 0]
    return any(stops_within_a_line(path, each) or (each % BUFFER_BYTES == 0 and is_text(path)) for each in found)


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


def _head(descriptor: int, length: int) -> tuple[bytes, int]:
    """Return the first bytes, and how many of them are a head that counts frames."""
    head = os.pread(descriptor, min(EDGE_BYTES, length), 0)
    for at, magic, kept in _COUNTING_HEADS:
        if head[at : at + len(magic)] == magic and len(head) >= kept:
            return head, kept
    return head, 0


def _without_head(head: bytes, kept: int) -> bytes:
    return head[kept:]


def _tail(descriptor: int, length: int, kept: int) -> bytes:
    begin = max(kept, length - EDGE_BYTES)
    return os.pread(descriptor, max(0, length - begin), begin)


def _digest(data: bytes, algorithm: str) -> str:
    hasher = new_hasher(algorithm)
    hasher.update(data)
    return hasher.hexdigest()
