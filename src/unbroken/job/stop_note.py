"""Why a run has stopped, by the job that decided it: a driver prints it."""

from __future__ import annotations

import json
from contextlib import suppress

from unbroken.runs.layout import CHAINS
from unbroken.system import fs, jsontext

_FILE = "stopped.json"


def note_stop(key: str, start: str, why: str) -> None:
    """Write it; a disk that takes no note ends no work."""
    with suppress(OSError):
        fs.write_atomic(CHAINS / key / _FILE, json.dumps({"start": start, "why": why}) + "\n")


def stop_of(key: str, start: str) -> str:
    """Return why the chain has stopped since this start of snakemake; empty if it has not, or nothing says so."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        data = jsontext.parse((CHAINS / key / _FILE).read_text())
        return str(data["why"]) if data["start"] == start else ""
    return ""
