"""What usually causes a difference, from where it is and where the pieces went on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unbroken.rehearsal.compare import Difference, Kind
from unbroken.rehearsal.piece import Way

# Words in the keys of a state, and what is not saved or put back where such a key differs.
_BY_KEY = (
    (re.compile(r"sched|\blr\b|\blr_|learning"), "the learning rate differs: the scheduler's state is not saved"),
    (re.compile(r"rng|random"), "the random state is not saved, or not put back"),
    (re.compile(r"sampler|loader|shuffle|order"), "the order of batches differs: the loader's shuffle is not saved"),
    (re.compile(r"optim|exp_avg|momentum"), "the optimizer's state is not saved as it is"),
)
# What of a state is no parameter of a model, by words in its keys.
_KINDS = {
    "gradients": re.compile(r"gradient"),
    "the optimizer's state": re.compile(r"optim|exp_avg|momentum"),
    "the scheduler": re.compile(r"sched"),
    "random numbers": re.compile(r"rng|random"),
    "metrics": re.compile(r"metric|history|\bloss"),
}
_MOST_NAMES = 3


def likely(
    blamed: Sequence[Difference],
    states: Sequence[Difference],
    origins: Sequence[tuple[Way, float]],
    times: Sequence[Difference] = (),
) -> str:
    """In one line; empty if nothing speaks for one cause more than for others.

    `times` are what a state holds of clocks.
    """
    said = _likely(blamed, states, origins)
    most = differing_most([*blamed, *states])
    clock = f"its state holds a time ({times[0].place}): what depends on it changes with every pause" if times else ""
    return "; ".join(filter(None, (said, most, clock)))


def differing_most(found: Sequence[Difference]) -> str:
    """Return what differs in plain terms: the parameters by name, the largest difference first; empty if none does."""
    arrays = {each.key: each.largest for each in found if each.kind is Kind.STATE and each.largest}
    kinds = {key: next((kind for kind, pattern in _KINDS.items() if pattern.search(key.lower())), "") for key in arrays}
    # A parameter has one name in the results, and a longer one in the state.
    parameters = {key: arrays[key] for key, kind in kinds.items() if not kind and not _is_longer(key, arrays)}
    if not parameters:
        return ""
    named = sorted(parameters, key=lambda key: -(parameters[key] or 0.0))
    shown = ", ".join(f"{key} by {parameters[key]:.3g}" for key in named[:_MOST_NAMES])
    more = f" and {len(named) - _MOST_NAMES} more parameters" if named[_MOST_NAMES:] else ""
    columns = [each.key for each in found if each.kind is Kind.COLUMN and each.key]
    others = [kind for kind in _KINDS if kind in kinds.values()]
    others += [f"column{'s' * (len(columns) > 1)} {', '.join(columns)}"] if columns else []
    return f"most different at the end: {shown}{more}" + (f"; also {', '.join(others)}" if others else "")


def _is_longer(key: str, others: Iterable[str]) -> bool:
    return any(key != other and key.endswith(f".{other}") for other in others)


def _likely(blamed: Sequence[Difference], states: Sequence[Difference], origins: Sequence[tuple[Way, float]]) -> str:
    for found in blamed:
        if found.kind is Kind.ROWS:
            return _of_rows(found, origins)
    columns = [each for each in blamed if each.kind is Kind.COLUMN and each.position is not None]
    if columns:
        # Of those that differ first, one whose name says something.
        return _of_column(min(columns, key=lambda each: (each.position or 0.0, not _named(each))), origins)
    return _of_state([*blamed, *states])


def _of_rows(found: Difference, origins: Sequence[tuple[Way, float]]) -> str:
    begins = [origin for _, origin in origins]
    is_beside = all(any(abs(place - origin) <= 1 for origin in begins) for place in found.positions)
    if found.positions and is_beside and len(found.positions) <= len(begins):
        done = "done twice" if found.is_repeated else "left out"
        return f"one step is {done} at each resume: the number that is saved is off by one"
    if found.is_repeated:
        return "rows that were written after the last save are written again: the table is not cut to what was saved"
    return "what was written before a resume is not kept"


def _of_column(found: Difference, origins: Sequence[tuple[Way, float]]) -> str:
    first = found.position or 0.0
    before = [(origin, way) for way, origin in origins if origin <= first]
    if not before:
        return f"differs from {first:g} on, before any resume: what the save itself changes"
    origin, way = max(before, key=lambda each: each[0])
    named = _named(found)
    if first - origin <= 1:
        said = f"differs at once: {named or 'some of the state is not saved, or not put back'}"
    else:
        used = "something that is used first there is not saved (a random draw, an optimizer's step, an epoch's end)"
        said = f"differs from {first:.10g} on: {named or used}"
    return f"it went on from {origin:.10g} after {way.value}, and {said}"


def _named(found: Difference) -> str:
    return next((cause for pattern, cause in _BY_KEY if pattern.search(found.key.lower())), "")


def _of_state(found: Sequence[Difference]) -> str:
    for pattern, cause in _BY_KEY:
        for each in found:
            if pattern.search(each.key.lower()):
                return f"{cause} (key {each.key})"
    return ""
