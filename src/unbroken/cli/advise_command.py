"""`unbroken advise`: which partition and length of a segment bring a run to its goal first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from unbroken.accounting.advice import LEAST_WAITS, WORTH, Estimate, Waits, Work, estimate, lengths, similar
from unbroken.accounting.forecast_words import moment
from unbroken.accounting.past import is_array_task, past_of
from unbroken.cli.install_profile import SITE
from unbroken.cli.run_command import folder_of_profile
from unbroken.cli.say import say
from unbroken.config import yaml_file
from unbroken.config.site import Request, read_site
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError
from unbroken.plan.resources import sbatch_words
from unbroken.report.run_folders import run_folder
from unbroken.runs.attempts import all_attempts
from unbroken.runs.history import Attempt
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.slurm.nodes import default_partition
from unbroken.slurm.partitions import ask_partitions
from unbroken.slurm.past_waits import DAYS, PastWait, past_waits
from unbroken.slurm.sbatch import start_if_submitted
from unbroken.system.clock import duration

RECENT = 5


@dataclass(frozen=True)
class Choice:
    """A partition and a length in minutes, what is known of the wait, and what follows; `refusal` is Slurm's."""

    partition: str
    minutes: int
    waits: Waits
    estimate: Estimate | None
    refusal: str = ""


def advise(run: Run, directory: Path, profile: str) -> None:
    """Prints what is known, and what to type."""
    work, request = work_of(run, directory), request_of(run, directory, profile)
    if work is not None and work.left_seconds <= 0:
        say(f"{run.name}: its goal is reached")
        return
    asked = list(choices(run, request, work))
    allowed = [choice for choice in asked if not choice.refusal]
    if not allowed:
        why = asked[0].refusal if asked else "no partition is up"
        raise ConfigError([f"{run.name}: Slurm takes such a job nowhere: {why}"])
    _print_table(run.name, allowed, work)
    for line in lines(run, allowed, work, request.partition or default_partition()):
        say(f"{run.name}: {line}")


def request_of(run: Run, directory: Path, profile: str) -> Request:
    """What the run asks of this cluster, by the site of a profile."""
    path = Path(folder_of_profile(profile, directory)) / SITE
    try:
        written = yaml_file.read(path)
    except FileNotFoundError:
        written = {}
    site = read_site({"site": {}, **written}, known_schemas()) if isinstance(written, Mapping) else None
    if site is None:
        raise ConfigError([f"{path}: found no mapping `site:`; to compare, type: unbroken profile slurm --to other"])
    return site.request(run)


def work_of(run: Run, directory: Path) -> Work | None:
    """What is left of a run at the pace of its last attempts, and what each cut cost; None while nothing is known."""
    places = run_folder(run.name, directory)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    attempts = all_attempts(places)
    past = past_of(attempts, run.segment_minutes * 60)
    if newest is None or not past.paces:
        return None
    progress = newest.passport.progress
    goal = run.goal if run.goal is not None else progress.goal
    if goal is None:
        return None
    rate = math.exp(median([pace.log_rate for pace in past.paces[-RECENT:]]))
    spare = median(past.spares[-RECENT:]) if past.spares else 0.0
    between = _between(attempts, [gap.seconds for gap in past.gaps])
    return Work(max(goal - progress.done, 0.0) / rate, past.start_seconds + max(spare, 0.0), between)


def _between(attempts: Sequence[Attempt], gaps: Sequence[float]) -> float | None:
    """Return the median wait between two tasks of the run's array, 0 before one was seen; None of single jobs."""
    on_slurm = [attempt for attempt in attempts if attempt.slurm_job]
    if on_slurm and not is_array_task(on_slurm[-1]):
        return None
    return max(median(gaps[-RECENT:]), 0.0) if on_slurm and gaps else 0.0


