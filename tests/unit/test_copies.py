"""Copies of checkpoints in a second location: what is copied there, when, and that no run waits for it or suffers."""

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from support.copying import GOAL, STEP, big_step, copied_run, copies, copy_now, job, log, step
from support.disks import as_root, mount_small, unmount
from support.making import publish
from support.snapshots import snapshot
from support.toyrun import ProgramEngine, checkpoints, flip_byte, program, start_segment, toy, toy_job, until

from unbroken.copies import replica, transfer
from unbroken.copies.replica import NOTE, Note, read_note, write_note
from unbroken.copies.transfer import Transfer
from unbroken.errors import CheckpointError, ConfigError, ForeignFolderError
from unbroken.job import copier
from unbroken.job.lifecycle import run_segment
from unbroken.job.publisher import Publisher
from unbroken.plan.plan import Plan
from unbroken.store import checkpoint as checkpoint_store
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.select import verify
from unbroken.system import disk, fs
from unbroken.system.clock import utc_text


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    return tmp_path / "base"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    (tmp_path / "backup").mkdir()
    return tmp_path / "backup"


@pytest.fixture
def small_backup(backup: Path) -> Iterator[Path]:
    mount_small(backup, "size=1m")
    yield backup
    unmount(backup)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(name): (folder / name).read_bytes() for name in fs.tree_files(folder)}


def done(store: Store) -> list[float]:
    return [checkpoint.passport.progress.done for checkpoint in store.readable()]


# --- what is copied --------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_checkpoint_is_copied_whole_with_history_records_and_the_number_of_its_run(base: Path, backup: Path) -> None:
    step(base, backup, 1)

    places, copy = job(base).places, copies(backup)
    (name,) = copy.store.names()
    assert verify(copy.store.root / name, "demo").passport.progress.done == 1
    assert contents(copy.store.root / name) == contents(places.checkpoints / name)
    assert (copy.store.root / name / "empty").is_dir()
    assert stat.S_IMODE((copy.store.root / name / "tool").stat().st_mode) & stat.S_IXUSR
    assert copy.folder.history.read_bytes() == places.history.read_bytes()
    assert copy.folder.record(1).read_bytes() == places.record(1).read_bytes()
    assert read_note(copy.root) == read_note(places.root) is not None
    assert log(base)[0].startswith(f"{name} (1 of {GOAL} steps) copied to {copy.root} in ")


@pytest.mark.process
def test_the_newest_copies_stay_and_the_pieces_of_all(base: Path, backup: Path) -> None:
    for segment in range(1, 5):
        step(base, backup, segment, keep=1)

    store = copies(backup).store
    assert done(store) == [4]
    pieces = [sorted(path.name for path in (store.archive / name / "parts").iterdir()) for name in store.archived()]
    assert pieces == [["piece_1"], ["piece_2"], ["piece_3"]]


