"""Files that say when, or by which process, they were written, and hold the same beside that.

MAT-files of version 5, 6 and 7 in their first line; models of Keras 3 (.keras) in metadata.json, and in config.json by
numbers that are addresses (keras/src/saving/serialization_lib.py: shared_object_id is an id()).
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from unbroken.rehearsal.compare.difference import Difference, Kind

_MAT_FILE = b"MATLAB 5.0 MAT-file"
# Text in the header; behind it begins what the file holds ["MAT-File Format", MathWorks, table 1-1].
_TEXT_BYTES = 116
_KERAS = {"metadata.json", "config.json", "model.weights.h5"}
_STAMPS = re.compile(rb'"date_saved": "[^"]*"|"shared_object_id": \d+')


def compare(name: str, one: Path, other: Path) -> list[Difference]:
    """One difference where nothing but that is other; nothing if they are no such files, or hold something else."""
    if not (_is_same_mat_file(one, other) or _is_same_keras_model(one, other)):
        return []
    return [Difference(name, Kind.STORED, f"{name} stored", "", "the same values, written at another time")]


def _is_same_mat_file(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        if not all(file.read(_TEXT_BYTES).startswith(_MAT_FILE) for file in (first, second)):
            return False
        return first.read() == second.read()


def _is_same_keras_model(one: Path, other: Path) -> bool:
    if not (zipfile.is_zipfile(one) and zipfile.is_zipfile(other)):
        return False
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = set(first.namelist())
        if not names >= _KERAS or names != set(second.namelist()):
            return False
        return all(_STAMPS.sub(b"", first.read(name)) == _STAMPS.sub(b"", second.read(name)) for name in names)
