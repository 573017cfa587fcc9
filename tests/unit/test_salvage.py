"""What a killed attempt had complete is published in its name by the job that takes over."""

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from support.disks import mount_small, unmount
from support.toyrun import KEYS, ProgramEngine, checkpoints, history, program, start_segment, toy_job, toy_run, until
from support.venvs import install, make_venv

from unbroken.engines.base import Task, When
from unbroken.engines.found import engine_of
from unbroken.errors import IdentityError, StorageError
from unbroken.job.lifecycle import run_segment
from unbroken.program import contract
from unbroken.program.contract import AttemptFolder, HandedOver, ready_states
from unbroken.store.history import EndKind
from unbroken.store.progress import Handover, Progress
from unbroken.store.run import accept_identity

pytestmark = pytest.mark.process


class Saving(ProgramEngine):
    """Saves a step from the folder of a killed attempt."""

    def __init__(self, done: float) -> None:
        super().__init__(program("one_step"))
        self.done = done
        self.asked: list[Task] = []

    def states(self, task: Task, when: When) -> list[HandedOver]:
        if when is not When.KILLED:
            return super().states(task, when)
        self.asked.append(task)
        draft = task.attempt_folder.root / "saved"
        draft.mkdir()
        (draft / "state").write_text(f"{self.done}\n")
        return [HandedOver(draft, Handover(Progress(self.done, 100, "steps")))]


def killed(base: Path, segment: int = 1, **changes: object) -> int:
    """A segment that is killed while its program works; its process id."""
    process = start_segment(base, segment, command=program("deaf_and_idle"), goal=100, **changes)
    until(lambda: list(base.glob("results/demo/work/*/attempt.json")) and process.child_pid())
    process.kill(signal.SIGKILL)
    process.end()
    return process.pid


def test_what_is_saved_is_a_checkpoint_of_the_killed_attempt(tmp_path: Path) -> None:
    pid = killed(tmp_path)
    engine = Saving(7)

    run_segment(toy_job(tmp_path, goal=100), engine)

    job = toy_job(tmp_path, goal=100)
    died, after = history(job)
    saved, newest = checkpoints(job)
    assert (died.kind, died.pid, died.progress_to) == (EndKind.DIED, pid, 7)
    assert (died.to_checkpoint, after.from_checkpoint) == (saved.name, saved.name)
    assert (saved.passport.token, newest.passport.token) == (died.token, after.token)
    assert (after.progress_from, after.progress_to) == (7, 8)
    assert not list(job.places.work.iterdir())
    assert "saved from the killed attempt 1: 7 of 100 steps" in job.places.log(1).read_text()


def test_what_is_saved_says_what_the_killed_attempt_was_started_in(tmp_path: Path) -> None:
    make_venv(tmp_path / "env", "1.0")
    killed(tmp_path, venv="env")
    install(tmp_path / "env", "2.0")

    run_segment(toy_job(tmp_path, goal=100, venv="env"), Saving(7))

    job = toy_job(tmp_path)
    made = [checkpoint.passport.environment["venv"]["packages"] for checkpoint in checkpoints(job)]
    assert made == [{"fruit": "1.0"}, {"fruit": "2.0"}]
    assert "venv changed since checkpoint 1: fruit 1.0 -> 2.0" in job.places.log(1).read_text()


def test_what_is_not_further_than_the_store_is_not_saved(tmp_path: Path) -> None:
    run_segment(toy_job(tmp_path, goal=100), ProgramEngine(program("one_step")))
    killed(tmp_path, 2)

    run_segment(toy_job(tmp_path, 2, goal=100), Saving(1))

    assert [checkpoint.passport.token for checkpoint in checkpoints(toy_job(tmp_path))] == [1, 3]
    assert [attempt.progress_to for attempt in history(toy_job(tmp_path))] == [1, 1, 2]


def test_a_desk_that_went_on_from_another_checkpoint_is_left_alone(tmp_path: Path) -> None:
    """Its state hangs on one that has turned out bad since."""
    killed(tmp_path)
    attempt_folder = AttemptFolder(toy_job(tmp_path).places.work / "000001")
    note = json.loads(attempt_folder.note.read_text())
    attempt_folder.note.write_text(json.dumps({**note, "origin": "000009_9-steps_20261121T000000Z_t9"}))
    engine = Saving(7)

    run_segment(toy_job(tmp_path, goal=100), engine)

    assert engine.asked == []
    assert history(toy_job(tmp_path))[0].progress_to == 0


def test_a_torn_note_means_that_nothing_is_saved(tmp_path: Path) -> None:
    killed(tmp_path)
    attempt_folder = AttemptFolder(toy_job(tmp_path).places.work / "000001")
    os.truncate(attempt_folder.note, 5)
    engine = Saving(7)

    run_segment(toy_job(tmp_path, goal=100), engine)

    assert engine.asked == []
    assert "nothing of the killed attempt 1 could be saved: " in toy_job(tmp_path).places.log(1).read_text()


