"""What other users of a cluster submit: a model, recorded logs, and both brought to a load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from math import ceil, exp, lgamma, log
from pathlib import Path
from random import Random

from support.backfill import DAY, HOUR, MINUTE, Request

# What users type behind `--time`, hours (Tsafrir, Etsion & Feitelson, IPDPS 2005: a few round values take most jobs).
LIMITS = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168)

# --- Lublin & Feitelson, The workload on parallel supercomputers, J. Parallel Distrib. Comput. 63(11), 2003 ---
# The parameters for all jobs together (lublin99.c, neither batch nor interactive alone).
SERIAL, POWER_OF_TWO = 0.244, 0.576  # parts of all jobs
SMALLEST, MIDDLE_BELOW_LARGEST, BELOW_MIDDLE = 0.8, 2.5, 0.86  # log2 of nodes: two uniform pieces
SHORT, LONG = (4.2, 0.94), (312.0, 0.03)  # gamma distributions of the log of the seconds
SHORT_PART, SHORT_PART_BY_NODE = 0.78, -0.0054
BETWEEN = (10.2303 * 1.0225, 0.4871)  # gamma of the log of the seconds between arrivals, over the whole day
DAILY, DAY_BEGINS = (8.1737, 3.9631), 11  # gamma over the half hours of a day, the first being this one
LONGEST_LOG, LONGEST_GAP_LOG = 12, 13
HALF_HOURS = 48
MODEL_NODES = 128  # on machines of other sizes the part of short jobs is that of as large a part of the machine


def lublin(nodes: int, days: float, random: Random, max_limit: float = 7 * DAY, users: int = 50) -> list[Request]:
    """Jobs of the model; users and limits, which it does not have, are added.

    The n-th user submits in proportion to 1/n.  Used over asked time is uniform (Mu'alem & Feitelson, IEEE TPDS 12(6),
    2001), and the limit is the next round value.
    """
    names = [f"user{number}" for number in range(1, users + 1)]
    weights = list(accumulate(1 / number for number in range(1, users + 1)))
    jobs = []
    for when in _arrivals(random):
        if when >= days * DAY:
            return jobs
        size = _size(nodes, random)
        runtime = min(_runtime(size * MODEL_NODES / nodes, random), max_limit)
        limit = round_limit(runtime / max(random.random(), 0.01), max_limit)
        user = random.choices(names, cum_weights=weights)[0]
        jobs.append(Request(when, user, size, limit, runtime))
    raise AssertionError("arrivals have no end")


def round_limit(seconds: float, max_limit: float) -> float:
    """The next value that a user would type, at most the site's."""
    return min(next((hours * HOUR for hours in LIMITS if hours * HOUR >= seconds), max_limit), max_limit)


def _size(nodes: int, random: Random) -> int:
    kind, largest = random.random(), log(nodes, 2)
    if kind <= SERIAL:
        return 1
    middle = max(largest - MIDDLE_BELOW_LARGEST, SMALLEST)
    piece = (SMALLEST, middle) if random.random() <= BELOW_MIDDLE else (middle, largest)
    exponent = random.uniform(*piece)
    if kind <= SERIAL + POWER_OF_TWO:
        exponent = int(exponent + 0.5)
    return max(min(round(2**exponent), nodes), 1)


def _runtime(model_nodes: float, random: Random) -> float:
    is_short = random.random() <= SHORT_PART + SHORT_PART_BY_NODE * model_nodes
    while (value := random.gammavariate(*(SHORT if is_short else LONG))) > LONGEST_LOG:
        pass
    return max(exp(value), 1.0)


