"""The end of a stage of a program that begins the next one at once."""

import os
from pathlib import Path

import pytest

from unbroken.engines.files.settings import Program, SavedBy
from unbroken.engines.files.stages import StageMarks
from unbroken.engines.files.states import copied, matching
from unbroken.system.file_events import FileEvent, Happened

PROGRAM = Program(start=("assemble",), files=("out/**", "!out/log"), saved_by=SavedBy.STAGE, saved_marker="out/stage_*")


class Assembler:
    """A program whose clock of files is at hand, so that no test waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000
        (folder / "out").mkdir()
        self.marks = self.new_marks()
        self.marks.begin()

    def new_marks(self) -> StageMarks:
        return StageMarks(PROGRAM, self.folder, self.folder, lambda: matching(self.folder, PROGRAM.files))

    def writes(self, name: str, text: str = "", *, tell: bool = True) -> None:
        self.now += 1
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, (self.now, self.now))
        if tell:
            self.marks.take(FileEvent(Happened.CLOSED, name, 0))

    def removes(self, name: str) -> None:
        (self.folder / name).unlink()
        self.marks.take(FileEvent(Happened.DELETED, name, 0))

    @property
    def state(self) -> tuple[str, ...]:
        state = self.marks.state()
        return state.files if state else ()


@pytest.fixture
def assembler(tmp_path: Path) -> Assembler:
    return Assembler(tmp_path)


def test_the_state_is_what_was_there_when_the_newest_marker_appeared(assembler: Assembler) -> None:
    assembler.writes("out/reads")
    assert assembler.state == ()
    assembler.writes("out/stage_1")
    assembler.writes("out/graph")
    assembler.writes("out/log")

    assert assembler.state == ("out/reads", "out/stage_1")

    assembler.writes("out/stage_2")
    assert assembler.state == ("out/graph", "out/reads", "out/stage_1", "out/stage_2")


def test_a_file_that_the_next_stage_has_begun_before_anybody_looked_is_no_part_of_it(assembler: Assembler) -> None:
    assembler.writes("out/reads")
    assembler.writes("out/stage_1", tell=False)
    assembler.writes("out/graph", tell=False)
    assembler.marks.take(FileEvent(Happened.CLOSED, "out/stage_1", 0))

    assert assembler.state == ("out/reads", "out/stage_1")


def test_a_file_of_the_next_stage_may_have_the_very_time_of_the_marker(assembler: Assembler) -> None:
    assembler.writes("out/reads")
    assembler.writes("out/stage_1", tell=False)
    assembler.writes("out/graph", tell=False)
    os.utime(assembler.folder / "out/graph", (assembler.now - 1, assembler.now - 1))
    assembler.marks.take(FileEvent(Happened.CLOSED, "out/stage_1", 0))

    assert assembler.state == ("out/reads", "out/stage_1")


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_stage_whose_files_the_next_one_has_changed_already_is_no_state(
    assembler: Assembler, *, is_removed: bool
) -> None:
    assembler.writes("out/reads", "in pieces")
    assembler.writes("out/stage_1", tell=False)
    if is_removed:
        (assembler.folder / "out/reads").unlink()
    else:
        assembler.writes("out/reads", "packed", tell=False)
    assembler.marks.take(FileEvent(Happened.CLOSED, "out/stage_1", 0))

    assert assembler.state == ()

    assembler.writes("out/stage_2")
    assert "out/stage_2" in assembler.state


def test_what_a_stage_removed_by_itself_is_not_missed(assembler: Assembler) -> None:
    assembler.writes("out/scratch")
    assembler.removes("out/scratch")
    assembler.writes("out/stage_1")

    assert assembler.state == ("out/stage_1",)


def test_a_folder_that_a_stage_renames_is_not_missed(assembler: Assembler) -> None:
    (assembler.folder / "out/draft").mkdir()
    assembler.writes("out/draft/reads")
    (assembler.folder / "out/draft").rename(assembler.folder / "out/store")
    assembler.marks.take(FileEvent(Happened.MOVED_FROM | Happened.IS_FOLDER, "out/draft", 1))
    assembler.marks.take(FileEvent(Happened.MOVED_TO, "out/store/reads", 0))
    assembler.writes("out/stage_1")

    assert assembler.state == ("out/stage_1", "out/store/reads")


def test_a_stage_that_is_changed_later_is_not_copied(assembler: Assembler, tmp_path: Path) -> None:
    assembler.writes("out/reads", "in pieces")
    assembler.writes("out/stage_1")
    state = assembler.marks.state()
    assert state is not None and copied(state, tmp_path / "before")
    assembler.writes("out/reads", "packed")

    assert not copied(state, tmp_path / "after")


def test_a_marker_that_a_resumed_program_only_touches_ends_no_stage(assembler: Assembler) -> None:
    assembler.writes("out/stage_1")
    again = assembler.marks = assembler.new_marks()
    again.begin()
    again.take(FileEvent(Happened.CLOSED, "out/stage_1", 0))

    assert assembler.state == ()


def test_a_successor_knows_the_last_stage_of_an_attempt_that_was_killed(assembler: Assembler) -> None:
    assembler.writes("out/reads")
    assembler.writes("out/stage_1")
    assembler.writes("out/torn")
    assembler.marks = assembler.new_marks()
    assembler.marks.know_before()

    assert assembler.state == ("out/reads", "out/stage_1")