def test_a_thing_that_is_gone_from_the_desk_when_it_is_looked_at_stops_nothing(tmp_path: Path) -> None:
    """A rank that lives on renames its drafts; here it is a link to what the program has removed."""
    killed(tmp_path)
    (AttemptFolder(toy_job(tmp_path).places.work / "000001").save / "newest").symlink_to("gone")

    run_segment(toy_job(tmp_path, goal=100), Saving(7))

    assert [attempt.kind for attempt in history(toy_job(tmp_path))] == [EndKind.DIED, EndKind.PAUSED]


def test_the_state_keeps_the_identity_that_it_was_made_under(tmp_path: Path) -> None:
    killed(tmp_path)

    run_segment(toy_job(tmp_path, goal=100), Saving(7))

    saved = checkpoints(toy_job(tmp_path))[0].passport
    assert saved.identity_parts["settings.seed"] == "1"
    assert KEYS.value_keys == ("seed",)


def test_a_config_that_was_edited_since_the_kill_does_not_go_on_from_what_is_saved(tmp_path: Path) -> None:
    """There was no checkpoint yet that could have refused it."""
    killed(tmp_path)

    with pytest.raises(IdentityError, match=r"settings\.seed was 1, is 2; .*unbroken accept demo .*unbroken restart"):
        run_segment(toy_job(tmp_path, goal=100, seed=2), Saving(7))

    job = toy_job(tmp_path, goal=100)
    assert [each.passport.progress.done for each in checkpoints(job)] == [7]
    assert history(job)[0].kind is EndKind.DIED
    run_segment(toy_job(tmp_path, goal=100), ProgramEngine(program("one_step")))
    assert [each.passport.progress.done for each in checkpoints(job)] == [7, 8]


def test_it_goes_on_once_the_edited_config_is_accepted(tmp_path: Path) -> None:
    killed(tmp_path)
    job = toy_job(tmp_path, goal=100, seed=2)
    with pytest.raises(IdentityError):
        run_segment(job, Saving(7))

    accept_identity(job.places.accepted, checkpoints(job)[0].passport.identity, ["settings.seed was 1, is 2"])
    run_segment(job, ProgramEngine(program("one_step")))

    assert [each.passport.progress.done for each in checkpoints(job)] == [7, 8]


def test_a_damaged_note_of_what_was_being_published_takes_nothing_from_what_the_engine_finds(tmp_path: Path) -> None:
    killed(tmp_path)
    (folder,) = toy_job(tmp_path, goal=100).places.work.glob("0*")
    (folder / "state-000001").mkdir()
    (folder / "whole-state-000001.json").write_bytes(b'{"done": 1')

    run_segment(toy_job(tmp_path, goal=100), Saving(7))

    assert checkpoints(toy_job(tmp_path, goal=100))[0].passport.progress.done == 7


# --- programs that keep the contract, whatever the engine ---


def test_what_a_killed_attempt_had_handed_over_is_saved(tmp_path: Path) -> None:
    """A job whose process stands still sees nothing, while its program goes on and hands over again."""
    process = start_segment(tmp_path, 1, command=program("silent_but_saving", 2), goal=100, keep=9)
    process.child_pid()
    process.kill(signal.SIGSTOP)
    work = tmp_path / "results/demo/work"
    until(lambda: list(work.glob("*/save/*2.ready")))
    process.kill()
    process.end()

    run_segment(toy_job(tmp_path, goal=100, keep=9), ProgramEngine(program("one_step")))

    job = toy_job(tmp_path, goal=100, keep=9)
    assert [(one.kind, one.progress_from, one.progress_to) for one in history(job)] == [
        (EndKind.DIED, 0, 2),
        (EndKind.PAUSED, 2, 3),
    ]
    assert [each.passport.progress.done for each in checkpoints(job)] == [1, 2, 3]
    assert not list(work.iterdir())


def test_a_job_that_is_killed_while_it_publishes(tmp_path: Path) -> None:
    process = start_segment(tmp_path, 1, command=program("large_states"), goal=100_000)
    work = tmp_path / "results/demo/work/000001"

    def is_publishing() -> bool:
        """Stopped dead in it, and not a moment after it."""
        process.kill(signal.SIGSTOP)
        found = list(work.glob("taken-*.ready"))
        process.kill(signal.SIGCONT if not found else signal.SIGKILL)
        return bool(found)

    until(lambda: list(work.glob("taken-*.ready")) and is_publishing())
    process.end()
    (taken,) = work.glob("taken-*.ready")
    said = float(taken.name.removeprefix("taken-").removesuffix(".ready"))

    run_segment(toy_job(tmp_path, goal=100_000, keep=99), ProgramEngine(program("one_step")))

    saved = {each.passport.progress.done: each.passport for each in checkpoints(toy_job(tmp_path))}
    assert (saved[said].token, saved[said].progress.unit, saved[said].progress.goal) == (1, "steps", 100_000)


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_a_killed_attempt_was_publishing_is_saved_with_all_that_it_says(tmp_path: Path, is_taken: bool) -> None:
    killed(tmp_path)
    (root,) = (tmp_path / "results/demo/work").iterdir()
    (root / "save/1.ready/final").mkdir(parents=True)
    (root / "save/1.ready/final/result").write_text("1")
    (root / "save/1.ready/progress.json").write_text('{"done": 9, "goal": null, "unit": "s", "is_finished": true}')
    (root / "progress.json").write_text('{"done": 11, "unit": "s"}')
    (found,) = ready_states(AttemptFolder(root))
    if is_taken:
        found.taken()

    record = run_segment(toy_job(tmp_path, goal=None), ProgramEngine(program("one_step")))

    assert (record.kind, record.progress.done, record.progress.unit) == (EndKind.FINISHED, 9, "s")
    assert (tmp_path / "results/demo/final/result").read_text() == "1"


