"""Waits in a full queue: chains on a cluster whose queue is kept full, jobs ordered by their age.

A real slurmctld with priority/multifactor, age alone; hours are minutes here.  All chains wait in the same queue at the
same time.  Others' jobs take a node each for 30 to 90 s, and so many of them always wait.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

from support import slurm
from support.measure import ROOT, SNAKEMAKE, machine, options, publish, spread, table
from support.slurm import Lab

from unbroken.cli.run_command import DETACHED
from unbroken.store.history import History
from unbroken.store.layout import RunFolder

# The folder of a chain, and its driver.
Started = tuple[Path, subprocess.Popen[bytes] | None]
STEP_SECONDS = 0.1
# Of each segment so much is no work, in all ways: starts and margins.
CUT_SECONDS = 10
BY_AGE = """\
PriorityType=priority/multifactor
PriorityWeightAge=1000000
PriorityMaxAge=0-2
PriorityCalcPeriod=1"""


@dataclass(frozen=True)
class Chain:
    """What a chain took, in minutes: from its submission to its end, with a node, and with a second one."""

    whole: float
    with_node: float
    doubled: float
    jobs: int


def order_by_age(here: Lab) -> None:
    """Starts the controller again, with the age of a job as its whole priority."""
    conf = here.cluster.folder / "slurm.conf"
    here.cluster.stop_slurmctld()
    conf.write_text(conf.read_text().replace("PriorityType=priority/basic", BY_AGE))
    here.cluster.start_slurmctld()


@contextmanager
def full_queue(here: Lab, count: int) -> Iterator[None]:
    """Keeps so many jobs of others waiting."""
    random, ends = Random(1), threading.Event()

    def fill() -> None:
        while not ends.wait(0.5):
            waiting = here.cluster.run(
                "squeue", "--noheader", "--states=pending", "--name=filler", "--format=%A"
            ).split()
            for _ in range(count - len(waiting)):
                seconds = random.uniform(30, 90)
                here.cluster.sbatch(f"exec sleep {seconds:.0f}", "--job-name=filler", "--cpus-per-task=4", "--time=2")

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        here.cluster.run("scancel", "--name=filler")


def array(here: Lab, minutes: int, segments: int) -> Started:
    """`--array=1-N%1` of programs that save nothing and lose nothing."""
    folder = here.folder({})
    script = f"exec sleep {minutes * 60 - CUT_SECONDS}"
    words = [f"--array=1-{segments}%1", "--cpus-per-task=4", f"--time={minutes + 1}"]
    here.cluster.sbatch(script, *words, cwd=folder)
    return folder, None


def chain(here: Lab, minutes: int, segments: int, profile: str, *words: str) -> Started:
    """A run of unbroken with as much work; its driver, if it has one that stays."""
    run = {
        "engine": "toy",
        "segments": 3 * segments,
        "segment_minutes": minutes,
        "first_margin_seconds": 5,
        "threads": 4,
        "settings": {"goal": _goal(minutes, segments), "step_seconds": STEP_SECONDS, "save_steps": 0},
    }
    folder = here.folder({"bench": run})
    command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / profile)]
    command += words
    with (folder / "driver.txt").open("wb") as output:
        driver = subprocess.Popen(command, cwd=folder, env=here.environment, stdout=output, stderr=output)
    return folder, driver


def _goal(minutes: int, segments: int) -> int:
    return int(segments * (minutes * 60 - CUT_SECONDS) / STEP_SECONDS)


def took(here: Lab, folder: Path) -> Chain:
    """By what accounting knows of the jobs of this folder that have started."""
    columns = "Submit,Start,End,WorkDir"
    said = here.cluster.run("sacct", "--allocations", "--noheader", "--parsable2", f"--format={columns}")
    rows = [line.split("|") for line in said.splitlines()]
    own = [row for row in rows if row[3] == str(folder) and row[1] not in ("None", "Unknown")]
    submitted = min(_unix(row[0]) for row in own)
    spans = sorted((_unix(row[1]), _unix(row[2])) for row in own)
    union, until = 0.0, 0.0
    for start, end in spans:
        union += max(end - max(start, until), 0.0)
        until = max(until, end)
    total = sum(end - start for start, end in spans)
    return Chain((until - submitted) / 60, union / 60, (total - union) / 60, len(spans))


def _unix(local: str) -> float:
    return datetime.fromisoformat(local).timestamp()


def measure(here: Lab, minutes: int, segments: int, copies: int, queued: int, fill_seconds: float) -> str:
    """All chains at once; a table."""
    ways = {
        "`--array=1-N%1`": lambda: array(here, minutes, segments),
        "detached": lambda: chain(here, minutes, segments, "slurm", *DETACHED),
        "attached": lambda: chain(here, minutes, segments, "slurm"),
    }
    with full_queue(here, queued):
        time.sleep(fill_seconds)  # until those that wait are of all ages
        started = [(way, *begin()) for _ in range(copies) for way, begin in ways.items()]
        folders = {str(folder) for _, folder, _ in started}
        for _, folder, driver in started:
            if driver is not None and driver.wait() != 0:
                sys.exit(f"{folder}: {(folder / 'driver.txt').read_text()[-2000:]}")
        here.cluster.wait_until(lambda: not _own(here, folders), slurm.PATIENCE_SECONDS)
    for way, folder, driver in started:
        if driver is not None:
            done = History(RunFolder("bench", folder).history).attempts()[-1].progress_to
            if done != _goal(minutes, segments):
                sys.exit(f"{way}: {folder}: ended at {done:.0f}")
    rows = []
    for way in ways:
        found = [took(here, folder) for name, folder, _ in started if name == way]
        cells = [spread([getattr(each, name) for each in found], 1) for name in ("whole", "with_node", "doubled")]
        waits = spread([each.whole - each.with_node for each in found], 1)
        rows.append([way, cells[0], waits, cells[1], cells[2], spread([float(each.jobs) for each in found], 0)])
    header = [f"{segments} segments of {minutes} minutes", "all", "without a node", "with one", "with two", "jobs"]
    return table(header, rows)


def _own(here: Lab, folders: set[str]) -> list[str]:
    rows = here.cluster.run("squeue", "--noheader", "--states=pending,running", "--format=%A|%Z").splitlines()
    return [row for row in rows if row.partition("|")[2] in folders]


if __name__ == "__main__":
    chosen = options(
        __doc__,
        nodes=(int, 30, "how many nodes the queue has"),
        queued=(int, 50, "how many jobs of others always wait"),
        minutes=(int, 3, "length of a segment"),
        segments=(int, 3, "how many of them the work fills"),
        copies=(int, 3, "how many chains of each kind"),
        fill=(float, 120.0, "seconds for which the queue is filled before"),
    )
    where = machine("snakemake", "snakemake-executor-plugin-slurm")
    with slurm.lab(chosen.nodes + 1) as here:
        order_by_age(here)
        text = measure(here, chosen.minutes, chosen.segments, chosen.copies, chosen.queued, chosen.fill)
    publish("queue_wait", f"{where} Minutes: median of {chosen.copies} (least-most).\n\n{text}", chosen.write)