@pytest.mark.process
def test_a_checkpoint_that_is_too_young_is_left_out_but_for_its_pieces_and_the_last_one_never(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:  # of a node whose clock is ahead, which stops no further copies
        ahead.setattr(checkpoint_store, "utc_now", lambda: utc_text(time.time() + 86400))
        step(base, backup, 1, every_minutes=60)
    for segment in range(2, GOAL + 1):
        step(base, backup, segment, every_minutes=60)

    assert done(copies(backup).store) == [2, GOAL]
    assert len(copies(backup).store.archived()) == GOAL - 2


@pytest.mark.process
def test_the_pieces_of_a_checkpoint_that_is_pruned_in_this_moment_are_copied(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment is between two looks, at the store and at its archive."""
    step(base, backup, 1, every_minutes=60)
    store = Store(job(base).places.checkpoints)
    for segment in (2, 3):
        run_segment(job(base, segment), ProgramEngine(STEP))
    archived = Store.archived

    def archived_before_it_is_pruned(self: Store) -> list[str]:
        found = archived(self)
        if self.root == store.root:
            store.prune(1, 0)
        return found

    monkeypatch.setattr(Store, "archived", archived_before_it_is_pruned)
    for segment in range(4, GOAL + 1):
        step(base, backup, segment, every_minutes=60)
    monkeypatch.undo()

    pieces = {*copies(backup).store.archived(), *copies(backup).store.names()}
    assert {name.split("_")[0] for name in pieces} == {f"{number:06d}" for number in range(1, GOAL + 1)}


@pytest.mark.process
def test_what_is_bad_is_not_copied_and_takes_no_copy_away(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    run_segment(toy_job(base, 2, goal=GOAL), ProgramEngine(STEP))
    newest = checkpoints(job(base))[-1]
    flip_byte(newest.folder / "state")

    copy_now(base, backup)

    assert done(copies(backup).store) == [1]
    assert f"{newest.name} is not copied: {newest.folder}/state: the content changed" in log(base)[-1]
    assert not Transfer(copies(backup).store.root).unfinished()


# --- the location is not as it should be -----------------------------------------------------------------------------


def run_on(base: Path, folder: Path, segment: int, command: list[str] = STEP) -> list[str]:
    """One more segment, which must go well; what it said of its copies."""
    assert step(base, folder, segment, command).kind is EndKind.PAUSED
    assert checkpoints(job(base))[-1].passport.progress.done == segment
    return log(base, segment)


@pytest.mark.process
def test_a_location_that_is_gone_costs_one_line_and_is_used_again_when_it_is_back(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    backup.rename(backup.with_name("away"))

    gone = run_on(base, backup, 2)
    backup.with_name("away").rename(backup)
    run_on(base, backup, 3)

    assert gone == [f"{backup}: gone; the run continues, and the next checkpoint is tried again"]
    assert done(copies(backup).store) == [2, 3]


@pytest.mark.process
@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_location_that_is_full_costs_one_line_and_is_not_filled_up(
    base: Path, small_backup: Path, monkeypatch: pytest.MonkeyPatch, is_seen_before: bool
) -> None:
    step(base, small_backup, 1)
    if not is_seen_before:  # somebody else was quicker
        monkeypatch.setattr(disk, "free_bytes", lambda path: 10**12)

    (line,) = run_on(base, small_backup, 2, big_step(2_000_000))
    monkeypatch.undo()

    assert line.endswith("/big: No space left on device; the run continues, and the next checkpoint is tried again")
    assert done(copies(small_backup).store) == [1]
    assert not Transfer(copies(small_backup).store.root).unfinished()
    assert disk.free_bytes(small_backup) > 500_000


@pytest.mark.process
def test_a_location_that_is_read_only_costs_one_line(base: Path, small_backup: Path) -> None:
    step(base, small_backup, 1)
    assert as_root("mount", "-o", "remount,ro", str(small_backup)).returncode == 0

    (line,) = run_on(base, small_backup, 2)

    assert "Read-only file system" in line
    assert line.endswith("; the run continues, and the next checkpoint is tried again")


def answer(pipe: Path, text: str) -> None:
    """Let go whoever waits for the named pipe, and whoever comes later: from now on it is a file with this text."""
    # Opened for both, a pipe waits for nobody; its readers find a writer, and its end.
    descriptor = os.open(pipe, os.O_RDWR)
    fs.write_atomic(pipe, text)
    os.close(descriptor)


@pytest.mark.process
def test_a_location_that_hangs_is_waited_for_a_moment_and_the_run_continues(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(base, backup, 1)
    note = copies(backup).root / NOTE
    text = note.read_text()
    note.unlink()
    os.mkfifo(note)  # whoever reads it waits for ever
    for name in ("ENDING_SECONDS", "CUTTING_SECONDS"):
        monkeypatch.setattr(copier, name, 0.1)
    monkeypatch.setattr(replica, "ANSWER_SECONDS", 0.1)

    refused = replica.mistakes([copied_run(backup)], base)
    said = run_on(base, backup, 2)
    answer(note, text)

    assert refused == []
    assert said == ["the copy of the last checkpoint was cut off; the next job continues it"]


def test_a_run_that_does_not_know_whether_it_has_copies_does_not_begin(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (backup / "demo").mkdir()
    os.mkfifo(backup / "demo" / NOTE)
    monkeypatch.setattr(replica, "ANSWER_SECONDS", 0.1)

    refused = replica.mistakes([copied_run(backup)], base)
    answer(backup / "demo" / NOTE, "{}")

    problem = f"{backup}: no answer in 0.1 s; start again when that answers: there may be copies of it"
    assert refused == [f"runs.demo.copies.folder: {problem}"]


# --- the location belongs to something else --------------------------------------------------------------------------


def refused(base: Path, folder: Path | str) -> str:
    """The one line with which the driver refuses; a segment without one copies nothing, and says why."""
    with pytest.raises(ConfigError) as driver:
        Plan((copied_run(folder),), base).check()
    (line,) = driver.value.mistakes
    before = snapshot(Path(folder)) if Path(folder).exists() else None
    run_on(base, folder, 1)
    assert "; this job copies nothing more" in log(base)[-1]
    assert before is None or snapshot(Path(folder)) == before
    shutil.rmtree(base / "results")
    return line


@pytest.mark.process
def test_the_copies_of_another_run_are_refused_and_left_alone(base: Path, backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    step(other, backup, 1)

    copy = backup / "demo"
    assert refused(base, backup) == (
        f"runs.demo.copies.folder: {copy} holds copies of {other}/results/demo, and {base}/results/demo is not there "
        f"(is its disk mounted?); nothing there was touched; type: unbroken restore demo --from {backup}, or mv {copy} "
        f"{copy}.old, or name another folder"
    )
    run_segment(job(base), ProgramEngine(STEP))
    (line,) = replica.mistakes([copied_run(backup)], base)
    assert f"{copy} holds the copies of another run of this name, {other}/results/demo; nothing there" in line
    assert "unbroken restore" not in line


def other_files(backup: Path) -> None:
    (backup / "demo").mkdir()
    (backup / "demo" / "thesis.dat").write_text("a year")


def other_note(backup: Path) -> None:
    (backup / "demo").mkdir()
    (backup / "demo" / NOTE).write_text("[]")


def link(backup: Path) -> None:
    (backup.parent / "scratch").mkdir()
    (backup / "demo").symlink_to(backup.parent / "scratch")


@pytest.mark.process
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (other_files, "demo: no folder of copies (no copies.json in it); type: mv "),
        (other_note, "copies.json: not a note of unbroken"),
        (link, "scratch; nothing there was touched"),
        (Path.rmdir, "no such folder; type: mkdir -p "),
    ],
)
def test_what_are_no_copies_is_refused_and_left_alone(
    base: Path, backup: Path, prepare: Callable[[Path], None], words: str
) -> None:
    prepare(backup)

    assert words in refused(base, backup)


def test_a_location_inside_the_run_is_refused(base: Path) -> None:
    (base / "results").mkdir()

    (line,) = replica.mistakes([copied_run("results")], base)

    assert f"{base}/results: leads into {base}/results/demo" in line


@pytest.mark.process
@pytest.mark.parametrize("name", ["checkpoints", "parts", "segments"])
def test_a_link_among_the_folders_of_the_copies_is_left_alone(
    base: Path, backup: Path, tmp_path: Path, name: str
) -> None:
    for segment in (1, 2):
        step(base, backup, segment, keep=1)
    shutil.move(backup / "demo" / name, tmp_path / "scratch")
    (backup / "demo" / name).symlink_to(tmp_path / "scratch")
    before = snapshot(tmp_path / "scratch")

    (line,) = run_on(base, backup, 3)

    assert f"{name}: a link to {tmp_path}/scratch; nothing there was touched" in line
    assert snapshot(tmp_path / "scratch") == before


@pytest.mark.process
def test_a_file_system_that_is_mounted_among_them_is_left_alone(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    store = copies(backup).store.root
    mount_small(store, "size=1m")
    try:
        (line,) = run_on(base, backup, 2)
        touched = list(store.iterdir())
    finally:
        unmount(store)

    assert "another file system, mounted there; nothing there was touched" in line
    assert touched == []


@pytest.mark.process
def test_a_location_that_somebody_took_while_the_run_worked_gets_nothing_more(base: Path, backup: Path) -> None:
    step(base, backup, 1)
    copy = copies(backup)
    before = copy.store.names()
    script = program("saves_once_before", 0)
    process = start_segment(base, 2, command=script, goal=GOAL, copies={"folder": str(backup)})
    until(lambda: len(copy.store.names()) > len(before))
    write_note(copy.root, Note("demo", "another"))
    there = copy.store.names()
    process.kill(signal.SIGUSR1)
    ended = process.end()

    assert ended.record["kind"] == "paused", ended.screen
    assert copy.store.names() == there
    assert log(base, 2)[-1].endswith("; this job copies nothing more")


# --- cut off ---------------------------------------------------------------------------------------------------------


class CutError(Exception):
    pass


def test_a_copy_that_was_cut_off_continues_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "STEP_BYTES", 1000)
    source = publish(Store(tmp_path / "first" / "checkpoints"), 1, {"state": "x" * 9500, "zero": ""})
    target, calls, copied = tmp_path / "second", [], list[int]()
    target.mkdir()

    def cut() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise CutError

    with pytest.raises(CutError):
        Transfer(target, cut).copy(source)
    unfinished = Transfer(target).unfinished()
    begun = (target / f".copying-{source.name}" / "state").stat().st_size
    really = transfer.append_part
    monkeypatch.setattr(transfer, "append_part", lambda *args: copied.append(count := really(*args)) or count)
    Transfer(target).copy(source)

    assert (unfinished, begun) == ([source.name], 3000)
    assert sum(copied) == 9500 - 3000
    assert contents(target / source.name) == contents(source.folder)
    assert not Transfer(target).unfinished()


def test_a_half_copy_that_a_crash_tore_is_made_again(tmp_path: Path) -> None:
    source = publish(Store(tmp_path / "first" / "checkpoints"), 1, {"state": "x" * 9500})
    target = tmp_path / "second"
    half = target / f".copying-{source.name}"
    half.mkdir(parents=True)
    (half / "state").write_bytes(b"x" * 100 + b"\0" * 100)

    Transfer(target).copy(source)

    assert contents(target / source.name) == contents(source.folder)


def test_a_draft_that_is_a_link_is_not_written_into(tmp_path: Path) -> None:
    source = publish(Store(tmp_path / "first" / "checkpoints"), 1, {"state": "one", "sub/more": "two"})
    target, scratch = tmp_path / "second", tmp_path / "scratch"
    for path in (target, scratch):
        path.mkdir()
    draft = target / f".copying-{source.name}"
    draft.symlink_to(scratch)

    with pytest.raises(ForeignFolderError):
        Transfer(target).copy(source)
    draft.unlink()
    draft.mkdir()
    (draft / "sub").symlink_to(scratch)
    with pytest.raises(ForeignFolderError):
        Transfer(target).copy(source)

    assert list(scratch.iterdir()) == []


def test_what_stands_in_the_place_of_a_file_is_not_copied(tmp_path: Path) -> None:
    source = publish(Store(tmp_path / "first" / "checkpoints"), 1, {"state": "one"})
    (tmp_path / "second").mkdir()
    (source.folder / "state").unlink()
    os.mkfifo(source.folder / "state")

    with pytest.raises(CheckpointError, match="state: not a plain file any more"):
        Transfer(tmp_path / "second").copy(source)


@pytest.mark.process
def test_a_checkpoint_that_is_just_being_copied_is_not_pruned(
    base: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that takes longer than `keep` saves would never be complete."""
    first, really, prune = list[Checkpoint](), Transfer.copy, Publisher.prune
    stayed: list[bool] = []

    def while_it_is_copied(self: Publisher, spared: Collection[str] = ()) -> None:
        until(lambda: bool(first))
        prune(self, spared)

    def slow(self: Transfer, checkpoint: Checkpoint) -> None:
        if not first:
            first.append(checkpoint)
            until(lambda: done(Store(job(base).places.checkpoints))[-1] == 20)
            until(job(base).places.history.exists)  # everything was pruned by then
            stayed.append(checkpoint.folder.is_dir())
        really(self, checkpoint)

    monkeypatch.setattr(Publisher, "prune", while_it_is_copied)
    monkeypatch.setattr(Transfer, "copy", slow)
    toy(base, keep=1, copies={"folder": str(backup)})

    assert stayed == [True]
    assert first[0].passport.progress.done < 20
    assert done(copies(backup).store)[-1] == 20
