"""Say what a comparison comes to: which differences count, where they begin, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unbroken.rehearsal.difference import Difference, Kind
from unbroken.rehearsal.piece import Way
from unbroken.store.rehearsal import Verdict

MOST_NAMES = 3
# Names of what differs from run to run without being a result.
_TIME = re.compile(r"time|date|clock|seconds|elapsed|start|stamp|host|duration|speed|per_s")
Origins = Sequence[tuple[Way, float]]  # how a piece ended, and where the next one resumed


def listed(names: Iterable[str]) -> str:
    """Return the first few, and how many more."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMES} more" if known[MOST_NAMES:] else ""
    return ", ".join(known[:MOST_NAMES]) + more


def blamed_of(found: Iterable[Difference], itself: Sequence[Difference]) -> list[Difference]:
    """Return what differs in a result, without what two whole runs differ in."""
    places = {each.place for each in itself}
    files = {each.file for each in itself if not each.name and each.kind is not Kind.STORED}
    counted = [each for each in found if each.kind is not Kind.STORED]
    return [each for each in counted if each.place not in places and each.file not in files]


def nothing_to_blame(
    itself: Sequence[Difference], excepted: Sequence[str], discarded: Sequence[str]
) -> tuple[Verdict, str, list[str]]:
    """Return verdict, reason and findings where the pieces left what the whole run left.

    `excepted` are files that are written for each piece, `discarded` the globs of what the run drops.
    """
    counted = [each for each in itself if each.kind is not Kind.STORED and each.file not in excepted]
    names = list(dict.fromkeys(each.place for each in counted))
    told = [f"differs from itself, not blamed on the resume: {each.text()}" for each in counted]
    if any(not _TIME.search(each.name.lower()) for each in counted):
        return Verdict.NOT_COMPARABLE, f"two whole runs differ in {listed(names)}", told
    but = {
        "what differs between two whole runs": listed(names),
        "what each piece writes for itself": ", ".join(excepted),
        "what settings.discard drops": ", ".join(discarded),
    }
    return Verdict.IDENTICAL, "; ".join(f"but for {what}: {which}" for what, which in but.items() if which), told


def reason_of(blamed: Sequence[Difference], origins: Origins, itself: Sequence[Difference]) -> str:
    """Return the first difference, where it begins and what that means, and what of the state is a time."""
    found = blamed[0]
    told = [found.text()]
    if found.kind is Kind.ROWS:
        told.append(_of_rows(found, [origin for _, origin in origins]))
    elif found.position is not None:
        told.append(_of_column(found.position, origins))
    times = [each.place for each in itself if _TIME.search(each.name.lower())]
    told += [f"its state holds a time ({times[0]}): what depends on it changes with every pause"] if times else []
    return "; ".join(told)


def _of_rows(found: Difference, origins: Sequence[float]) -> str:
    is_at_resumes = all(any(abs(place - origin) <= 1 for origin in origins) for place in found.positions)
    if is_at_resumes and len(found.positions) <= len(origins):
        done = "done twice" if found.is_repeated else "left out"
        return f"one step is {done} at each resume: the number that is saved is off by one"
    if found.is_repeated:
        return "rows that were written after the last save are written again: the table is not cut to what was saved"
    return "what was written before a resume is not kept"


def _of_column(first: float, origins: Origins) -> str:
    before = [(origin, way) for way, origin in origins if origin <= first]
    if not before:
        return f"differs from {first:g} on, before any resume: what the save itself changes"
    origin, way = max(before, key=lambda each: each[0])
    said = "at once: some of the state is not saved, or not put back"
    if first - origin > 1:
        used = "something that is used first there is not saved (a random draw, an optimizer's step, an epoch's end)"
        said = f"from {first:.10g} on: {used}"
    return f"it resumed from {origin:.10g} after {way.value}, and differs {said}"
