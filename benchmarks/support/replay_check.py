"""The simulated cluster beside a real slurmctld: the same jobs, the same user's work, in both; who is how wrong.

A real cluster takes real time, so hours are compressed: a limit is at least a minute, so that minute is three hours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from pathlib import Path
from random import Random
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from support.backfill import DAY, HOUR, MINUTE, Cluster, Request, Site
from support.measure import ROOT, table
from support.ways import Beside, Chain, Task, Way, Whole
from support.workloads import at_load, lublin

if TYPE_CHECKING:
    from lab import Cluster as RealCluster

NODES = 16
USER_COMES = 30.0
TASK_HOURS, LIMIT_HOURS, SEGMENT_HOURS = 30, 48, 6
CUT, MARGIN, HANDOVER = 3.0, 3.0, 1.0
AFTER_MINUTES = 1
# From the end of one job to the start of the next on its node: docs/benchmarks.md, chains by hand on an idle cluster.
HANDLING = 0.5
PATIENCE = 50 * 60
CONF = {
    "PriorityType=priority/basic": (
        "PriorityType=priority/multifactor\nPriorityWeightAge=1000000\nPriorityMaxAge=7-0\nPriorityCalcPeriod=1"
    ),
    "bf_interval=1,sched_interval=5": "bf_interval=2,bf_resolution=1,sched_interval=5,bf_max_job_test=500",
    "MaxTime=10 State=UP PriorityTier=10": "MaxTime=UNLIMITED State=UP PriorityTier=10",
    "MinJobAge=300": "MinJobAge=36000",
}
SITE = Site(NODES, max_limit=DAY, calc_seconds=60.0, backfill_seconds=2.0, resolution=1.0, handling=HANDLING)
LOADS = (0.7, 0.9)
WAYS = ("one job", "segments", "beside")


def background(load: float, seed: int, hour: float) -> list[Request]:
    """What is on the nodes and in the queue after three days, submitted first, and four days more; real seconds.

    `hour` is how many real seconds an hour lasts.  The queue comes two seconds after the nodes have been taken: a
    limit of whole minutes would else end in the very second of another.
    """
    days, random, scale = 7, Random(seed), hour / HOUR
    jobs = at_load(lublin(NODES, 60, random), NODES, load, days, random)
    warm = Cluster(Site(NODES), jobs)
    warm.run(3 * DAY)
    at_work = [(job, warm.now - (job.start or 0.0)) for job in warm.running]
    first = [Request(0.0, job.user, job.nodes, job.limit - ago, job.runtime - ago) for job, ago in at_work]
    queue = [Request(0.0, job.user, job.nodes, job.limit, job.runtime) for job in warm.waiting]
    later = [replace(job, submit=job.submit - warm.now) for job in jobs if job.submit > warm.now]
    moved = [replace(_compressed(job, scale), submit=2 + 0.05 * at) for at, job in enumerate(queue)]
    return sorted([*(_compressed(job, scale) for job in first + later), *moved], key=lambda job: job.submit)


def _compressed(job: Request, scale: float) -> Request:
    """Limits are whole minutes; a job that would sleep less than a second sleeps a second."""
    limit = ceil(job.limit * scale / MINUTE) * MINUTE
    runtime = round(max(job.runtime * scale, 1.0), 1)
    return replace(job, submit=round(job.submit * scale, 1), limit=limit, runtime=min(runtime, limit - MARGIN))


def task(hour: float) -> Task:
    return Task(TASK_HOURS * hour, 2, CUT, MARGIN, HANDOVER)


def simulated(jobs: Sequence[Request], way: str, hour: float, site: Site = SITE) -> float:
    """Seconds from the user's submission to the end of the work."""
    segment = SEGMENT_HOURS * hour
    work: dict[str, Way] = {
        "one job": Whole(task(hour), LIMIT_HOURS * hour),
        "segments": Chain(task(hour), segment),
        "beside": Beside(task(hour), segment, lambda _: segment - AFTER_MINUTES * MINUTE),
    }
    cluster = Cluster(site, jobs)
    cluster.run(USER_COMES)
    work[way].begin(cluster)
    cluster.run()
    return work[way].finished_at - USER_COMES


def real(jobs: Sequence[Request], way: str, hour: float) -> tuple[float, list[float]]:
    """The same in a cluster of its own, of real daemons, whose jobs sleep; also how long others' jobs waited."""
    # Here, so that who only simulates does not get the modules of the laboratory.
    sys.path.insert(0, str(ROOT / "tests" / "cluster"))
    import lab

    cluster = lab.Cluster(Path(mkdtemp(prefix="unbroken_replay_")), NODES + 1)
    cluster.start()
    folder = Path(mkdtemp(prefix="unbroken_replay_work_"))
    try:
        conf = cluster.folder / "slurm.conf"
        text = conf.read_text()
        for old, new in CONF.items():
            if old not in text:
                sys.exit(f"{conf}: no {old}")
            text = text.replace(old, new)
        cluster.stop_slurmctld()
        conf.write_text(text)
        cluster.start_slurmctld()
        cluster.run("scontrol", "reconfigure")
        return _play(cluster, folder, jobs, way, hour)
    finally:
        cluster.stop()
        rmtree(folder, ignore_errors=True)


