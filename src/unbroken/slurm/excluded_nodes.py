"""The nodes that words for sbatch exclude."""

from __future__ import annotations

import re
from collections.abc import Sequence


def excluded_by(word: str, following: str) -> str | None:
    """What `--exclude=a`, `--exclude a`, `-x a` and `-xa` name, with the word that follows; None for other words."""
    option = re.match(r"(?:--exclude(?:=|$)|-x)(.*)", word)
    return None if option is None else option[1] or ("" if "=" in word else following)


def without_exclude(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The other words, and the nodes."""
    rest, nodes = [], list[str]()
    left = iter(words)
    for word in left:
        if excluded_by(word, "") is None:
            rest.append(word)
        else:
            nodes.append(excluded_by(word, "") or next(left, ""))
    return rest, nodes