def choices(run: Run, request: Request, work: Work | None) -> Iterator[Choice]:
    """All that Slurm is asked about, and what it says."""
    seen = past_waits()
    words = sbatch_words(run, request)
    for partition in ask_partitions().values():
        if not partition.is_there:
            continue
        for minutes in lengths(partition.limit_minutes, run.segment_minutes, work):
            yield _choice(partition.name, minutes, words, seen, work)


def _choice(partition: str, minutes: int, words: Sequence[str], seen: Iterable[PastWait], work: Work | None) -> Choice:
    said = start_if_submitted([*words, f"--partition={partition}", f"--time={minutes}"])
    own = [(each.limit_minutes, each.seconds) for each in seen if each.partition == partition]
    if isinstance(said, str):
        return Choice(partition, minutes, Waits(0.0), None, said)
    waits = Waits(max(said - time.time(), 0.0), tuple(similar(own, minutes)))
    return Choice(partition, minutes, waits, estimate(work, minutes, waits) if work else None)


def lines(run: Run, allowed: Sequence[Choice], work: Work | None, partition: str) -> Iterator[str]:
    """What follows, and how sure it is."""
    if work is None:
        yield "too little is known of its pace; after its first segment type: unbroken advise"
        return
    known = [choice for choice in allowed if choice.estimate is not None]
    best = min(known, key=_seconds, default=None)
    now = next((each for each in known if each.partition == partition and each.minutes == _now(run)), None)
    if best is None or best.estimate is None:
        yield "no length that is allowed here is longer than what a cut costs"
        return
    soonest = _seconds(best)
    before = _seconds(now) if now else math.inf
    chosen = best
    if now is not None and soonest > before * (1 - WORTH):
        chosen = now
        yield f"it is well as it is: done {_at(before)}; nothing here is sooner by a tenth"
    else:
        instead = f" instead of {_at(before)}" if now else ""
        yield f"type {_typed(run, best)}: done {_at(soonest)}{instead}"
    if chosen.estimate is not None and chosen.estimate.segments == 1:
        yield "one job of that length does all the rest: segments bring nothing here but safety"
    if not chosen.waits.is_known:
        yield (
            f"its wait is Slurm's guess of now, which knows of no later job: fewer than {LEAST_WAITS} jobs of yours "
            f"like it started in {DAYS} days"
        )


def _typed(run: Run, best: Choice) -> str:
    words = [f"`segment_minutes: {best.minutes}`", f"`partition: {best.partition}`"]
    if best.estimate is not None and best.estimate.segments > run.segments:
        words.append(f"`segments: {best.estimate.segments}` or more")
    return ", ".join(words)


def _seconds(choice: Choice) -> float:
    return math.inf if choice.estimate is None else choice.estimate.seconds


def _now(run: Run) -> int:
    return math.ceil(run.segment_minutes)


def _at(seconds: float) -> str:
    return f"about {moment(time.time() + seconds, seconds)}"


def _waits_of(work: Work) -> str:
    """Return how the table counts the waits of later segments."""
    if work.between_seconds is None:
        return "each segment is a single job, and waits as the first"
    return f"the queue's wait counts once for the array, then {duration(work.between_seconds)} between two tasks"


def _print_table(name: str, allowed: Sequence[Choice], work: Work | None) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 1000
    columns = ("partition", "segment", "wait now", "your waits", "segments", "goal in")
    table = Table(*columns, box=None, pad_edge=False)
    for choice in allowed:
        waits, found = choice.waits, choice.estimate
        seen = f"{duration(waits.likely)} ({duration(waits.late)}, {len(waits.seen)})" if waits.is_known else "-"
        cells = [choice.partition, duration(choice.minutes * 60), duration(waits.guessed), seen]
        if found is not None:
            cells += [str(found.segments), duration(found.seconds)]
        table.add_row(*cells)
    if work is not None:
        cost = f"a cut costs {duration(work.cut_seconds)}"
        say(f"{name}: {duration(work.left_seconds)} of work are left; {cost}; {_waits_of(work)}")
    console.print(table)
