"""A piece that has nothing left to do; saves that are seen growing; files that are in no result."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.toyrun import KEYS, toy, toy_run

from unbroken.engines.found import engine_of
from unbroken.rehearsal.piece import Piece, Way
from unbroken.rehearsal.rehearse import DoneBefore, Rehearser
from unbroken.rehearsal.results import Results
from unbroken.rehearsal.stage import SaveWatch, Stage, identity
from unbroken.rehearsal.whole import Whole
from unbroken.system.file_events import FileEvent, Happened


@pytest.fixture
def rehearser(tmp_path):
    """Of a run whose last job was killed when it had published the end, and not yet said so."""
    run = toy_run(goal=3)
    made = Rehearser(run, KEYS, engine_of(run, tmp_path), tmp_path, 10.0)
    made._known = Whole(1.0, 3.0, "steps", says_progress=True, start_seconds=0.0, save_seconds=0.0, evidence="")
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
    seen = [
        watch.written(events).rpartition("/")[2]
        for events in (
            [draft, *moved("work/000001/walk/state.tmp", "work/000001/walk/state.json", 5)],
            [draft],
            [at(Happened.WRITTEN, "work/000001/walk/log.txt"), at(Happened.WRITTEN, "work/000001/walk/table.csv")],
            [at(Happened.WRITTEN, "work/000002/walk/state.json")],
            [at(Happened.WRITTEN, "checkpoints/000001_1/state.json")],
            [at(Happened.WRITTEN, "work/000003/live/state.json")],  # put back by an engine
        )
    ]

    watch.written(moved("work/000002/walk/state.json", "work/000002/walk/state_prev.json", 9))

    assert seen == ["", "state.tmp", "", "state.json", "", ""]
    assert watch.is_state("results/demo/work/000001/walk/state_prev.json")


def test_a_save_that_came_in_one_step_counts_when_its_checkpoint_is_made(saves):
    watch = saves("state.json")
    checkpoint = "checkpoints/000002_10-steps_20261128T183801Z_t1"
    published = moved("work/000001/copy-2", checkpoint, 62, Happened.IS_FOLDER)

    grown = watch.written([at(Happened.WRITTEN, "work/000001/save/1/state.json"), *published])
    unseen = watch.written(published)

    assert (grown, unseen) == ("results/demo/work/000001/save/1/state.json", "results/demo/work/000001/copy-2")


def test_a_move_tells_a_name_also_right_after_a_write(saves):
    watch = saves("md.cpt")
    move = moved("work/000001/mdrun/md.cpt", "work/000001/mdrun/md_prev.cpt", 3)

    watch.written([at(Happened.WRITTEN, "work/000001/mdrun/md.cpt"), *move])

    assert watch.is_state("results/demo/work/000002/mdrun/md_prev.cpt")


def test_what_was_put_back_before_the_start_is_no_save_if_it_is_seen_after_it(saves, monkeypatch):
    started, seen = iter([False, True, True]), [[], ["8.rst"], ["9.rst"]]
    events = iter([[at(Happened.WRITTEN, f"work/000002/walk/{name}") for name in names] for names in seen])
    piece = Piece(SimpleNamespace(saves=saves("4.rst")), Way.KILL_SAVE, toy_run(), enough_seconds=60.0)
    monkeypatch.setattr(piece, "_has_started", lambda: next(started))
    monkeypatch.setattr(piece, "_children", list)
    monkeypatch.setattr(piece, "_process", SimpleNamespace(poll=lambda: None, kill=lambda: None), raising=False)

    piece._watch(SimpleNamespace(next=lambda _: next(events)), time.monotonic())

    assert (piece.is_met, piece.saved) == (True, "9.rst")


def test_a_name_that_a_save_got_before_any_checkpoint_was_known_is_known(saves):
    watch = saves()
    first, second = "work/000001/walk/a.prev", "work/000001/walk/a.prev2"
    watch.written([*moved("work/000001/walk/a", first, 3), *moved(first, second, 4)])

    watch.learn([SimpleNamespace(passport=SimpleNamespace(files=["a"]))])

    assert [watch.is_state(f"results/demo/{path}") for path in (first, second)] == [True, True]


def test_output_is_lost_if_it_is_in_no_result_nor_state_nor_dropped_nor_ours(tmp_path, saves):
    run = replace(toy_run(), settings={"goal": 3, "discard": ["*.tmp"]})
    stage = Stage(run, KEYS, engine_of(run, tmp_path), tmp_path, tmp_path / "rehearsal", saves=saves("4.rst"))
    stage.left.parent.mkdir(parents=True)
    names = ["walk/a.txt", "walk/in.csv", "walk/8.rst", "walk/x.tmp", "progress.json", "save/1.ready/x", "walk/core.7"]
    stage.places.final.mkdir(parents=True)
    (stage.places.final / "in.csv").touch()
    stage.places.checkpoints.mkdir()
    (stage.places.checkpoints / "md.cpt").touch()
    moved_there = {"walk/md_prev.cpt": identity(stage.places.checkpoints / "md.cpt")}
    stage.left.write_text(json.dumps({**dict.fromkeys(names, (0, 0)), **moved_there}))

    assert Results(stage).lost() == ["walk/a.txt"]
