"""Which way is done first: one long computation through a simulated queue, as one job, as segments, into holes.

A cluster with a backfill scheduler (support/backfill.py) plays the same jobs of others for each way (support/ways.py).
The workloads are the model of Lublin & Feitelson, a log of the Parallel Workloads Archive (`--swf FILE`), and the
events of slurm_sim_tools (`--events FILE`: tutorials/medium_cluster/job_traces/workload_week.events there).
`--check` plays what has not been played yet on real slurmctlds, an hour in 20 seconds: it takes as long as the jobs do.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import median, quantiles

from support import replay_check
from support.backfill import DAY, HOUR, MINUTE, Cluster, Request, Site
from support.measure import EVIDENCE, ROOT, machine, options, publish, table
from support.ways import USER, Array, Beside, Chain, Holes, Lowered, Task, Way, Whole
from support.workloads import MEDIUM_CLUSTER_CORES, at_load, lublin, read_events, read_swf

REAL = ROOT / "benchmarks" / "support" / "queue_replay_real.jsonl"
WARM_DAYS, ARRIVE_DAYS, GIVE_UP_DAYS = 7, 21, 42
# Of the cluster whose events are read (slurm.conf there): the weights of age and fair share, 70000 and 120000.
SHARE = 120 / 70


@dataclass(frozen=True)
class Policy:
    """What the queue goes by, and for fair share the part of the other users that have used less than this one."""

    age: float
    share: float = 0.0
    used_more_than: float = 0.0


POLICIES = {
    "order of submission": Policy(0.0),
    "age": Policy(1.0),
    "age and fair share, nothing used yet": Policy(1.0, SHARE),
    "age and fair share, more used than 9 of 10 users": Policy(1.0, SHARE, 0.9),
}


@dataclass(frozen=True)
class Case:
    """A workload at a load, one draw of it, under one policy; its text is the name of its results."""

    workload: str
    file: str
    load: float
    seed: int
    policy: str
    hours: float
    nodes: int
    lengths: tuple[float, ...]
    arrivals: int

    def __str__(self) -> str:
        file = Path(self.file).name or "model"
        lengths = ", ".join(f"{length:g}" for length in self.lengths)
        drawn = f"load {self.load:g}, seed {self.seed}, {self.arrivals} arrivals"
        return f"{file}; {drawn}; {self.policy}; {self.hours:g} h on {self.nodes} nodes; segments of {lengths} h"


@dataclass(frozen=True)
class Result:
    """One way at one arrival; hours from the first submission to the end, at most those of `GIVE_UP_DAYS`."""

    case: str
    load: float
    seed: int
    policy: str
    arrival: float
    way: str
    hours: float | None  # None: the site takes no such job
    waits: float = 0.0
    jobs: int = 0


def ways(lengths: Sequence[float]) -> dict[str, Callable[[Task], Way]]:
    """By the words that stand in the table; lengths in hours."""
    found: dict[str, Callable[[Task], Way]] = {"one job, limit 7 days": lambda task: Whole(task, 7 * DAY)}
    for kind, name in ((Chain, "`afterany`"), (Array, "`--array=1-N%1`")):
        for length in lengths:
            found[f"{name}, {length:g} h"] = lambda task, kind=kind, length=length: kind(task, length * HOUR)
    for wait, name in (
        (lambda queued: queued[0], "the wait of the first job"),
        (lambda _: inf, "half its length"),
    ):
        for length in lengths[1:]:
            found[f"beside the work, {length:g} h, by {name}"] = lambda task, length=length, wait=wait: Beside(
                task, length * HOUR, wait
            )
    for most in (8, 24):
        found[f"`--time-min` 1 h, `--time` {most} h"] = lambda task, most=most: Holes(task, HOUR, most * HOUR)
    found["`--array=1-N%1`, `--time-min` 1 h, `--time` 24 h"] = lambda task: Array(task, DAY, HOUR)
    found["`--time-min` 1 h, `--time` 8 h before Slurm 25.05.3"] = lambda task: Holes(task, HOUR, 8 * HOUR, fills=False)
    found["8 h, halved after each half hour of waiting"] = lambda task: Lowered(task, 8 * HOUR, HOUR, 30 * MINUTE)
    return found


def workload(case: Case) -> tuple[list[Request], Site]:
    """The jobs of others, and the cluster that has them."""
    random = Random(f"{case.workload} {case.load} {case.seed}")
    days = WARM_DAYS + ARRIVE_DAYS + GIVE_UP_DAYS
    policy = POLICIES[case.policy]
    plain = Site(128, age_weight=policy.age, share_weight=policy.share)
    if case.workload == "events":
        site = replace(
            plain,
            nodes=MEDIUM_CLUSTER_CORES,
            max_limit=3 * DAY,
            half_life=30 * DAY,
            backfill_seconds=120.0,
            window=3 * DAY,
            tested=2500,
            tested_of_user=100,
        )
        return at_load(read_events(Path(case.file)), site.nodes, case.load, days, random), site
    if case.workload == "swf":
        jobs, processors = read_swf(Path(case.file))
        return at_load(jobs, processors, case.load, days, random), replace(plain, nodes=processors)
    return at_load(lublin(plain.nodes, 182, random), plain.nodes, case.load, days, random), plain


def replay(case: Case) -> list[Result]:
    """All ways, at each arrival of this case, from the same moment of the same cluster."""
    jobs, site = workload(case)
    cluster, random, results = Cluster(site, jobs), Random(case.seed), []
    times = sorted(random.uniform(WARM_DAYS, WARM_DAYS + ARRIVE_DAYS) * DAY for _ in range(case.arrivals))
    task = Task(case.hours * HOUR, case.nodes)
    for arrival in times:
        cluster.run(arrival)
        for name, make in ways(case.lengths).items():
            results.append(played(case, cluster.fork(), name, make(task)))
    return results


def played(case: Case, cluster: Cluster, name: str, way: Way) -> Result:
    arrival, used = cluster.now, POLICIES[case.policy].used_more_than
    cluster.shares.grant(USER, cluster.shares.quantile(used, arrival) if used else 0.0, arrival)
    key = (str(case), case.load, case.seed, case.policy, arrival / DAY, name)
    if not way.begin(cluster):
        return Result(*key, None)
    while way.finished_at == inf and cluster.now < arrival + GIVE_UP_DAYS * DAY:
        cluster.run(cluster.now + HOUR)
    hours = min((way.finished_at - arrival) / HOUR, GIVE_UP_DAYS * DAY / HOUR)
    return Result(*key, hours, sum(way.waits) / HOUR, len(way.waits))


# --- tables ---


def outcome_table(results: Sequence[Result], base: str, error: float) -> str:
    """The hours of the base, and how much earlier (negative) each other way was, pair by pair; medians (quartiles)."""
    loads = sorted({result.load for result in results})
    found = {(result.load, result.seed, result.arrival, result.way): result.hours for result in results}
    names = list(dict.fromkeys(result.way for result in results))
    pairs = len({(result.seed, result.arrival) for result in results})
    rows = [
        [
            f"{base}: hours",
            *(_quartiles([found[key] for key in found if key[0] == load and key[3] == base]) for load in loads),
        ]
    ]
    for name in names:
        if name != base:
            rows.append([name, *(_difference(found, load, name, base, error) for load in loads)])
    return table([f"medians of {pairs} (quartiles)", *(f"load {load:g}" for load in loads)], rows)


def _difference(
    found: dict[tuple[float, int, float, str], float | None], load: float, way: str, base: str, error: float
) -> str:
    keys = [key for key in found if key[0] == load and key[3] == way]
    own = [found[key] for key in keys]
    if None in own:
        return "not possible here"
    others = [found[(*key[:3], base)] for key in keys]
    values = [one - other for one, other in zip(own, others, strict=True)]
    if abs(median(values)) < error:
        low, _, high = _parts(values)
        return f"no difference ({low:+.0f} to {high:+.0f})"
    return _quartiles(values, "+.0f")


def _quartiles(values: Sequence[float], form: str = ".0f") -> str:
    low, middle, high = _parts(values)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def _parts(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(quantiles(values, n=4, method="inclusive")) if len(values) > 1 else (values[0],) * 3


# --- what to run ---


def replayed(cases: Sequence[Case], path: Path | None, workers: int) -> list[Result]:
    """All results; those that the file has are not played again, new ones are added to it."""
    known = [Result(**line) for line in replay_check.read_lines(path)] if path else []
    have = {result.case for result in known}
    missing = [case for case in cases if str(case) not in have]
    with Pool(workers) as pool:
        for number, results in enumerate(pool.imap_unordered(replay, missing), 1):
            print(f"{number} of {len(missing)} cases", file=sys.stderr, flush=True)
            known += results
            if path:
                with path.open("a") as file:
                    file.writelines(f"{json.dumps(asdict(result))}\n" for result in results)
    wanted = {str(case) for case in cases}
    return [result for result in known if result.case in wanted]


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


if __name__ == "__main__":
    chosen = options(
        __doc__,
        loads=(numbers, (0.7, 0.8, 0.9, 1.0), "what others submit, as a part of what the cluster can do; with commas"),
        hours=(float, 120.0, "the user's work"),
        nodes=(int, 2, "its nodes"),
        lengths=(numbers, (1.0, 8.0, 24.0), "lengths of segments, hours; with commas"),
        base=(str, "`afterany`, 24 h", "the way with which the others are compared"),
        seeds=(int, 3, "draws of the workload"),
        arrivals=(int, 4, "moments at which the user comes, of each draw"),
        events=(Path, None, "a file of events of slurm_sim_tools, instead of the model"),
        swf=(Path, None, "a log of the Parallel Workloads Archive, instead of the model"),
        policies=(str, ";".join(POLICIES), "what the queue goes by; with semicolons"),
        results=(Path, None, "a file of lines that keeps each result, so that a run goes on where it was ended"),
        workers=(int, 1, "processes"),
        check=(bool, False, "real clusters first; what the file has is not run again"),
        real=(Path, REAL, "the file of real runs"),
        real_seeds=(int, 5, "draws on real clusters"),
        hour=(float, 20.0, "seconds that an hour lasts on real clusters"),
        at_once=(int, 4, "real clusters at the same time"),
    )
    where = machine()
    if chosen.check:
        replay_check.run_missing(chosen.real, replay_check.LOADS, chosen.real_seeds, chosen.hour, chosen.at_once)
    checked, part = replay_check.report(replay_check.read_lines(chosen.real))
    kind, file = ("events", chosen.events) if chosen.events else ("swf", chosen.swf) if chosen.swf else ("lublin", "")
    cases = [
        Case(kind, str(file), load, seed, policy, chosen.hours, chosen.nodes, chosen.lengths, chosen.arrivals)
        for policy in chosen.policies.split(";")
        for load in chosen.loads
        for seed in range(1, chosen.seeds + 1)
    ]
    results = replayed(cases, chosen.results, chosen.workers)
    error = part * chosen.hours
    texts = [f"{where} {chosen.hours:g} hours on {chosen.nodes} nodes; smaller than {error:.0f} hours: no difference."]
    for policy in chosen.policies.split(";"):
        own = [result for result in results if result.policy == policy]
        texts.append(f"**{policy}**\n\n{outcome_table(own, chosen.base, error)}")
    place = "queue_replay" if kind == "lublin" else f"queue_replay_{kind}"
    publish(
        "queue_replay_check",
        f"Error of a difference (median): {part:.1%} of the work.\n\n{checked}",
        chosen.write,
        EVIDENCE,
    )
    publish(place, "\n\n".join(texts), chosen.write, EVIDENCE)
