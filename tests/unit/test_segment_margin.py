"""How long before its end a segment tells its program to stop: learned from attempts, and from saves on the way."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.making import ATTEMPT
from support.toyrun import checkpoints, history, program, run_program, toy, toy_job

from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind, History

pytestmark = pytest.mark.process


def test_the_margin_is_learned_from_the_runs_history(tmp_path: Path) -> None:
    places = toy_job(tmp_path).places
    places.root.mkdir(parents=True)
    History(places.history).append(replace(ATTEMPT, to_checkpoint=None, stop_seconds=10.0, save_seconds=4.0))

    toy(tmp_path)

    assert "time: 60 s, told to stop 15.2 s before the end" in places.log(1).read_text()


def test_a_save_in_the_middle_moves_the_stop_and_the_deadline_of_the_same_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Store.publish

    def slow_publish(*args: object) -> object:
        time.sleep(0.5)
        return publish(*args)

    monkeypatch.setattr(Store, "publish", slow_publish)

    record = run_program(tmp_path, program("saves_once_before", 100), segment_minutes=0.2)

    job = toy_job(tmp_path)
    told, moved = (line for line in job.places.log(1).read_text().splitlines() if "told to stop" in line)
    assert "told to stop 1.2 s before the end" in told
    assert "by what a save takes: told to stop 6.0 s before the end" in moved  # half of the segment
    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 2)
    assert float((checkpoints(job)[-1].folder / "state").read_text().split()[1]) >= 0.6


def test_an_attempt_that_was_stopped_says_how_long_it_took(tmp_path: Path) -> None:
    run_program(tmp_path, program("obedient"), segment_minutes=0.005, first_margin_seconds=0.1)

    (attempt,) = history(toy_job(tmp_path))
    assert attempt.stop_seconds is not None and attempt.saves == 1
