"""Reads files of states as flat mappings: each key with its path, each array with its bytes.

A file of `torch.save` is a zip archive with a pickle that refers to the bytes of its tensors (torch/serialization.py).
The pickle is read by a reader that calls nothing: every class in it becomes a description.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_BYTES = 2 * 1024**3
LARGEST_COUNTED_BYTES = 16 * 1024**2
_TORCH_TYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
_SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_SAFE_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_NUMPY_TYPES = {
    "f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16", "i1": "int8",
    "u1": "uint8", "b1": "bool",
}  # fmt: skip
# For struct.
_CODES = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
    "uint8": "B", "bool": "B",
}  # fmt: skip
# A file that only looks like one of these.
_NOT_READ = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True)
class Array:
    """A tensor: its type, its shape, and its bytes in the order in which they are stored."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def against(self, other: Array) -> str:
        """How `other` differs, in a few words."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return f"{other} instead of {self}"
        a, b = self._values(), other._values()
        if a is None or b is None or len(a) != len(b):
            return f"other values in {self}"
        unlike = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
        if not unlike:
            return f"equal values in other bits in {self}, such as -0.0 instead of 0.0"
        return f"{len(unlike)} of {len(a)} values differ, by {self.largest_against(other):.3g} at most"

    def largest_against(self, other: Array) -> float | None:
        """Return by how much a value of `other` differs at most; None if that cannot be said."""
        a, b = self._values(), other._values()
        if a is None or b is None or len(a) != len(b):
            return None
        return max((abs(y - x) for x, y in zip(a, b, strict=True)), default=0)

    def _values(self) -> list[Any] | None:
        code = _CODES.get(self.dtype, "")
        if not code or len(self.data) > LARGEST_COUNTED_BYTES or len(self.data) % struct.calcsize(code):
            return None
        return [value for (value,) in struct.iter_unpack(f"<{code}", self.data)]


def read(path: Path) -> dict[str, object] | None:
    """Its keys; None if it is no file of a state, or larger than one would wait for."""
    if path.stat().st_size > LARGEST_BYTES:
        return None
    with path.open("rb") as file:
        head = file.read(16)
    try:
        if zipfile.is_zipfile(path):
            return _zip(path)
        if head.startswith(b"\x93NUMPY"):
            return {"": _numpy(path.read_bytes())}
        if path.suffix == ".safetensors":
            return _safetensors(path.read_bytes())
        if path.suffix == ".json":
            return flat(json.loads(path.read_bytes()))
        if path.suffix in (".pkl", ".pickle", ".pt", ".pth") and head[:1] == b"\x80":
            return flat(_Reader(io.BytesIO(path.read_bytes()), lambda name: b"").load())
    except _NOT_READ:
        return None
    return None


def flat(value: object, key: str = "") -> dict[str, object]:
    """The leaves of nested mappings and lists, by their paths."""
    if isinstance(value, Mapping):
        pairs: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, (list, tuple)):
        if value and not any(isinstance(each, (Mapping, list, tuple, Described, Array)) for each in value):
            return {key: tuple(value)}  # numbers in a row are one value
        pairs = enumerate(value)
    elif isinstance(value, Described):
        pairs = value.parts()
    else:
        return {key: value}
    found: dict[str, object] = {}
    for name, each in pairs:
        found.update(flat(each, f"{key}.{name}" if key else str(name)))
    return found or {key: f"empty {type(value).__name__}"}


def _zip(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if pickles:
            top = pickles[0].removesuffix("data.pkl")
            text = io.BytesIO(archive.read(pickles[0]))
            return flat(_Reader(text, lambda key: archive.read(f"{top}data/{key}")).load())
        found: dict[str, object] = {}
        for name in names:  # npz, keras: also a zip archive
            data = archive.read(name)
            found[name.removesuffix(".npy")] = _numpy(data) if data.startswith(b"\x93NUMPY") else _member(name, data)
        return found


def _member(name: str, data: bytes) -> object:
    return data.decode() if name.endswith(".json") else Array("uint8", (len(data),), data)


def _numpy(data: bytes) -> Array:
    """By the format's own description (numpy/lib/format.py): a header that is a Python literal."""
    major = data[6]
    width, start = (2, 10) if major == 1 else (4, 12)
    length = int.from_bytes(data[8 : 8 + width], "little")
    header = ast.literal_eval(data[start : start + length].decode("latin1"))
    kind = str(header["descr"]).lstrip("<>|=")
    return Array(_NUMPY_TYPES.get(kind, kind), tuple(header["shape"]), data[start + length :])


def _safetensors(data: bytes) -> dict[str, object]:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    found: dict[str, object] = flat(header.pop("__metadata__", {}), "__metadata__")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = _SAFE_TYPES.get(entry["dtype"], entry["dtype"])
        found[name] = Array(dtype, tuple(entry["shape"]), data[8 + length + begin : 8 + length + end])
    return found


# --- pickles ---


class Described:
    """What stands for an object of a class that is not loaded: its name, what it was made of, and its state."""

    name = "object"

    def __init__(self, *arguments: object, **named: object) -> None:
        self.arguments, self.named = arguments, named
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.named[str(key)] = value

    def append(self, value: object) -> None:
        """As a list is filled."""
        self.arguments = (*self.arguments, value)

    def extend(self, values: Iterable[object]) -> None:
        """As a list is filled."""
        self.arguments = (*self.arguments, *values)

    def parts(self) -> Iterable[tuple[object, object]]:
        """What it was made of."""
        yield "class", type(self).name
        yield from enumerate(self.arguments)
        yield from self.named.items()
        if self.state is not None:
            yield "state", self.state


def _described(module: str, name: str) -> type[Described]:
    return type(name, (Described,), {"name": f"{module}.{name}"})


@dataclass(frozen=True)
class _Storage:
    dtype: str
    data: bytes


def _tensor(storage: object, offset: int = 0, size: tuple[int, ...] = (), *_rest: object) -> object:
    """`torch._utils._rebuild_tensor_v2`: what is stored, without the order that its strides give."""
    if not isinstance(storage, _Storage):
        return "tensor"
    width, count = _SIZES.get(storage.dtype, 1), 1
    for length in size:
        count *= length
    begin = offset * width
    return Array(storage.dtype, tuple(size), storage.data[begin : begin + count * width])


def _first(value: object, *_rest: object) -> object:
    return value


class _Dictionary(dict[object, object]):
    """One with attributes, such as the `_metadata` of a state_dict, which are passed over."""

    def __setstate__(self, state: object) -> None:
        pass


_KNOWN: Mapping[tuple[str, str], Callable[..., object]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("collections", "OrderedDict"): _Dictionary,
    ("collections", "defaultdict"): lambda *arguments: _Dictionary(),
    ("builtins", "set"): lambda values=(): sorted(values, key=repr),
    ("_codecs", "encode"): lambda text, *_: text.encode("latin1"),
    ("builtins", "bytearray"): lambda *values: bytes(*values) if values and isinstance(values[0], bytes) else b"",
}


class _Reader(pickle.Unpickler):
    """Calls nothing but what is listed above; all else becomes a description."""

    def __init__(self, file: io.BytesIO, bytes_of: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self._bytes_of = bytes_of

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        if module == "torch" and name in _TORCH_TYPES:
            return name
        return _described(module, name)

    def persistent_load(self, pid: Any) -> object:
        """A storage: ("storage", its type, its key, its device, how many)."""
        _, kind, key, *_ = pid
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
        return _Storage(_TORCH_TYPES.get(name, "uint8"), self._bytes_of(str(key)))
