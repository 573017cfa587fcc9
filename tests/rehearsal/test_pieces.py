"""A piece that has nothing left to do; saves that are seen growing, and those that are not."""

import pytest
from support.toyrun import KEYS, toy, toy_run

from unbroken.engines.base import SaveFiles
from unbroken.engines.found import engine_of
from unbroken.rehearsal.outputs import OutputWatch, lost_outputs
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

    made = [attempt.kind.value for attempt in piece.attempts()]
    assert (ended.is_met, ended.kind.value, made) == (True, "finished", ["finished"])


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


def at(what, name, cookie=0):
    return FileEvent(what, f"results/demo/{name}", cookie)


PUBLISHED = "checkpoints/000001_10-steps_20261128T183801Z_t1"


def test_a_save_that_lies_where_no_engine_says_is_known_by_its_checkpoint_and_the_names_in_it():
    saves = SaveWatch(SaveFiles(("results/demo/work/*/save/**",), ("results/demo/work/*/save/*.ready",)))
    draft = at(Happened.WRITTEN, "work/000001/walk/state.tmp")
    renamed = [
        at(Happened.MOVED_FROM, "work/000001/walk/state.tmp", 5),
        at(Happened.MOVED_TO, "work/000001/walk/state.json", 5),
    ]
    published = [
        at(Happened.MOVED_FROM | Happened.IS_FOLDER, "work/000001/copy-1", 6),
        at(Happened.MOVED_TO | Happened.IS_FOLDER, PUBLISHED, 6),
    ]
    first = saves.note([draft, *renamed, *published])
    saves.learn(["state.json", "parts/table.csv"])
    saves.note(renamed)

    assert (first.writing, first.complete) == ("", True)
    assert saves.note([draft]).writing == draft.name
    assert saves.note([at(Happened.WRITTEN, "work/000001/walk/log.txt")]).writing == ""
    assert saves.note([at(Happened.WRITTEN, "work/000001/walk/table.csv")]).writing == ""


def test_a_file_of_a_checkpoint_that_stays_open_is_no_save_where_there_is_another():
    saves = SaveWatch(SaveFiles((), ()))
    saves.learn(["traj.dat", "state.12.bin"])
    grows = at(Happened.WRITTEN, "work/000001/walk/traj.dat")
    saves.note([grows, at(Happened.MOVED_TO | Happened.IS_FOLDER, PUBLISHED)])

    assert saves.note([grows]).writing == ""
    assert saves.note([at(Happened.WRITTEN, "work/000002/walk/state.7.bin")]).writing.endswith("state.7.bin")


def test_a_checkpoint_of_a_save_that_was_seen_under_the_engines_names_is_not_counted_again():
    saves = SaveWatch(SaveFiles(("results/demo/work/*/save/**",), ("results/demo/work/*/save/*.ready",)))
    saves.note([at(Happened.MOVED_TO | Happened.IS_FOLDER, "work/000001/save/1.ready")])

    seen = saves.note([at(Happened.MOVED_TO | Happened.IS_FOLDER, PUBLISHED)])

    assert not seen.complete


def test_files_that_a_program_left_are_those_that_stood_there_at_the_last_checkpoint(tmp_path):
    outputs = OutputWatch(tmp_path)
    outputs.note(
        [
            at(Happened.WRITTEN, "work/000001/walk/kept.txt"),
            at(Happened.WRITTEN, "work/000001/walk/gone.txt"),
            at(Happened.DELETED, "work/000001/walk/gone.txt"),
            at(Happened.WRITTEN, "work/000001/walk/draft/a"),
            at(Happened.MOVED_FROM | Happened.IS_FOLDER, "work/000001/walk/draft", 3),
            at(Happened.MOVED_TO | Happened.IS_FOLDER, "work/000001/walk/frames", 3),
            at(Happened.MOVED_TO | Happened.IS_FOLDER, PUBLISHED, 4),
            at(Happened.DELETED, "work/000001/walk/kept.txt"),
        ]
    )

    assert outputs.left == {"walk/kept.txt", "walk/frames/a"}


def test_output_is_lost_if_it_is_in_no_result_nor_state_nor_dropped_nor_ours():
    saves = SaveWatch(SaveFiles(("results/demo/work/*/walk/*.rst",), ()), run="demo")
    left = [
        "walk/a.txt",
        "walk/in.csv",
        "walk/8.rst",
        "walk/x.tmp",
        "progress.json",
        "save/1.ready/state",
        "walk/core.7",
    ]

    assert lost_outputs(left, ["final/in.csv"], saves, ["*.tmp"]) == ["walk/a.txt"]
