"""A folder of many runs as a week on a cluster leaves it: histories, checkpoints, metrics; made by hand, in seconds."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from support.histories import PLAIN
from support.making import publish

from unbroken.slurm.job import EndState
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.progress import Progress
from unbroken.store.times import Times
from unbroken.system.clock import utc_text

GOAL = 2000.0
HOUR = 3600.0
WEEK = 168 * HOUR


def make_runs(
    base: Path, count: int, segments: int = 20, seed: int = 1, metrics: int = 500, checkpoints: int = 3
) -> list[str]:
    """`count` runs of at most so many segments in `base`, with a configuration; their names."""
    with patch("os.fsync"):  # nothing depends on these files
        return _made(base, count, segments, random.Random(seed), metrics, checkpoints)


def _made(base: Path, count: int, segments: int, rng: random.Random, metrics: int, checkpoints: int) -> list[str]:
    names = [f"run{number:04d}" for number in range(1, count + 1)]
    for name in names:
        reached = 1.0 if rng.random() < 0.6 else rng.uniform(0, 0.95)
        _make(RunFolder(name, base), rng, segments, reached, metrics, checkpoints)
    (base / "config").mkdir(exist_ok=True)
    settings = {"engine": "toy", "segments": segments, "segment_minutes": 240, "settings": {"goal": int(GOAL)}}
    (base / "config" / "config.yaml").write_text(json.dumps({"runs": dict.fromkeys(names, settings)}))
    return names


def _make(places: RunFolder, rng: random.Random, segments: int, reached: float, metrics: int, kept: int) -> None:
    store = Store(places.checkpoints)
    attempts = list(_attempts(rng, segments, reached))
    places.live.mkdir(parents=True)
    places.lease.mkdir()
    for attempt in attempts:
        History(places.history).append(attempt)
        log = places.log(attempt.segment)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("what the program printed\n")
    for number, attempt in enumerate(attempts[-kept:], 1):
        told = Progress(attempt.progress_to, GOAL, "steps", {"ns_per_day": 90 + rng.random()})
        is_over = attempt.kind is EndKind.FINISHED
        publish(
            store,
            number,
            progress=told,
            segment=attempt.segment,
            token=attempt.token,
            is_finished=is_over,
            created_utc=attempt.ended_utc,
        )
    if not metrics:
        return
    rows = ({"epoch": step // 100, "step": step, "loss": 3 / (1 + step) + rng.random() / 10} for step in range(metrics))
    (places.live / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _attempts(rng: random.Random, segments: int, reached: float) -> list[Attempt]:
    at, done, segment, made = time.time() - WEEK + rng.uniform(0, 24 * HOUR), 0.0, 1, []
    while done < GOAL * reached and len(made) < 3 * segments:
        started = at + rng.expovariate(1 / HOUR)
        step = started + 40
        is_killed = rng.random() < 0.1
        advance = min(GOAL / segments * rng.uniform(0.9, 1.2), GOAL - done) * (0.5 if is_killed else 1)
        ended = step + 4 * HOUR * (0.5 if is_killed else 1)
        over = EndKind.FINISHED if done + advance >= GOAL else EndKind.PAUSED
        times = Times(at, at, started, started + 5, step, ended - 20, None, ended - 10, ended - 600, ended, None, 30.0)
        made.append(
            replace(
                PLAIN,
                token=len(made) + 1,
                segment=segment,
                kind=EndKind.DIED if is_killed else over,
                job_state=EndState.NODE_FAIL if is_killed else None,
                message="the job was killed: its node failed (NODE_FAIL)" if is_killed else "",
                started_utc=utc_text(started),
                ended_utc=utc_text(ended),
                from_checkpoint=str(len(made)),
                to_checkpoint=str(len(made) + 1),
                progress_from=done,
                progress_to=done + advance,
                work_seconds=ended - step,
                slurm_job=str(1000 + len(made)),
                slurm_node=f"node{rng.randrange(1, 40)}",
                times=times,
            )
        )
        segment += not is_killed
        at, done = ended + 5, done + advance
    return made
