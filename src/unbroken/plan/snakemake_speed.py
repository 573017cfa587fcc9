"""What keeps Snakemake quick with ten thousand jobs; what each part brings stands in docs/benchmarks.md."""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

# Python's own (700, 10, 10) looks through all jobs again and again, although none of them is ever garbage.
COLLECT_EVERY = (50_000, 20, 20)


def spare_the_collector() -> None:
    """Makes Python look for garbage less often in this process, and no more at what is loaded already."""
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def asked_often(function: _F) -> _F:
    """The function with its parameters noted on it: Snakemake asks for them several times a job, and takes long.

    Where it looks first is its own `overwrite_function_params` (snakemake.common, 9.27).
    """
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    function._overwrite_params = inspect.signature(function).parameters  # type: ignore[attr-defined]
    return function


def telling_pattern(names: Iterable[str], others: Iterable[str]) -> str:
    """A short regular expression that matches all of `names` and none of `others`.

    Snakemake copies it into every path that it makes, so each name counts by no more than the beginning that no
    other shares.
    """
    taken = {other[:length] for other in others for length in range(len(other) + 1)}
    parts = dict.fromkeys(_beginning(name, taken) for name in names)
    return "|".join(parts) or r"(?!)"


def _beginning(name: str, taken: set[str]) -> str:
    for length in range(len(name) + 1):
        if name[:length] not in taken:
            return re.escape(name[:length]) + r"[^/]*"
    return re.escape(name)
