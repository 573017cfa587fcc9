import os
from pathlib import Path

import pytest

from unbroken.system.digests import _HEAD_BYTES, CHUNK_BYTES, digest_file, new_hasher

SIZES = [
    0,
    1,
    _HEAD_BYTES - 1,
    _HEAD_BYTES,
    _HEAD_BYTES + 1,
    CHUNK_BYTES,
    CHUNK_BYTES + _HEAD_BYTES,
    2 * CHUNK_BYTES + 1,
]


@pytest.mark.parametrize("size", SIZES)
def test_the_digest_of_a_file_is_that_of_all_its_bytes(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "state"
    path.write_bytes(data)
    whole = new_hasher("blake2b")
    whole.update(data)

    assert digest_file(path, "blake2b") == whole.hexdigest()


def test_reads_that_come_back_short_end_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(5000)
    path = tmp_path / "state"
    path.write_bytes(data)
    whole = new_hasher("blake2b")
    whole.update(data)
    read, readv = os.read, os.readv
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 7)))
    monkeypatch.setattr(os, "readv", lambda descriptor, buffers: readv(descriptor, [memoryview(buffers[0])[:1000]]))

    assert digest_file(path, "blake2b") == whole.hexdigest()