def _play(
    cluster: RealCluster, folder: Path, jobs: Sequence[Request], way: str, hour: float
) -> tuple[float, list[float]]:
    ends, began, numbers = threading.Event(), time.time(), list[str]()

    def submit_others() -> None:
        for job in jobs:
            if ends.wait(max(began + job.submit - time.time(), 0.0)):
                return
            words = [f"--nodes={job.nodes}", f"--time={job.limit / MINUTE:.0f}", "--exclusive"]
            numbers.append(cluster.sbatch(f"exec sleep {job.runtime}", *words))

    others = threading.Thread(target=submit_others)
    others.start()
    try:
        time.sleep(max(began + USER_COMES - time.time(), 0.0))
        submitted = time.time()
        _submit_work(cluster, folder, way, hour)
        book = folder / "work.jsonl"
        cluster.wait_until(lambda: book.exists() and '"done"' in book.read_text(), PATIENCE)
        done = next(entry["done"] for line in book.read_text().splitlines() if "done" in (entry := json.loads(line)))
        waits = _waits(cluster, numbers)
    finally:
        ends.set()
        others.join()
    cluster.cancel_everything()  # a slurmd that is to end waits for its jobs
    return float(done) - submitted, waits


def _waits(cluster: RealCluster, numbers: Sequence[str]) -> list[float]:
    """Of these jobs, as far as they have started, in their order."""
    columns = ("squeue", "--noheader", "--states=all", "--format=%i|%V|%S|%T")
    rows = (line.split("|") for line in cluster.run(*columns).splitlines())
    started = {row[0]: _unix(row[2]) - _unix(row[1]) for row in rows if row[3] in ("RUNNING", "COMPLETED")}
    return [started[number] for number in numbers if number in started]


def _unix(local: str) -> float:
    return datetime.fromisoformat(local).timestamp()


def _submit_work(cluster: RealCluster, folder: Path, way: str, hour: float) -> None:
    segment = SEGMENT_HOURS * hour
    limit = LIMIT_HOURS * hour if way == "one job" else segment
    goal = TASK_HOURS * hour
    numbers = [goal, limit, MARGIN, CUT, HANDOVER, *([AFTER_MINUTES] if way == "beside" else [])]
    words = [str(folder), *(f"{number:g}" for number in numbers)]
    program = Path(__file__).parent / "replayed_work.py"
    submit = folder / "submit"
    flags = f"--parsable --nodes=2 --exclusive --time={limit / MINUTE:.0f} --chdir={folder} --output=/dev/null"
    submit.write_text(
        "#!/bin/sh\n"
        f"for last; do case $last in --dependency=*) depends=$last;; esac; done\n"
        f'exec sbatch {flags} $depends --wrap "exec {sys.executable} -IS {program} {" ".join(words)}"\n'
    )
    submit.chmod(0o755)
    count = ceil(goal / (segment - MARGIN - CUT)) if way == "segments" else 1
    job = ""
    for _ in range(count):
        job = cluster.run(str(submit), *([f"--dependency=afterany:{job}"] if job else [])).strip()


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_missing(path: Path, loads: Sequence[float], seeds: int, hour: float, at_once: int) -> None:
    """Adds to the file what it has not: every way, load and seed on a cluster of its own, so many at a time."""
    have = {(line["load"], line["seed"], line["way"]) for line in read_lines(path)}
    wanted = [(load, seed, way) for load in loads for seed in range(1, seeds + 1) for way in WAYS]
    commands = [
        [sys.executable, "-m", "support.replay_check", str(load), str(seed), way, str(hour), str(path)]
        for load, seed, way in wanted
        if (load, seed, way) not in have
    ]
    running: list[subprocess.Popen[bytes]] = []
    for command in commands:
        while len(running) >= at_once:
            running = [process for process in running if process.poll() is None]
            time.sleep(1)
        running.append(subprocess.Popen(command, cwd=ROOT / "benchmarks"))
        time.sleep(4)  # the next one looks for free ports when this one has taken its own
    for process in running:
        process.wait()


def report(lines: Sequence[dict[str, object]]) -> tuple[str, float]:
    """Real and simulated differences between the ways, and the median error of a difference as a part of the work."""
    real = {(line["load"], line["seed"], line["way"]): float(line["seconds"]) for line in lines}
    hour = float(lines[0]["hour"])
    model = {key: simulated(background(key[0], key[1], hour), key[2], hour) for key in real}
    rows, errors = [], []
    for load in sorted({key[0] for key in real}):
        for way, other in (("segments", "one job"), ("beside", "one job"), ("beside", "segments")):
            seeds = sorted({key[1] for key in real if {(load, key[1], way), (load, key[1], other)} <= real.keys()})
            true, guessed = (
                [(source[load, seed, way] - source[load, seed, other]) / hour for seed in seeds]
                for source in (real, model)
            )
            wrong = [one - two for one, two in zip(guessed, true, strict=True)]
            errors += wrong
            cells = [_each(true), _each(guessed), _each(wrong)]
            rows.append([f"{load:g}", f"{way} - {other}", *cells])
    header = ["load", "hours", "real: median (each seed)", "simulated", "simulated - real"]
    return table(header, rows), median(abs(error) for error in errors) / TASK_HOURS


def _each(values: Sequence[float]) -> str:
    return f"{median(values):+.1f} ({', '.join(f'{value:+.1f}' for value in values)})" if values else "-"


def main() -> None:
    """One real run, as a process of its own: LOAD SEED WAY HOUR FILE; a line of JSON is added to the file."""
    load, seed, way, hour, file = sys.argv[1:6]
    jobs = background(float(load), int(seed), float(hour))
    seconds, waits = real(jobs, way, float(hour))
    line = {"load": float(load), "seed": int(seed), "way": way, "hour": float(hour), "seconds": seconds, "waits": waits}
    with Path(file).open("a") as out:
        print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
