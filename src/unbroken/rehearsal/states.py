"""Read files of a state (torch.save, NumPy, safetensors, Keras, MATLAB, JSON) by their keys; without torch.

A file of `torch.save` is a zip archive with a pickle that refers to the bytes of its tensors (torch/serialization.py).
The pickle is read by a reader that calls nothing: an object of any class becomes a list of what it was made of.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

LARGEST_BYTES = 2 * 1024**3
_NUMPY = b"\x93NUMPY"
_MATLAB = b"MATLAB 5.0 MAT-file"
# The text of its header, with the time; the content begins after it ["MAT-File Format", MathWorks, table 1-1].
_MATLAB_TEXT_BYTES = 116
# What Keras 3 writes otherwise into each file: a time, and numbers that are addresses (serialization_lib.py).
_STAMPS = re.compile(rb'"date_saved": "[^"]*"|"shared_object_id": \d+')
_TORCH_TYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
_SAFE_KINDS = {"F": "float", "I": "int", "U": "uint", "BF": "bfloat"}
# A file that only looks like one of these.
_NOT_READ = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Array:
    """Hold a tensor: its type in NumPy's words, its shape, and its bytes in the order in which they are stored."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def against(self, other: Array) -> tuple[str, float]:
        """Return how `other` differs in a few words, and by how much at most; 0 where that cannot be said."""
        import numpy as np  # the command line need not wait for it

        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return f"{other} instead of {self}", 0.0
        try:
            with np.errstate(all="ignore"):
                apart = np.abs(other._values() - self._values())
        except (TypeError, ValueError):
            return f"other values in {self}", 0.0
        if not (count := int(np.count_nonzero(apart))):
            return f"equal values in other bits in {self}, such as -0.0 instead of 0.0", 0.0
        return f"{count} of {apart.size} values differ, by {apart.max():.3g} at most", float(apart.max())

    def _values(self) -> Any:
        import numpy as np

        if self.dtype == "bfloat16":
            return (np.frombuffer(self.data, "<u2").astype("<u4") << 16).view("<f4")
        if np.dtype(self.dtype).kind not in "biuf":
            raise TypeError(self.dtype)
        return np.frombuffer(self.data, self.dtype).astype("float64")


def read(path: Path) -> dict[str, object] | None:
    """Return the keys and values of a file; None if it is no state that is known here, or very large."""
    try:
        return _read(path.read_bytes(), path.suffix) if path.stat().st_size <= LARGEST_BYTES else None
    except _NOT_READ:
        return None


def members(data: bytes) -> list[tuple[zipfile.ZipInfo, bytes]]:
    """Return what a zip archive holds, without asking for checksums: torch may be set to write none."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            info.CRC = None  # type: ignore[assignment] # zipfile then compares nothing
        return [(info, archive.read(info)) for info in archive.infolist()]


def _read(data: bytes, suffix: str) -> dict[str, object] | None:
    if data.startswith(b"PK"):
        return _archive({info.filename: content for info, content in members(data)})
    if data.startswith(_NUMPY):
        return {"": _numpy(data)}
    if data.startswith(_MATLAB):
        return {"content": _raw(data[_MATLAB_TEXT_BYTES:])}
    if suffix == ".safetensors":
        return _safetensors(data)
    if suffix == ".json":
        return _flat(json.loads(data))
    if suffix in (".pkl", ".pickle", ".pt", ".pth") and data[:1] == b"\x80":
        return _flat(_Reader(data, lambda key: b"").load())
    return None


def _flat(value: object, key: str = "") -> dict[str, object]:
    """Return the leaves of nested mappings and lists by their paths; numbers in a row are one value."""
    if isinstance(value, Mapping):
        pairs: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, (list, tuple)):
        if value and not any(isinstance(each, (Mapping, list, tuple, Array)) for each in value):
            return {key: tuple(value)}
        pairs = enumerate(value)
    else:
        return {key: value}
    found: dict[str, object] = {}
    for name, each in pairs:
        found.update(_flat(each, f"{key}.{name}" if key else str(name)))
    return found or {key: f"empty {type(value).__name__}"}


def _archive(files: Mapping[str, bytes]) -> dict[str, object]:
    if pickles := [name for name in files if name.endswith("/data.pkl") and name.count("/") == 1]:
        top = pickles[0].removesuffix("data.pkl")
        return _flat(_Reader(files[pickles[0]], lambda key: files[f"{top}data/{key}"]).load())
    found: dict[str, object] = {}
    for name, data in files.items():
        is_array = data.startswith(_NUMPY)
        found[name.removesuffix(".npy")] = _numpy(data) if is_array else _raw(_STAMPS.sub(b"", data))
    return found


def _raw(data: bytes) -> Array:
    return Array("bytes", (len(data),), data)


def _numpy(data: bytes) -> Array:
    import numpy as np

    found = np.load(io.BytesIO(data), allow_pickle=False)
    return Array(found.dtype.name, found.shape, found.tobytes())


def _safetensors(data: bytes) -> dict[str, object]:
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    found: dict[str, object] = _flat(header.pop("__metadata__", {}), "__metadata__")
    for name, entry in header.items():
        kind, bits = re.fullmatch(r"([A-Z]+)(.*)", entry["dtype"]).groups()  # type: ignore[union-attr]
        first, end = entry["data_offsets"]
        dtype = _SAFE_KINDS.get(kind, kind.lower()) + bits
        found[name] = Array(dtype, tuple(entry["shape"]), data[begin + first : begin + end])
    return found


# --- pickles ---


class _Opaque(list[object]):
    """Stand for an object of a class that is not loaded: the class's name, what it was made of, and its state."""

    def __new__(cls, *arguments: object, **named: object) -> _Opaque:
        made = super().__new__(cls)
        list.extend(made, [cls.__name__, *arguments, *named.items()])
        return made

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.append(state)

    def __setitem__(self, key: Any, value: object) -> None:
        self.append((key, value))


class _Dictionary(dict[object, object]):
    """Drop attributes, such as the `_metadata` of a state_dict: they are not compared."""

    def __setstate__(self, state: object) -> None:
        pass


def _tensor(storage: Array, offset: int, size: tuple[int, ...], *_: object) -> Array:
    """Return what `torch._utils._rebuild_tensor_v2` does, without the order that its strides give."""
    width = len(storage.data) // max(storage.shape[0], 1)
    return Array(storage.dtype, tuple(size), storage.data[offset * width : (offset + prod(size)) * width])


_KNOWN: Mapping[tuple[str, str], Callable[..., object]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda value, *_: value,
    ("collections", "OrderedDict"): _Dictionary,
    ("builtins", "set"): lambda values=(): sorted(values, key=repr),
}


class _Reader(pickle.Unpickler):
    """Call nothing but what is listed above."""

    def __init__(self, data: bytes, bytes_of: Callable[[str], bytes]) -> None:
        super().__init__(io.BytesIO(data))
        self._bytes_of = bytes_of

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _TORCH_TYPES:
            return name
        return _KNOWN.get((module, name)) or type(f"{module}.{name}", (_Opaque,), {})

    def persistent_load(self, pid: Any) -> Array:
        """Return a storage: ("storage", its type, its key, its device, how many)."""
        _, kind, key, _, count = pid
        return Array(_TORCH_TYPES.get(kind, "uint8"), (count,), self._bytes_of(str(key)))
