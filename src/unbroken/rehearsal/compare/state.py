"""States: files of PyTorch, NumPy, safetensors, JSON; which keys differ.  Nothing that they hold is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unbroken.rehearsal.compare import state_files
from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.excerpt import excerpts
from unbroken.rehearsal.compare.state_files import Array

_LONGEST_VALUE = 40
_ABSENT = object()


def compare(name: str, one: Path, other: Path) -> list[Difference]:
    """A difference for each key whose values differ; nothing if one of them is no state that is known here.

    One of another kind where all values are the same: a pickle depends on which objects were shared.
    """
    first, second = state_files.read(one), state_files.read(other)
    if first is None or second is None:
        return []
    unlike = [key for key in _keys(first, second) if not _is_same(first.get(key, _ABSENT), second.get(key, _ABSENT))]
    if not unlike:
        return [Difference(name, Kind.STORED, f"{name} stored", "", "the same values, stored in other bytes")]
    return [_of_key(name, key, first, second) for key in unlike]


def _is_same(one: object, other: object) -> bool:
    """Also of numbers that are none, which equal nothing."""
    return one == other or (type(one) is type(other) and not isinstance(one, Array) and repr(one) == repr(other))


def _keys(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _of_key(name: str, key: str, one: Mapping[str, object], other: Mapping[str, object]) -> Difference:
    a, b = one.get(key), other.get(key)
    if key not in other:
        what = "is missing"
    elif key not in one:
        what = "is there beside the others"
    elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        unlike = [place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        first = unlike[0]
        what = f"{len(unlike)} of {len(a)} entries differ, the first {_against(a[first], b[first])}"
    else:
        what = _against(a, b)
    largest = a.largest_against(b) if isinstance(a, Array) and isinstance(b, Array) else None
    return Difference(name, Kind.STATE, f"{name} key {key}", key, what, key=key, largest=largest)


def _against(one: object, other: object) -> str:
    """Return how `other` differs, in a few words that are never the same on both sides."""
    if isinstance(one, Array) and isinstance(other, Array):
        return one.against(other)
    a, b = (str(value) if isinstance(value, Array) else repr(value) for value in (one, other))
    if a == b:
        return f"another {type(one).__name__} that is written in the same way: {a[:_LONGEST_VALUE]}"
    a, b = excerpts(a, b, _LONGEST_VALUE)
    return f"{b} instead of {a}"
