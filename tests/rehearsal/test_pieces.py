"""A piece that has nothing left to do; saves that are seen growing, and those that are not."""

import pytest
from support.toyrun import KEYS, toy, toy_run

from unbroken.engines.base import SaveFiles
from unbroken.engines.found import engine_of
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.play import Course, DoneBefore
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.stage import Stage
from unbroken.runs.layout import RunFolder
from unbroken.system.file_events import FileEvent, Happened


@pytest.fixture
def course(tmp_path):
    """Of a run whose last job was killed when it had published the end, and not yet said so."""
    run = toy_run(goal=3)
    engine = engine_of(run, tmp_path)
    toy(tmp_path, goal=3)
    RunFolder(run.name, tmp_path).history.unlink()
    course = Course(run, KEYS, engine, tmp_path, 10.0, print)
    course.root = tmp_path / "results" / ".rehearsal" / run.name
    course.stage = Stage(run, KEYS, engine, tmp_path, course.root / "stage", print)
    course.stage.root.mkdir(parents=True)
    course._saves, course._seconds = SaveWatch(engine.save_files(run)), 1.0
    return course


@pytest.mark.parametrize("way", [Way.KILL, Way.KILL_SAVE])
def test_a_run_that_a_killed_piece_has_finished_was_done_before(tmp_path, course, way):
    with pytest.raises(DoneBefore, match=f"{way.value}: it was done before"):
        course._ended(way, RunFolder(course.run.name, tmp_path).root)


def test_a_run_that_a_killed_piece_has_finished_ends_well(tmp_path, course):
    carried = RunFolder(course.run.name, tmp_path).root
    ended, piece = course._played(Way.END, carried, 600.0)

    assert (ended.is_met, ended.outcome.value, piece.attempts()) == (True, "finished", [])


def test_a_save_that_came_in_one_step_was_not_seen_growing():
    saves = SaveWatch(SaveFiles(("save/**",), ("save/*.ready",)))
    begun = FileEvent(Happened.WRITTEN, "save/draft-1/state", 0)
    ready = [
        FileEvent(Happened.MOVED_FROM | Happened.IS_FOLDER, "save/draft-1", 7),
        FileEvent(Happened.MOVED_TO | Happened.IS_FOLDER, "save/1.ready", 7),
    ]

    seen = saves.note([begun, *ready])
    unseen = saves.note(ready)

    assert (seen.writing, seen.unseen) == ("save/draft-1/state", "")
    assert (unseen.writing, unseen.unseen) == ("", "save/draft-1")
    assert saves.is_complete(unseen.unseen)
