"""`unbroken advise`: which partition and length of a segment bring a run to its goal first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from unbroken.cli.install_profile import SITE
from unbroken.cli.run_command import folder_of_profile
from unbroken.cli.say import say
from unbroken.config import yaml_file
from unbroken.config.site import Request, read_site
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError
from unbroken.plan.resources import sbatch_words
from unbroken.report.advice import LEAST_WAITS, Estimate, Rest, Waits, estimate, lengths, rest_of, similar
from unbroken.report.forecast import moment
from unbroken.runs.run import RunSpec
from unbroken.slurm.partitions import ask_partitions, default_partition
from unbroken.slurm.queue import DAYS, past_waits
from unbroken.slurm.sbatch import start_if_submitted
from unbroken.system.clock import duration

# A difference below that is none.
WORTH = 0.1


@dataclass(frozen=True)
class Choice:
    """A partition and a length in minutes, what is known of the wait, and what follows; `refusal` is Slurm's."""

    partition: str
    minutes: int
    waits: Waits
    estimate: Estimate | None
    refusal: str = ""

    @property
    def seconds(self) -> float:
        return math.inf if self.estimate is None else self.estimate.seconds


def advise(run: RunSpec, directory: Path, profile: str) -> None:
    """Print what is known, and what to type."""
    rest, request = rest_of(run, directory), request_of(run, directory, profile)
    if rest is not None and rest.left_seconds <= 0:
        say(f"{run.name}: its goal is reached")
        return
    asked = list(_choices(run, request, rest))
    allowed = [choice for choice in asked if not choice.refusal]
    if not allowed:
        why = asked[0].refusal if asked else "no partition is up"
        raise ConfigError([f"{run.name}: Slurm takes such a job nowhere: {why}"])
    if rest is not None:
        cost = f"a cut costs {duration(rest.cut_seconds)}"
        say(f"{run.name}: {duration(rest.left_seconds)} of work are left; {cost}; {_waits_of(rest)}")
    _print_table(allowed)
    for line in lines(run, allowed, rest, request.partition or default_partition()):
        say(f"{run.name}: {line}")


def request_of(run: RunSpec, directory: Path, profile: str) -> Request:
    """Return what the run asks of this cluster, by the site of a profile."""
    path = Path(folder_of_profile(profile, directory)) / SITE
    try:
        written = yaml_file.read(path)
    except FileNotFoundError:
        written = {}
    site = read_site({"site": {}, **written}, known_schemas()) if isinstance(written, Mapping) else None
    if site is None:
        raise ConfigError([f"{path}: found no mapping `site:`; to compare, type: unbroken profile slurm --to other"])
    return site.request(run)


def lines(run: RunSpec, allowed: Sequence[Choice], rest: Rest | None, partition: str) -> Iterator[str]:
    """Yield what follows, and how sure it is."""
    if rest is None:
        yield "too little is known of its pace; after its first segment type: unbroken advise"
        return
    best = min(allowed, key=lambda choice: choice.seconds)
    if best.estimate is None:
        yield "no length that is allowed here is longer than what a cut costs"
        return
    minutes = math.ceil(run.segment_minutes)
    now = next((each for each in allowed if (each.partition, each.minutes) == (partition, minutes)), None)
    before = now.seconds if now is not None else math.inf
    if now is not None and best.seconds > before * (1 - WORTH):
        best = now
        yield f"it is well as it is: done {_at(before)}; nothing here is sooner by a tenth"
    else:
        instead = f" instead of {_at(before)}" if before < math.inf else ""
        yield f"type {_typed(run, best)}: done {_at(best.seconds)}{instead}"
    if best.estimate is not None and best.estimate.segments == 1:
        yield "one job of that length does all the rest: segments bring nothing here but safety"
    if not best.waits.is_known:
        yield (
            f"its wait is Slurm's guess of now, which knows of no later job: fewer than {LEAST_WAITS} jobs of yours "
            f"like it started in {DAYS} days"
        )


def _choices(run: RunSpec, request: Request, rest: Rest | None) -> Iterator[Choice]:
    """Yield all that Slurm is asked about, and what it says."""
    seen, words = past_waits(), sbatch_words(run, request)
    for name, partition in ((each.name, each) for each in ask_partitions().values() if each.is_there):
        for minutes in lengths(partition.limit_minutes, run.segment_minutes, rest):
            said = start_if_submitted([*words, f"--partition={name}", f"--time={minutes}"])
            if isinstance(said, str):
                yield Choice(name, minutes, Waits(0.0), None, said)
                continue
            waits = Waits(max(said - time.time(), 0.0), tuple(similar(seen.get(name, []), minutes)))
            yield Choice(name, minutes, waits, estimate(rest, minutes, waits) if rest else None)


def _typed(run: RunSpec, best: Choice) -> str:
    words = [f"`segment_minutes: {best.minutes}`", f"`partition: {best.partition}`"]
    if best.estimate is not None and best.estimate.segments > run.segments:
        words.append(f"`segments: {best.estimate.segments}` or more")
    return ", ".join(words)


def _at(seconds: float) -> str:
    return f"about {moment(time.time() + seconds, seconds)}"


def _waits_of(rest: Rest) -> str:
    """Return how the table counts the waits of later segments."""
    if rest.between_seconds is None:
        return "each segment is a single job, and waits as the first"
    return f"the queue's wait counts once for the array, then {duration(rest.between_seconds)} between two tasks"


def _print_table(allowed: Sequence[Choice]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 1000
    columns = ("partition", "segment", "wait now", "your waits", "segments", "goal in")
    table = Table(*columns, box=None, pad_edge=False)
    for choice in allowed:
        waits, found = choice.waits, choice.estimate
        seen = f"{duration(waits.likely)} ({duration(waits.late)}, {len(waits.seen)})" if waits.is_known else "-"
        cells = [choice.partition, duration(choice.minutes * 60), duration(waits.guessed), seen]
        table.add_row(*cells, *([str(found.segments), duration(found.seconds)] if found else []))
    console.print(table)
