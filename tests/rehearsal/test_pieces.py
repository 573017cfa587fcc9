"""A piece that has nothing left to do; saves that are seen growing; files that are in no result."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.toyrun import KEYS, toy, toy_run

from unbroken.engines.found import engine_of
from unbroken.rehearsal.piece import Way
from unbroken.rehearsal.rehearse import DoneBefore, Rehearser
from unbroken.rehearsal.results import Results
from unbroken.rehearsal.saves import SaveWatch
from unbroken.rehearsal.stage import Stage
from unbroken.system.file_events import FileEvent, Happened


@pytest.fixture
def rehearser(tmp_path):
    """Of a run whose last job was killed when it had published the end, and not yet said so."""
    run = toy_run(goal=3)
    made = Rehearser(run, KEYS, engine_of(run, tmp_path), tmp_path, 10.0)
    made._seconds, made._reached, made._says_progress = 1.0, 3.0, True
    made._stage.begin("pieces")
    toy(made._stage.folder, goal=3)
    made._stage.places.history.unlink()
    return made


@pytest.mark.process
@pytest.mark.parametrize("way", [Way.KILL, Way.KILL_SAVE])
def test_a_run_that_a_killed_piece_has_finished_was_done_before(rehearser, way):
    piece = rehearser._worked(way, 600.0, 0.5)

    with pytest.raises(DoneBefore, match=f"{way.value}: it was done before"):
        rehearser._confirm_met(piece, "after a polite stop")


@pytest.mark.process
def test_a_run_that_a_killed_piece_has_finished_ends_well(rehearser):
    piece = rehearser._worked(Way.END, 600.0)

    made = [attempt.kind.value for attempt in piece.attempts()]
    assert (piece.is_met, piece.kind.value, made) == (True, "finished", ["finished"])


def at(what, name, cookie=0):
    return FileEvent(what, f"results/demo/{name}", cookie)


def moved(before, after, cookie, what=0):
    return [at(Happened.MOVED_FROM | what, before, cookie), at(Happened.MOVED_TO | what, after, cookie)]


def published(sequence):
    name = f"checkpoints/{sequence:06d}_10-steps_20261128T183801Z_t1"
    return moved(f"work/000001/copy-{sequence}", name, 60 + sequence, Happened.IS_FOLDER)


@pytest.fixture
def saves():
    """Knows which files a checkpoint holds."""

    def saves(*names):
        made = SaveWatch()
        made.learn([SimpleNamespace(passport=SimpleNamespace(files=names))])
        return made

    return saves


def test_a_save_is_known_by_the_names_in_a_checkpoint_and_by_what_is_renamed_to_them(saves):
    watch = saves("state.json", "parts/table.csv")
    draft = at(Happened.WRITTEN, "work/000001/walk/state.tmp")
    seen = []
    for events in (
        [draft, *moved("work/000001/walk/state.tmp", "work/000001/walk/state.json", 5)],
        [draft],
        [at(Happened.WRITTEN, "work/000001/walk/log.txt"), at(Happened.WRITTEN, "work/000001/walk/table.csv")],
        [at(Happened.WRITTEN, "work/000002/walk/state.json")],
        [at(Happened.WRITTEN, "checkpoints/000001_1/state.json")],
    ):
        watch.note(events)
        seen.append(watch.writing.rpartition("/")[2])

    watch.note(moved("work/000002/walk/state.json", "work/000002/walk/state_prev.json", 9))

    assert seen == ["", "state.tmp", "", "state.json", ""]
    assert watch.is_state("results/demo/work/000001/walk/state_prev.json")


def test_a_save_is_over_once_it_is_renamed_or_closed_under_its_last_name(saves):
    watch = saves("state.json")
    watch.note(moved("work/000001/state.tmp", "work/000001/state.json", 1))
    over = []
    for events in (
        [at(Happened.WRITTEN, "work/000001/state.tmp")],
        [at(Happened.CLOSED, "work/000001/state.tmp")],  # it is to be renamed
        moved("work/000001/state.tmp", "work/000001/state.json", 2),
    ):
        watch.note(events)
        over.append(watch.is_over("results/demo/work/000001/state.tmp"))
    watch.note([at(Happened.WRITTEN, "work/000001/state.json"), at(Happened.CLOSED, "work/000001/state.json")])

    assert over == [False, False, True]
    assert watch.is_over("results/demo/work/000001/state.json")


def test_a_save_that_came_in_one_step_counts_when_its_checkpoint_is_made(saves):
    watch = saves("state.json")
    watch.note([at(Happened.WRITTEN, "work/000001/save/1/state.json"), *published(1)])
    seen = watch.writing
    watch.note(published(2))

    assert (seen, watch.writing) == (
        "results/demo/work/000001/save/1/state.json",
        "results/demo/work/000001/copy-2",
    )
    assert watch.is_over(watch.writing)


def test_a_file_of_a_checkpoint_that_stays_open_is_no_save_where_there_is_another(saves):
    watch = saves("traj.dat", "state.12.bin")
    grows = at(Happened.WRITTEN, "work/000001/walk/traj.dat")
    for sequence in (1, 2):
        watch.note([grows, *published(sequence)])

    watch.note([grows])
    trajectory = watch.writing
    watch.note([at(Happened.WRITTEN, "work/000002/walk/state.7.bin")])

    assert trajectory == ""
    assert watch.writing.endswith("state.7.bin")


def test_output_is_lost_if_it_is_in_no_result_nor_state_nor_dropped_nor_ours(tmp_path, saves):
    run = replace(toy_run(), settings={"goal": 3, "discard": ["*.tmp"]})
    stage = Stage(run, KEYS, engine_of(run, tmp_path), tmp_path, tmp_path / "rehearsal")
    stage.left.parent.mkdir(parents=True)
    names = ["walk/a.txt", "walk/in.csv", "walk/8.rst", "walk/x.tmp", "progress.json", "save/1.ready/x", "walk/core.7"]
    stage.left.write_text(json.dumps(names))
    stage.places.final.mkdir(parents=True)
    (stage.places.final / "in.csv").touch()

    assert Results(tmp_path, run, stage.engine).lost(stage, saves("4.rst")) == ["walk/a.txt"]
