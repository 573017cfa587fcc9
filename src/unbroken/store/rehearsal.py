"""The verdict of a rehearsal, `results/.rehearsal/<run>.json`, which a first start and `status` read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from unbroken.store.layout import RESULTS, Format

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
    """Hold the verdict with its reason in one line, the computation that it is about, and its time."""

    run: str
    verdict: Verdict
    reason: str
    identity: str
    made_utc: str
    goal: float | None = None
    findings: tuple[str, ...] = ()
    progress_read: str = ""  # by what, and whether it grew

    def write(self, base: Path) -> Path:
        """Write it in one step."""
        path = path_of(self.run, base)
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMAT.write(path, {**asdict(self), "verdict": self.verdict.value})
        return path

    def line(self, identity: str = "") -> str:
        """Return `rehearsed: identical`; where `identity` is another one by now, also that the run was changed."""
        before = ", before the run was changed" if identity and identity != self.identity else ""
        return f"rehearsed{before}: {self.verdict.value}" + (f" ({self.reason})" if self.reason else "")


def path_of(run: str, base: Path) -> Path:
    """Return where the verdict of a run lies."""
    return base / FOLDER / f"{run}.json"


def read_rehearsal(run: str, base: Path) -> Rehearsal | None:
    """Return the last verdict of a run; None if it was never rehearsed, or the file cannot be read."""
    try:
        data = FORMAT.found(path_of(run, base))
        return Rehearsal(**{**data, "verdict": Verdict(data["verdict"]), "findings": tuple(data["findings"])})
    except (ValueError, TypeError, LookupError):
        return None
