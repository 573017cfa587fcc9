"""The project's promise is itself a test: run whole, run in pieces with kills at random moments, compare."""

import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support.toyrun import (
    SegmentProcess,
    checkpoints,
    final_files,
    hidden,
    history,
    start_segment,
    toy,
    toy_job,
    until,
    whole_toy,
)

from unbroken.engines.testing.kills import programs_of

pytestmark = pytest.mark.process

# Too far to be reached between twelve kills.
GOAL = 900
SETTINGS = {"goal": GOAL, "step_seconds": 0.005, "save_steps": 7, "attempts_without_progress": 99}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return whole_toy(tmp_path_factory.mktemp("whole"), goal=GOAL)


def test_in_one_piece(tmp_path: Path, whole: dict[str, bytes]) -> None:
    toy(tmp_path, goal=GOAL, save_steps=0)

    assert final_files(toy_job(tmp_path)) == whole


def test_in_many_segments(tmp_path: Path) -> None:
    settings = {"goal": 100, "step_seconds": 0.01, "save_steps": 0, "segment_minutes": 0.01}
    segment, outcome = 0, ""
    while outcome != "finished":
        segment += 1
        outcome = toy(tmp_path, segment, **settings).kind.value
        assert segment <= 100  # each brings it forward, by one step at least

    assert segment >= 3
    assert final_files(toy_job(tmp_path)) == whole_toy(tmp_path / "whole", goal=100)


def hurt(segment: SegmentProcess, dice: random.Random, killed: Counter[str]) -> None:
    """After a random time, kills the segment or its program in turns, unless it has ended by then."""
    until(lambda: programs_of(segment.pid) or segment.process.poll() is not None)
    time.sleep(dice.uniform(0, 0.35))
    children = programs_of(segment.pid)
    is_programs_turn = bool(children) and killed["program"] <= killed["segment"]
    victim = ("program", children[0]) if is_programs_turn else ("segment", segment.pid)
    if segment.process.poll() is None:
        try:
            os.kill(victim[1], signal.SIGKILL)
            killed[victim[0]] += 1
        except ProcessLookupError:
            pass


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_in_pieces_with_kills_at_random_moments(tmp_path: Path, whole: dict[str, bytes], seed: int) -> None:
    dice, killed = random.Random(seed), Counter[str]()
    job = toy_job(tmp_path)
    attempt, outcome = 0, ""
    while outcome != "finished":
        attempt += 1
        segment = start_segment(tmp_path, 1, attempt, **SETTINGS)
        if killed.total() < 12:
            hurt(segment, dice, killed)
        outcome = str(segment.end().record.get("kind", ""))
        assert attempt < 40

    assert killed["segment"] >= 3 and killed["program"] >= 3 and killed.total() >= 10
    assert final_files(job) == whole
    assert hidden(job.places.root) == []
    assert not (job.places.checkpoints / ".quarantine").exists()
    attempts = history(job)
    assert [one.token for one in attempts] == sorted({one.token for one in attempts})
    assert all(one.ended_utc <= two.ended_utc for one, two in itertools.pairwise(attempts))
    assert len(checkpoints(job)) == 2
