"""The verdict of a rehearsal, `results/.rehearsal/<run>.json`, which a first start and `status` read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from unbroken.store.layout import RESULTS, Format, known_fields

FOLDER = RESULTS / ".rehearsal"
FORMAT = Format()


class Verdict(Enum):
    """Name what a rehearsal found."""

    IDENTICAL = "identical"
    DIFFERS = "differs"
    FAILS = "fails"
    NOT_TESTED = "not tested"
    NOT_PROVEN = "not proven"
    LOSES_OUTPUT = "loses output"
    NOT_COMPARABLE = "resumes, not comparable"


@dataclass(frozen=True)
class Rehearsal:
    """Hold the verdict with its reason in one line, and its time."""

    run: str
    verdict: Verdict
    reason: str
    made_utc: str
    goal: float | None = None
    findings: tuple[str, ...] = ()
    progress_read: str = ""  # by what, and whether it grew
    identity: str = ""  # of the run that was rehearsed

    def write(self, base: Path) -> Path:
        """Write it in one step."""
        path = path_of(self.run, base)
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMAT.write(path, {**asdict(self), "verdict": self.verdict.value})
        return path

    def line(self, identity: str = "") -> str:
        """Return `rehearsed: identical`, and what the verdict says more; `identity` is that of the run now."""
        of = " in an earlier version" if identity not in ("", self.identity) else ""
        return f"rehearsed{of}: {self.verdict.value}" + (f" ({self.reason})" if self.reason else "")


def path_of(run: str, base: Path) -> Path:
    """Return where the verdict of a run lies."""
    return base / FOLDER / f"{run}.json"


def read_rehearsal(run: str, base: Path) -> Rehearsal | None:
    """Return the last verdict of a run; None if it was never rehearsed, or the file cannot be read."""
    try:
        data = FORMAT.found(path_of(run, base))
        given = {"verdict": Verdict(data["verdict"]), "findings": tuple(data["findings"])}
        return Rehearsal(**{**known_fields(Rehearsal, data), **given})
    except (ValueError, TypeError, LookupError):
        return None
