"""Half of one save and half of another: a file that a program reads without complaint, and that holds a wrong state.

The number of steps stays as it is, so that a program works as much as it would from the right state.  Formats that are
known here keep their structure; of any other file the later half of what differs is taken.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Mapping

_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_PICKLE = ".pkl"
_BLOCKS = 4096
_READ_FAILED = (ValueError, zipfile.BadZipFile, RecursionError, OverflowError)


def mixed(right: bytes, other: bytes, done: float) -> bytes | None:
    """Return `right` with what `other` has in it, but for numbers that are `done`, the progress.

    None if that changes nothing, also where one of the two only goes on where the other ends: output, and no state.
    """
    if right.startswith(other) or other.startswith(right):
        return None
    for mix in (_zip, _safetensors, _json, _text):
        try:
            found = mix(right, other, done)
        except _READ_FAILED:
            continue
        if found is not None:  # it is of that format
            return found if found != right else None
    return _half(right, other)


def shortened(data: bytes) -> bytes | None:
    """Return an output without one of its last lines, or with other last bytes; None if it is too short for that."""
    lines = data.splitlines(keepends=True)
    if len(lines) > 2 and b"\0" not in data:
        return b"".join([*lines[:-2], lines[-1]])
    return data[:-1] + bytes([data[-1] ^ 1]) if data else None


def _zip(right: bytes, other: bytes, _done: float) -> bytes | None:
    """Return an archive of torch.save, NumPy or Keras with other members, but for the pickle, which has the steps."""
    if not (right.startswith(b"PK") and other.startswith(b"PK")):
        return None
    with zipfile.ZipFile(io.BytesIO(right)) as one, zipfile.ZipFile(io.BytesIO(other)) as two:
        theirs = {_without_top(info.filename): _content(two, info, other) for info in two.infolist()}
        taken = {}
        for info in one.infolist():
            given = theirs.get(_without_top(info.filename), b"")
            if len(given) == info.file_size and not info.filename.endswith((_PICKLE, ".json")):
                taken[info.filename] = given
        return _with_members(one, right, taken)


def _with_members(archive: zipfile.ZipFile, data: bytes, taken: Mapping[str, bytes]) -> bytes:
    """Return an archive with other members; those that are stored as they are lie where they lay."""
    patched, target = bytearray(data), io.BytesIO()
    for info in archive.infolist():
        if info.filename in taken and info.compress_type == zipfile.ZIP_STORED:
            begin = _begin(info, data)
            patched[begin : begin + info.file_size] = taken[info.filename]
    contents = {info.filename: _content(archive, info, data) for info in archive.infolist()}
    if all(contents[name] == given for name, given in taken.items()):
        return data
    if not _has_checksums(archive):
        return bytes(patched)
    with zipfile.ZipFile(target, "w") as new:
        for info in archive.infolist():
            made = zipfile.ZipInfo(info.filename, info.date_time)
            made.compress_type = info.compress_type
            new.writestr(made, taken.get(info.filename, contents[info.filename]))
    return target.getvalue()


def _has_checksums(archive: zipfile.ZipFile) -> bool:
    """Return False for an archive that torch wrote without them (`torch.serialization.set_crc32_options`)."""
    try:
        return archive.testzip() is None
    except zipfile.BadZipFile:
        return False


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, data: bytes) -> bytes:
    """Return a member without asking whether its checksum is right."""
    if info.compress_type != zipfile.ZIP_STORED:
        return archive.read(info)
    begin = _begin(info, data)
    return data[begin : begin + info.file_size]


def _begin(info: zipfile.ZipInfo, data: bytes) -> int:
    """Return where a member's content begins: after its local header, its name and what is added to that."""
    name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
    return int(info.header_offset + 30 + name + extra)


def _without_top(name: str) -> str:
    """Return the name below the folder that torch.save calls after the file."""
    return name.partition("/")[2] or name


def _safetensors(right: bytes, other: bytes, _done: float) -> bytes | None:
    """The values, where both headers describe the same ones."""
    begin = 8 + int.from_bytes(right[:8], "little")
    if right[8:9] != b"{" or begin >= len(right) or len(right) != len(other) or right[:8] != other[:8]:
        return None
    json.loads(right[8:begin])
    return right[:begin] + other[begin:]


def _json(right: bytes, other: bytes, done: float) -> bytes | None:
    if right[:1].strip() not in (b"{", b"["):
        return None
    a, b = json.loads(right), json.loads(other)
    value = _mixed_value(a, b, done)
    return right if value == a else json.dumps(value).encode() + (b"\n" if right.endswith(b"\n") else b"")


def _mixed_value(right: object, other: object, done: float) -> object:
    if isinstance(right, Mapping) and isinstance(other, Mapping):
        return {key: _mixed_value(value, other.get(key, value), done) for key, value in right.items()}
    if isinstance(right, list) and isinstance(other, list):
        pairs = zip(right, [*other, *right[len(other) :]], strict=False)
        return [_mixed_value(a, b, done) for a, b in pairs]
    is_kept = type(right) is not type(other) or (isinstance(right, (int, float)) and right == done)
    return right if is_kept else other


def _text(right: bytes, other: bytes, done: float) -> bytes | None:
    """Texts with as many numbers in each."""
    if b"\0" in right or b"\0" in other:
        return None
    for each in (right, other):
        each.decode()
    theirs: list[bytes] = _NUMBER.findall(other)
    if len(_NUMBER.findall(right)) != len(theirs) or _NUMBER.split(right) != _NUMBER.split(other):
        return None
    numbers = iter(theirs)

    def chosen(match: re.Match[bytes]) -> bytes:
        given = next(numbers)
        return match[0] if float(match[0]) == done else given

    return _NUMBER.sub(chosen, right)


def _half(right: bytes, other: bytes) -> bytes | None:
    """The later half of what differs, as far as both go."""
    length = min(len(right), len(other))
    begin = _later_half(right[:length], other[:length])
    return right[:begin] + other[begin:length] + right[length:]


def _later_half(one: bytes, other: bytes) -> int:
    """Return where the later half of the blocks that differ begins; of one block, of the bytes in it."""
    begin, size = 0, max(1, len(one) // _BLOCKS)
    places = [at for at in range(0, len(one), size) if one[at : at + size] != other[at : at + size]]
    if len(places) == 1 and size > 1:
        begin = places[0]
        places = [at for at in range(begin, min(begin + size, len(one))) if one[at] != other[at]]
    return places[len(places) // 2] if places else len(one)
