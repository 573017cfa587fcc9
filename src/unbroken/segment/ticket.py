"""The ticket: all that a segment's job needs to work without a Snakemake of its own; written by the driver.

`.snakemake/unbroken/<run>.ticket.json`, one for all segments of a run.  A later plan writes it anew, so a job that has
waited in the queue for days works by the newest settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unbroken.errors import ConfigError
from unbroken.runs import formats
from unbroken.runs.identity import IdentityKeys
from unbroken.runs.layout import NOTES
from unbroken.runs.run import CopySettings, Run
from unbroken.segment.job import Assignment
from unbroken.system import fs, jsontext

VERSION = 1
_KEY = "version"


@dataclass(frozen=True)
class Ticket:
    """What Snakemake would hand to the script of a segment, and how it would start that.

    `latency_seconds` is how long a file may need until it is seen on another machine, `benchmark` the rule's pattern of
    that name.
    """

    assignment: Assignment
    script: str
    rule: str
    threads: int
    resources: Mapping[str, Any]
    latency_seconds: float
    benchmark: str = ""

    def write(self, base: Path = Path()) -> Path:
        """Keeps it for the jobs of the run, in one step; the path is relative to `base`.

        FormatError if that of a newer unbroken is there.
        """
        path = path_of(self.assignment.run.name)
        data = {**vars(self), "assignment": asdict(self.assignment), "resources": dict(self.resources)}
        refuse_newer(self.assignment.run.name, base)
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(base / path, json.dumps({_KEY: VERSION, **data}) + "\n")
        return path


def path_of(run: str) -> Path:
    """Where the ticket of a run lies."""
    return NOTES / f"{run}.ticket.json"


def refuse_newer(run: str, base: Path = Path()) -> None:
    """FormatError if a newer unbroken has planned the run; nothing of one that is spoilt, which is written anew."""
    with suppress(OSError, ValueError, AttributeError):
        formats.refuse_newer(jsontext.parse((base / path_of(run)).read_text()), VERSION, base / path_of(run), _KEY)


def read(path: Path) -> Ticket:
    """The ticket at `path`; ConfigError with what to type if it is not there, spoilt, or of another version.

    FormatError if a newer unbroken wrote it.
    """
    try:
        data = jsontext.parse(path.read_text())
        formats.refuse_newer(data, VERSION, path, _KEY)
        version = data.pop(_KEY)
        if version != VERSION:
            raise ConfigError([f"{path}: found version {version}, allowed: {VERSION}; start snakemake again"])
        return Ticket(**{**data, "assignment": _assignment(data["assignment"])})
    except FileNotFoundError as error:
        raise ConfigError([f"{path}: missing; start snakemake again"]) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError([f"{path}: spoilt ({error!r}); start snakemake again"]) from error


def _assignment(data: Mapping[str, Any]) -> Assignment:
    run, keys = dict(data["run"]), dict(data["keys"])
    run["copies"] = CopySettings(**run["copies"]) if run["copies"] else None
    for name in ("slurm_extra", "modules", "enter", "container_options"):
        run[name] = tuple(run[name])
    lists = {name: tuple(value) for name, value in keys.items() if isinstance(value, list)}
    return Assignment(Run(**run), IdentityKeys(**{**keys, **lists}))
