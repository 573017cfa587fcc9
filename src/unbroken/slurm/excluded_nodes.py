"""The nodes that words for sbatch exclude."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unbroken.slurm.commands import ask


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


def more_to_exclude(already: Sequence[str], avoid: Sequence[str], spare: int) -> list[str]:
    """Those of `avoid` to exclude beside the lists of `already`, such as `node[1-3],big7`; in all no more than `spare`.

    A job that no node is left for waits for ever (BadConstraints), or is refused.  None where Slurm does not say which
    nodes these lists name.
    """
    lists = ",".join(filter(None, already))
    said = ask("scontrol", "show", "hostnames", lists) if "[" in lists else lists.replace(",", " ")
    if said is None:
        return []
    excluded = set(said.split())
    return [node for node in avoid if node not in excluded][: max(0, spare - len(excluded))]
