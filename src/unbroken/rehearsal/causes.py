"""What usually causes a difference, from where it is and where the pieces went on."""

from __future__ import annotations

from collections.abc import Sequence

from unbroken.rehearsal.compare import Difference, Kind
from unbroken.rehearsal.piece import Way

# Words in the keys of a state, and what is not saved or put back where such a key differs.
_BY_KEY = (
    (("rng", "random", "seed_state"), "the random state is not saved, or not put back"),
    (("sched", "lr_"), "the state of the learning-rate scheduler is not saved"),
    (("sampler", "loader", "order", "batch"), "the order of batches: the loader's shuffle is not saved"),
    (("optim", "exp_avg", "momentum"), "the state of the optimizer is not saved as it is"),
)


def likely(blamed: Sequence[Difference], states: Sequence[Difference], origins: Sequence[tuple[Way, float]]) -> str:
    """In one line; empty if nothing speaks for one cause more than for others."""
    for found in blamed:
        if found.kind is Kind.ROWS:
            return _of_rows(found, origins)
    columns = [each for each in blamed if each.kind is Kind.COLUMN and each.position is not None]
    if columns:
        return _of_column(min(columns, key=lambda each: each.position or 0.0), origins)
    return _of_state([*blamed, *states])


def _of_rows(found: Difference, origins: Sequence[tuple[Way, float]]) -> str:
    if found.is_repeated:
        return "rows that were written after the last save are written again: the table is not cut to what was saved"
    return "what was written before a resume is not kept: the table begins anew"


def _of_column(found: Difference, origins: Sequence[tuple[Way, float]]) -> str:
    first = found.position or 0.0
    before = [(origin, way) for way, origin in origins if origin <= first]
    if not before:
        return f"differs from {first:g} on, before any resume: what the save itself changes"
    origin, way = max(before, key=lambda each: each[0])
    at = f"it went on from {origin:g} after {way.value}"
    if first - origin <= 1:
        return f"{at}, and differs at once: some of the state is not saved, or not put back"
    return f"{at}, and differs from {first:g} on: what is used first there is not saved (an epoch's end, a schedule)"


def _of_state(found: Sequence[Difference]) -> str:
    for words, cause in _BY_KEY:
        for each in found:
            if any(word in each.key.lower() for word in words):
                return f"{cause} (key {each.key})"
    return ""