class FullDisk(ProgramEngine):
    """The disk is full from the moment at which the killed attempt is looked at."""

    def __init__(self, disk: Path) -> None:
        super().__init__(program("one_step"))
        self.filler = disk / "filler"

    def states(self, task: Task, when: When) -> list[HandedOver]:
        if when is When.KILLED:
            with self.filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
        return super().states(task, when)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_full_disk_leaves_what_was_handed_over_to_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(contract, "link_or_copy", shutil.copy2)
    mount_small(tmp_path, "size=4m")
    try:
        run_segment(toy_job(tmp_path, goal=100), ProgramEngine(program("one_step")))  # the history has room for a line
        killed(tmp_path, 2)
        (root,) = (tmp_path / "results/demo/work").iterdir()
        (root / "save/1.ready").mkdir()
        (root / "save/1.ready/state").write_text("9")
        (root / "save/1.ready/progress.json").write_text('{"done": 9, "goal": 100}')
        ready_states(AttemptFolder(root))
        engine = FullDisk(tmp_path)
        with pytest.raises(StorageError, match=r"No space left on device|no room left"):
            run_segment(toy_job(tmp_path, 2, goal=100), engine)
        engine.filler.unlink()

        run_segment(toy_job(tmp_path, 2, 2, goal=100), ProgramEngine(program("one_step")))

        assert [each.passport.progress.done for each in checkpoints(toy_job(tmp_path))] == [9, 10]
    finally:
        unmount(tmp_path)


def test_a_state_that_is_found_twice_says_the_same_twice(tmp_path: Path) -> None:
    """As at the end of an attempt in which it could not be published."""
    attempt_folder = AttemptFolder(tmp_path / "000001")
    attempt_folder.prepare()
    (attempt_folder.save / "1.ready").mkdir()
    (attempt_folder.save / "1.ready/progress.json").write_text('{"done": 9}')
    attempt_folder.progress.write_text('{"done": 11}')

    first, second = [ready_states(attempt_folder)[0].handover for _ in range(2)]

    assert first is not None and first.progress.done == 9
    assert first == second


def test_a_state_that_does_not_say_how_far_it_is_is_made_anew(tmp_path: Path) -> None:
    """The progress file of its program may speak of a later moment."""
    killed(tmp_path)
    (attempt_folder,) = (tmp_path / "results/demo/work").iterdir()
    (attempt_folder / "save/1.ready").mkdir()
    (attempt_folder / "save/1.ready/state").write_text("1")
    (attempt_folder / "progress.json").write_text('{"done": 9, "goal": 100}')

    run_segment(toy_job(tmp_path, goal=100), ProgramEngine(program("one_step")))

    assert [each.passport.progress.done for each in checkpoints(toy_job(tmp_path))] == [1]
    assert history(toy_job(tmp_path))[0].progress_to == 0


@pytest.mark.parametrize("engine", ["dmtcp", "tensorflow", "torch", "toy"])
def test_no_engine_saves_a_state_that_does_not_say_how_far_it_is(tmp_path: Path, engine: str) -> None:
    """Without its own word it is torn: an end of a run would be taken for a state to go on from."""
    run = toy_run(engine=engine)
    attempt_folder = AttemptFolder(tmp_path / "results/demo/work/000001")
    attempt_folder.prepare()
    (attempt_folder.save / "1.ready/final").mkdir(parents=True)
    task = Task(run, 1, None, attempt_folder, 0.0)

    assert engine_of(run, tmp_path).states(task, When.KILLED) == []


def test_a_link_in_what_was_handed_over_is_no_checkpoint(tmp_path: Path) -> None:
    killed(tmp_path)
    (attempt_folder,) = (tmp_path / "results/demo/work").iterdir()
    (attempt_folder / "save/1.ready").mkdir()
    (attempt_folder / "save/1.ready/progress.json").write_text('{"done": 9, "goal": 100}')
    (tmp_path / "elsewhere").write_text("theirs")
    (attempt_folder / "save/1.ready/state").symlink_to(tmp_path / "elsewhere")

    run_segment(toy_job(tmp_path, goal=100), ProgramEngine(program("one_step")))

    job = toy_job(tmp_path, goal=100)
    assert [each.passport.progress.done for each in checkpoints(job)] == [1]
    assert "nothing of the killed attempt 1 could be saved: " in job.places.log(1).read_text()
    assert (tmp_path / "elsewhere").read_text() == "theirs"
