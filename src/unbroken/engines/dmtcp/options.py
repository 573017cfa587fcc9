"""Pass options from the engine to the supervisor, as arguments of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.dmtcp.programs import Programs


@dataclass(frozen=True)
class Options:
    """Hold one run's settings, as the supervisor needs them."""

    live: Path
    inputs: tuple[Path, ...]
    programs: Programs
    options: tuple[str, ...]
    restart_seconds: float | None
    has_compression: bool
    machine_may_differ: bool
    command: tuple[str, ...]


def read_options(arguments: Sequence[str]) -> Options:
    """Read the supervisor's own command line, which engine.py writes."""
    parser = argparse.ArgumentParser(prog="unbroken.engines.dmtcp.supervisor", description=__doc__)
    parser.add_argument("--live", type=Path, required=True)
    parser.add_argument("--input", type=Path, action="append", default=[])
    parser.add_argument("--programs", default="")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--restart-seconds", type=float)
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--machine-may-differ", action="store_true")
    parser.add_argument("command", nargs="+")
    found = parser.parse_args(arguments)
    return Options(
        found.live.absolute(),
        tuple(path.absolute() for path in found.input),
        # Its programs are started in other folders than the supervisor.
        Programs(str(Path(found.programs).absolute()) if found.programs else ""),
        tuple(found.option),
        found.restart_seconds,
        found.compress,
        found.machine_may_differ,
        tuple(found.command),
    )
