"""A job: one attempt at one segment as the workflow hands it to a script, and how the script ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from longhaul.clock import utc_now
from longhaul.errors import LonghaulError
from longhaul.identity import IdentityKeys
from longhaul.places import RunFolder
from longhaul.run import Run


class ScriptObject(Protocol):
    """What longhaul uses of the object that Snakemake hands to a script."""

    @property
    def params(self) -> Any: ...
    @property
    def resources(self) -> Any: ...
    @property
    def wildcards(self) -> Any: ...


@dataclass(frozen=True)
class Assignment:
    """What the plan gives to every segment of one run."""

    run: Run
    keys: IdentityKeys


@dataclass(frozen=True)
class Job:
    """One attempt at a segment; `driver_attempt` counts within one call of snakemake, from 1."""

    run: Run
    keys: IdentityKeys
    segment: int
    driver_attempt: int
    base: Path = Path()

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run.name, self.base)

    def tell(self, line: str) -> None:
        """One line of the segment's own, into its log and to the driver's screen."""
        text = f"longhaul {utc_now()} {self.run.name} segment {self.segment}: {line}"
        # A driver that is gone has left a broken pipe, and the work goes on without it.
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)
        # A full disk must not hide the line that says so.
        with contextlib.suppress(OSError), self.places.log(self.segment).open("a") as log:
            print(text, file=log)


def main(snakemake: ScriptObject, segment: Callable[[Job], object]) -> None:
    """Runs a script's public entry for Snakemake; a LonghaulError becomes its line and exit code 1."""
    assignment: Assignment = snakemake.params.assignment
    attempt = int(snakemake.resources.get("attempt", 1))
    job = Job(assignment.run, assignment.keys, int(snakemake.wildcards.segment), attempt)
    log = job.places.log(job.segment)
    log.parent.mkdir(parents=True, exist_ok=True)
    _keep(log)
    try:
        segment(job)
    except LonghaulError as error:
        job.tell(f"stopped: {error}")
        job.tell(f"log: {job.places.log(job.segment)}; state of all runs: longhaul status")
        sys.exit(1)


def _keep(log: Path) -> None:
    """Gives the log a second name, `<segment>.<attempt>.log`: Snakemake removes the first before the next attempt."""
    log.touch()
    for number in itertools.count(1):
        try:
            os.link(log, log.with_suffix(f".{number}.log"))
        except FileExistsError:
            continue
        except OSError:
            return  # a file system without hard links keeps the newest log only
        return
