"""The verdict of a rehearsal, `results/.rehearsal/<run>.json`, which a first start and `status` read."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.runs.layout import RESULTS
from unbroken.system import fs, jsontext

FOLDER = RESULTS / ".rehearsal"


@contextmanager
def alone(run: str, base: Path) -> Iterator[None]:
    """Holds the rehearsals of a run, which share a folder; ConfigError if another process does.

    The lock goes with its process, however that ends.  On a file system without locks nothing is held.
    """
    folder = base / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{run}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError([f"{run}: another process rehearses it now; wait for its end"]) from error
        except OSError:
            pass
        yield


class Verdict(Enum):
    """What a rehearsal found."""

    IDENTICAL = "identical"
    DIFFERS = "differs"
    FAILS = "fails"
    NOT_TESTED = "not tested"
    NOT_PROVEN = "not proven"
    LOSES_OUTPUT = "loses output"
    NOT_COMPARABLE = "resumes, not comparable"


@dataclass(frozen=True)
class Rehearsal:
    """The verdict with its reason in one line, of which computation, and when."""

    run: str
    verdict: Verdict
    reason: str
    identity: str
    made_utc: str
    goal: float | None = None
    findings: tuple[str, ...] = ()
    progress_read: str = ""  # by what, and whether it grew

    def write(self, base: Path) -> Path:
        """Puts it beside the run in one step."""
        path = path_of(self.run, base)
        path.parent.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(path, json.dumps({**asdict(self), "verdict": self.verdict.value}, indent=2) + "\n")
        return path

    def line(self, identity: str = "") -> str:
        """`rehearsed: identical`; where `identity` is another one by now, that it was of another computation."""
        before = ", before the run was changed" if identity and identity != self.identity else ""
        return f"rehearsed{before}: {self.verdict.value}" + (f" ({self.reason})" if self.reason else "")


def path_of(run: str, base: Path) -> Path:
    """Where the verdict of a run lies."""
    return base / FOLDER / f"{run}.json"


def read_rehearsal(run: str, base: Path) -> Rehearsal | None:
    """The last verdict of a run; None if it was never rehearsed, or the file cannot be read."""
    try:
        data = jsontext.parse(path_of(run, base).read_text())
        return Rehearsal(**{**data, "verdict": Verdict(data["verdict"]), "findings": tuple(data["findings"])})
    except (OSError, ValueError, TypeError, LookupError):
        return None
