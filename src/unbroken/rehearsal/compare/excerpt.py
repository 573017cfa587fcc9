"""Excerpts of two texts that differ: short, and never equal."""

from __future__ import annotations

_CUT = "..."
_BEFORE = 12  # characters shown before the first one that differs


def excerpts(one: str, other: str, longest: int) -> tuple[str, str]:
    """Return both texts, each cut to `longest` characters around the first character that differs."""
    if max(len(one), len(other)) <= longest:
        return one, other
    begin = max(0, first_difference(one, other) - _BEFORE)
    return _cut(one, begin, longest), _cut(other, begin, longest)


def first_difference(one: str | bytes, other: str | bytes) -> int:
    """Return the index of the first character or byte that differs; the shorter length if one begins the other."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _cut(text: str, begin: int, longest: int) -> str:
    head = _CUT if begin else ""
    rest = text[begin:]
    room = longest - len(head)
    return head + (rest if len(rest) <= room else rest[: room - len(_CUT)] + _CUT)
