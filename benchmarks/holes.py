"""Holes in the queue: `segment_minutes: {at_least, at_most}` next to a plain length, on a real cluster.

For each hole two pairs of nodes.  On each pair one node is busy for so many minutes, and a job that needs both waits;
a run may use the other node alone.  `SLURM=/prefix` before the command takes another release than the installed one:
before 25.05.3 both runs do the same.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from support import slurm
from support.measure import ROOT, SNAKEMAKE, machine, options, publish, table
from support.slurm import Lab

from unbroken.store.history import History
from unbroken.store.layout import RunFolder

AT_LEAST = 1
STEP_SECONDS = 0.1
# So many minutes the job behind the hole works, whose limit is that of a segment.
BEHIND_MINUTES = 2


@dataclass(frozen=True)
class Pair:
    """A hole of so many minutes, and the run beside it: its folder and its driver."""

    hole: int
    is_plain: bool
    folder: Path
    driver: subprocess.Popen[bytes]


def make_hole(here: Lab, nodes: tuple[str, str], minutes: int, most: int) -> None:
    """The first node is taken at once, and both for the job behind."""
    busy, both = nodes[0], ",".join(nodes)
    words = ["--exclusive", "--partition=short"]
    job = here.cluster.sbatch(f"sleep {minutes * 60}", *words, f"--nodelist={busy}", f"--time={minutes}")
    here.cluster.wait_until(lambda: here.cluster.state(job) == "RUNNING")
    behind = f"sleep {BEHIND_MINUTES * 60}"
    here.cluster.sbatch(behind, *words, f"--nodelist={both}", "--nodes=2", f"--time={most}")


def start(here: Lab, node: str, hole: int, is_plain: bool, most: int, minutes: float) -> Pair:
    """A run with so much work, on that node alone."""
    run = {
        "engine": "toy",
        "segments": 4,
        "segment_minutes": most if is_plain else {"at_least": AT_LEAST, "at_most": most},
        "first_margin_seconds": 3,
        "slurm_extra": [f"--nodelist={node}"],
        "settings": {"goal": int(minutes * 60 / STEP_SECONDS), "step_seconds": STEP_SECONDS, "save_steps": 0},
    }
    folder = here.folder({"bench": run})
    command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "slurm")]
    with (folder / "driver.txt").open("wb") as output:
        driver = subprocess.Popen(command, cwd=folder, env=here.environment, stdout=output, stderr=output)
    return Pair(hole, is_plain, folder, driver)


def row(here: Lab, pair: Pair, most: int) -> list[str]:
    """What the first job got and did, and when the run was done."""
    if pair.driver.wait():
        sys.exit(f"{pair.folder}: {(pair.folder / 'driver.txt').read_text()[-2000:]}")
    attempts = History(RunFolder("bench", pair.folder).history).attempts()
    first = attempts[0]
    columns = "--format=JobID,TimelimitRaw,Submit,Start,End"
    words = ["--allocations", "--noheader", "--parsable2", f"--jobs={','.join(each.slurm_job for each in attempts)}"]
    said = here.cluster.run("sacct", *words, columns)
    jobs = {number: rest for number, *rest in (line.split("|") for line in said.splitlines())}
    limit, submitted, began, _ = jobs[first.slurm_job]
    done = _unix(jobs[attempts[-1].slurm_job][3])
    unused = 0.0 if first.kind.value == "finished" else first.unused_seconds or 0.0
    way = f"`segment_minutes: {most}`" if pair.is_plain else f"`{{at_least: {AT_LEAST}, at_most: {most}}}`"
    cells = (_unix(began) - _unix(submitted)) / 60, first.work_seconds / 60, (done - _unix(submitted)) / 60
    waited, worked, whole = (f"{minutes:.1f}" for minutes in cells)
    return [str(pair.hole), way, waited, limit, worked, f"{unused:.1f}", str(len(attempts)), whole]


def _unix(local: str) -> float:
    return datetime.fromisoformat(local).timestamp()


def measure(here: Lab, holes: list[int], most: int, minutes: float) -> str:
    """All holes at once; a table."""
    nodes = iter(here.cluster.nodes)
    pairs = []
    for hole in holes:
        for is_plain in (True, False):
            two = next(nodes), next(nodes)
            make_hole(here, two, hole, most)
            pairs.append(start(here, two[1], hole, is_plain, most, minutes))
            time.sleep(1)
    rows = [row(here, pair, most) for pair in pairs]
    header = ["hole", "the run says", "first job waits", "gets", "works", "unused s", "jobs", "done after"]
    return table(header, rows)


def release(here: Lab) -> str:
    """`22.05.8`."""
    return here.cluster.run("sinfo", "--version").split()[1]


if __name__ == "__main__":
    if prefix := os.environ.get("SLURM"):
        os.environ["PATH"] = f"{prefix}/bin:{prefix}/sbin:{os.environ['PATH']}"
    chosen = options(
        __doc__,
        holes=(str, "3,5,7", "lengths of the holes in minutes"),
        most=(int, 10, "`at_most`"),
        minutes=(float, 4.0, "how much work there is"),
    )
    lengths = [int(word) for word in chosen.holes.split(",")]
    where = machine("snakemake", "snakemake-executor-plugin-slurm")
    # The last node is not in the partition.
    with slurm.lab(4 * len(lengths) + 1) as cluster:
        version = release(cluster)
        text = measure(cluster, lengths, chosen.most, chosen.minutes)
    publish("holes", f"Slurm {version}. {where} Minutes.\n\n{text}", chosen.write)