def _arrivals(random: Random) -> Iterator[float]:
    """Each gap is paid for in the weights of the half hours that it spans: at night a second costs less."""
    weights, now = _daily_weights(), 0.0
    while True:
        while (value := random.gammavariate(*BETWEEN)) > LONGEST_GAP_LOG:
            pass
        owed = exp(value)
        while True:
            at = int(now // (30 * MINUTE))
            left = ((at + 1) * 30 * MINUTE - now) * weights[at % HALF_HOURS]
            if owed < left:
                break
            owed -= left
            now = (at + 1) * 30 * MINUTE
        now += owed / weights[at % HALF_HOURS]
        yield now


@cache
def _daily_weights() -> list[float]:
    weights = [0.0] * HALF_HOURS
    for half_hour in range(DAY_BEGINS, DAY_BEGINS + HALF_HOURS):
        mass = _gamma_cdf(half_hour + 0.5, *DAILY) - _gamma_cdf(half_hour - 0.5, *DAILY)
        weights[(half_hour - 1) % HALF_HOURS] = mass
    mean = sum(weights) / HALF_HOURS
    return [weight / mean for weight in weights]


def _gamma_cdf(value: float, shape: float, scale: float) -> float:
    """The regularised lower incomplete gamma function, by its series (Abramowitz & Stegun 6.5.29)."""
    x, term = value / scale, 1 / shape
    total, step = term, shape
    while term > total * 1e-12:
        step += 1
        term *= x / step
        total += term
    return total * exp(-x + shape * log(x) - lgamma(shape))


# --- recorded logs ---


def read_swf(path: Path) -> tuple[list[Request], int]:
    """A log of the Parallel Workloads Archive (SWF 2.2), and the processors of its machine; a node is a processor.

    Jobs without a runtime or processors are left out; without a request, the limit is the next round value.
    """
    text = path.read_text(errors="replace")
    processors = int(found[1]) if (found := re.search(r"^;\s*MaxProcs:\s*(\d+)", text, re.MULTILINE)) else 0
    jobs = []
    for line in text.splitlines():
        if line.startswith(";") or not line.strip():
            continue
        cells = [float(cell) for cell in line.split()]
        submit, runtime, used, requested, asked = cells[1], cells[3], cells[4], cells[7], cells[8]
        nodes = int(requested if requested > 0 else used)
        if runtime <= 0 or nodes <= 0:
            continue
        limit = asked if asked > 0 else round_limit(runtime, 7 * DAY)
        jobs.append(Request(submit, f"user{cells[11]:.0f}", nodes, max(limit, runtime), runtime))
    jobs.sort(key=lambda job: job.submit)
    return jobs, processors or max(job.nodes for job in jobs)


# github.com/ubccr-slurm-simulator/slurm_sim_tools, tutorials/medium_cluster/etc/slurm.conf: cores of general-compute.
MEDIUM_CLUSTER_CORES = 87 * 32 + 96 * 40 + 24 * 40 + 8 * 40
_EVENT = re.compile(r"^-dt\s+(?P<when>[\d.]+) .*-sim-walltime\s+(?P<runtime>[\d.]+) --uid=(?P<user>\S+)(?P<words>.*)$")


def read_events(path: Path) -> list[Request]:
    """A file of events of slurm_sim_tools; a node is a core, and partitions other than general-compute are left out."""
    jobs = []
    for line in path.read_text().splitlines():
        found = _EVENT.match(line)
        if found is None or " -p general-compute" not in found["words"]:
            continue
        limit = _limit(_word(found["words"], "-t"))
        runtime = min(max(float(found["runtime"]), 1.0), limit)
        jobs.append(Request(float(found["when"]), found["user"], int(_word(found["words"], "-n")), limit, runtime))
    return sorted(jobs, key=lambda job: job.submit)


def _word(words: str, flag: str) -> str:
    parts = words.split()
    return parts[parts.index(flag) + 1]


def _limit(text: str) -> float:
    """Seconds of Slurm's D-HH:MM:SS."""
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * DAY + hours * HOUR + minutes * MINUTE + seconds


# --- load ---


def load_of(jobs: Sequence[Request], nodes: int, seconds: float) -> float:
    return sum(job.nodes * job.runtime for job in jobs) / (nodes * seconds)


def at_load(jobs: Sequence[Request], nodes: int, load: float, days: int, random: Random) -> list[Request]:
    """So many days at this load: the days of a log in random order, of each a random part of its jobs.

    Every job is taken with the same chance; where the log is below the load, a day is laid upon others.  What a user
    submits on one day stays together.  The load is that of the whole, not of each day; drawn again until it is met
    within a fiftieth.
    """
    whole_days = max(ceil((jobs[-1].submit + 1) / DAY), 1)
    by_day: list[list[Request]] = [[] for _ in range(whole_days)]
    for job in jobs:
        by_day[int(job.submit // DAY)].append(job)
    own = load_of(jobs, nodes, whole_days * DAY)
    layers = ceil(load / own)
    chance = load / own / layers
    for _ in range(1000):
        found = _drawn(by_day, layers, chance, days, random)
        if abs(load_of(found, nodes, days * DAY) / load - 1) <= 0.02:
            return found
    raise ValueError(f"{days} days of this log do not come near a load of {load}")


def _drawn(by_day: list[list[Request]], layers: int, chance: float, days: int, random: Random) -> list[Request]:
    whole_days, found = len(by_day), []
    for _ in range(layers):
        order = [at for _ in range(ceil(days / whole_days)) for at in random.sample(range(whole_days), whole_days)]
        for number, at in enumerate(order[:days]):
            moved = (number - at) * DAY
            found += [replace(job, submit=job.submit + moved) for job in by_day[at] if random.random() < chance]
    return sorted(found, key=lambda job: job.submit)
