"""Whether a training that was loaded does what it did when it was saved; standard library alone."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.program.verdict import Kind, Verdict, write_verdict


@dataclass(frozen=True)
class Validate:
    """A prediction on a fixed batch, made at each save and after each load.

    `predict` takes nothing and gives what the model makes of data that never change.  Two predictions are equal if
    each pair of their numbers differs by `atol + rtol * |number|` at most: as much as other hardware may.
    """

    predict: Callable[[], Any]
    rtol: float = 1e-3
    atol: float = 1e-5

    def __post_init__(self) -> None:
        if not callable(self.predict):
            raise TypeError(
                f"validate is {self.predict!r}, allowed: a function without arguments; type: lambda: model(batch)"
            )


def difference(then: Sequence[float], now: Sequence[float], rtol: float, atol: float) -> str:
    """How much two predictions differ beyond the tolerance, in one line; empty if they do not."""
    if len(then) != len(now):
        return f"the prediction has {len(now)} numbers and had {len(then)} when it was saved"
    wrong = [at for at, (old, new) in enumerate(zip(then, now, strict=True)) if not _is_close(old, new, rtol, atol)]
    if not wrong:
        return ""
    worst = max(wrong, key=lambda at: math.inf if math.isnan(now[at]) else abs(now[at] - then[at]))
    by = abs(now[worst] - then[worst])
    return (
        f"the prediction differs from the one made when it was saved in {len(wrong)} of {len(then)} numbers, by up to "
        f"{by:.3g} (number {worst}: {then[worst]:.6g} then, {now[worst]:.6g} now; "
        f"allowed: {atol:g} + {rtol:g} * |number|)"
    )


def give_verdict(kind: Kind, message: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tells the process that started us, if there is one that listens."""
    path = environment.get("UNBROKEN_VERDICT")
    if path:
        write_verdict(Path(path), Verdict(kind, message))


def _is_close(old: float, new: float, rtol: float, atol: float) -> bool:
    return old == new or abs(new - old) <= atol + rtol * abs(old)
