"""What a comparison of whole and pieces comes to: which differences count, the verdict and its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unbroken.rehearsal import causes
from unbroken.rehearsal.compare import Difference, Kind
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.results import listed
from unbroken.runs.rehearsal import Verdict

# Names of what differs from run to run without being a result.
_TIME = re.compile(r"time|date|clock|seconds|elapsed|start|stamp|host|duration|speed|per_s")


def blamed_of(found: Iterable[Difference], itself: Sequence[Difference]) -> list[Difference]:
    """Return what differs in a result, without what two whole runs differ in."""
    known = {each.leaf for each in itself}
    files = {each.file for each in itself if each.leaf in (f"{each.file} bytes", f"{each.file} lines")}
    return [
        each for each in found if each.leaf not in known and each.file not in files and each.kind is not Kind.STORED
    ]


def stored_lines(found: Iterable[Difference]) -> list[str]:
    """Return a line for each file with the same values in other bytes."""
    return [each.text() for each in found if each.kind is Kind.STORED]


def reason_of(
    blamed: Sequence[Difference],
    states: Sequence[Difference],
    origins: Sequence[tuple[Way, float]],
    itself: Sequence[Difference],
) -> str:
    """Return the first difference, and what usually causes it."""
    times = [each for each in itself if each.key and _TIME.search(each.key.lower())]
    return "; ".join(filter(None, (blamed[0].text(), causes.likely(blamed, states, origins, times))))


def nothing_to_blame(
    itself: Sequence[Difference], excepted: Sequence[str], discarded: Sequence[str]
) -> tuple[Verdict, str, list[str]]:
    """Return verdict, reason and findings where the pieces left what the whole left.

    `excepted` are files that are written for each piece, `discarded` the globs of what the run drops.
    """
    counted = [each for each in itself if each.kind is not Kind.STORED and each.file not in excepted]
    names = list(dict.fromkeys(each.place for each in counted))
    told = [f"differs from itself, not laid to the resume: {each.text()}" for each in counted]
    if any(not _TIME.search(each.key.lower()) for each in counted):
        return Verdict.NOT_COMPARABLE, f"two whole runs differ in {listed(names)}", told
    but = [f"what differs between two whole runs: {listed(names)}"] if names else []
    but += [f"what each piece writes for itself: {', '.join(excepted)}"] if excepted else []
    but += [f"what settings.discard drops: {', '.join(discarded)}"] if discarded else []
    return Verdict.IDENTICAL, "; ".join(f"but for {each}" for each in but), told


def loss_line(run: str, lost: Sequence[str]) -> str:
    """Return the reason where files that the program wrote are in no result."""
    are = "is" if len(lost) == 1 else "are"
    return (
        f"{listed(lost)}: written by the program, and {are} not in final/; name what the result must have in "
        f"runs.{run}.settings, or drop it there with discard: [GLOB]"
    )
