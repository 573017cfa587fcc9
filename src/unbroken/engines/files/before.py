"""Record what was there before a run began, and what its program has written since: `before.json`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from unbroken.engines.files.states import Stamp
from unbroken.system import fs, jsontext

NOTE = "before.json"
# What a job that was killed may have done since it last noted that it lives.
LAST_SIGN_SECONDS = 10.0


class BeforeNote:
    """Read and write the note of one run; `is_new` is True before the first attempt has written it.

    `late` are files of `foreign` that were found only after that, without a checkpoint: the program gets them once, as
    it would without us; they are never taken for what was there before it.
    """

    def __init__(self, store: Path) -> None:
        self._path = store / NOTE
        self._next_sign = 0.0
        self.foreign: dict[str, Stamp] = {}
        self.late: dict[str, Stamp] = {}
        self._written: set[str] = set()
        self._last_sign = 0.0
        self.is_new = True
        with suppress(FileNotFoundError):
            text, self._last_sign = self._path.read_text(), self._path.stat().st_mtime
            self.is_new = False
            with suppress(ValueError, TypeError, AttributeError, KeyError):  # damaged: then nothing is known to be ours
                data = jsontext.parse(text)
                self.foreign, self.late = _stamps(data["foreign"]), _stamps(data["late"])
                self._written = set(data["written"])

    def is_newer(self, path: Path, name: str, stamp: Stamp) -> bool:
        """Return True if the program wrote it, by its events, or by the time at which the last attempt lived."""
        if self.late.get(name) == stamp:
            return True
        if self.is_new or self.foreign.get(name) == stamp:
            return False
        return name in self._written or path.lstat().st_ctime <= self._last_sign + LAST_SIGN_SECONDS

    def write(self, foreign: Mapping[str, Stamp], written: Iterable[str] = ()) -> None:
        """Write the note in one step."""
        self.foreign, self._written = dict(foreign), self._written | set(written)
        data = {"foreign": self.foreign, "late": self.late, "written": sorted(self._written)}
        fs.write_atomic(self._path, json.dumps(data) + "\n")

    def give_sign(self, written: set[str], *, is_last: bool = False) -> None:
        """Note that the attempt lives, and what its program has written, every few seconds."""
        if time.monotonic() < self._next_sign and not is_last:
            return
        self._next_sign = time.monotonic() + LAST_SIGN_SECONDS / 2
        if written <= self._written:
            with suppress(FileNotFoundError):
                os.utime(self._path)
        elif not self.is_new or self._path.exists():
            self.write(self.foreign, written)


def _stamps(data: Mapping[str, tuple[int, int, int]]) -> dict[str, Stamp]:
    return {name: (int(inode), int(size), int(at)) for name, (inode, size, at) in data.items()}
