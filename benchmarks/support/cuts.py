"""A computation cut into segments beside the same uncut: what came of each way of running it, as rows of a table."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.measure import ROOT, SNAKEMAKE, cost_of, ratios, spread

COMMAND = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
HEADER = ["variant", "segments", "seconds", "times", "seconds a cut", "seconds unused", "same bytes"]


@dataclass(frozen=True)
class Came:
    """What one way of running came to; `unused` are the seconds that were left of each segment when it ended."""

    seconds: float
    segments: int
    unused: list[float]
    files: dict[str, bytes]


def contents(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The results that must be the same bytes."""
    return {name: (folder / name).read_bytes() for name in names}


def by_unbroken(folder: Path, run: dict[str, Any], names: Sequence[str]) -> Came:
    """Runs one run under a real snakemake to its results; `folder` has its input files.

    A slow machine needs more segments than were planned; those that are left when the goal is reached do not count.
    """
    (folder / "config").mkdir()
    results = folder / "results" / "bench"
    began, planned = time.time(), run["segments"]
    while not (results / "final" / "summary.json").exists():
        (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"bench": run}}))
        cost_of(COMMAND, folder)
        run = {**run, "segments": run["segments"] + planned}
    seconds = (results / "final" / "summary.json").stat().st_mtime - began
    attempts = [json.loads(line) for line in (results / "history.jsonl").read_text().splitlines()]
    # The first segment knows nothing yet of what a stop takes, and the last one ends with the goal.
    unused = [attempt["unused_seconds"] for attempt in attempts[1:-1]]
    return Came(seconds, len(attempts), unused, contents(results / "final", names))


def row(name: str, came: list[Came], whole: list[Came]) -> list[str]:
    """A line of the table with HEADER, against the uncut computation of the same rounds."""
    walls, bases = [each.seconds for each in came], [each.seconds for each in whole]
    cuts = [
        (each.seconds - base.seconds) / (each.segments - 1)
        for each, base in zip(came, whole, strict=True)
        if each.segments > 1
    ]
    unused = [seconds for each in came for seconds in each.unused]
    is_same = all(each.files == base.files for each, base in zip(came, whole, strict=True))
    counts = spread([each.segments for each in came], 0)
    columns = [counts, spread(walls, 1), spread(ratios(walls, bases)), spread(cuts), spread(unused)]
    return [name, *(column if column != "-" else "none" for column in columns), "yes" if is_same else "no"]
