"""A file server that does not answer says nothing about a checkpoint: nothing good is set aside."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.making import PASSPORT, publish
from support.toyrun import checkpoints, flip_byte, history, program, run_program, toy_job

from unbroken.errors import InterruptedSegment, OutageError, StorageError, UnbrokenError
from unbroken.job import attempt as segment_module
from unbroken.store import checkpoint as checkpoint_module
from unbroken.store import select as pick_module
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind
from unbroken.store.select import select
from unbroken.system import log

PASSING = [errno.EIO, errno.ESHUTDOWN, errno.ENOTCONN, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results" / "demo" / "checkpoints")


class Outage:
    """Files of checkpoints that cannot be read; time passes only while somebody rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hits: Callable[[Path], bool] = lambda path: False
        self.number, self.now, self.told = errno.EIO, 0.0, list[str]()
        digest, read_text = checkpoint_module.digest_file, Path.read_text

        def digest_file(path: Path, algorithm: str) -> str:
            self._fail(path)
            return digest(path, algorithm)

        def text(path: Path, *args: object, **more: object) -> str:
            if path.name == "manifest.json":
                self._fail(path)
            return read_text(path, *args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(checkpoint_module, "digest_file", digest_file)
        monkeypatch.setattr(Path, "read_text", text)
        # Not the clock of everybody: other threads live beside a test.
        monkeypatch.setattr(pick_module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _fail(self, path: Path) -> None:
        if self.hits(path):
            raise OSError(self.number, os.strerror(self.number), str(path))

    def rest(self, seconds: float) -> None:
        self.now += seconds

    def picked(self, store: Store) -> Checkpoint | None:
        is_accepted = PASSPORT.identity.__eq__
        with log.lines_to(self.told.append):
            return select(store, "demo", is_accepted, rest=self.rest)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    with monkeypatch.context() as patch:
        yield Outage(patch)


def is_untouched(store: Store, count: int) -> bool:
    return len(store.names()) == count and not (store.root / ".quarantine").exists()


@pytest.mark.parametrize("name", ["state", "manifest.json"])
@pytest.mark.parametrize("number", PASSING)
def test_an_outage_that_passes_costs_no_checkpoint_and_one_line(
    store: Store, outage: Outage, number: int, name: str
) -> None:
    for sequence in (1, 2):
        publish(store, sequence)
    outage.number = number
    outage.hits = lambda path: path.name == name and outage.now < 200

    found = outage.picked(store)

    assert found is not None and found.passport.sequence == 2
    assert 200 <= outage.now < 240
    assert len(outage.told) == 1
    assert os.strerror(number) in outage.told[0] and outage.told[0].endswith("; trying again for 10 minutes")
    assert is_untouched(store, 2)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBUSY, errno.EACCES])
def test_any_other_error_is_said_at_once_and_moves_nothing(store: Store, outage: Outage, number: int) -> None:
    for sequence in (1, 2):
        publish(store, sequence)
    outage.number = number
    outage.hits = lambda path: path.name == "state"

    with pytest.raises(StorageError, match=f"state: {os.strerror(number)}; make it readable") as raised:
        outage.picked(store)

    assert not isinstance(raised.value, OutageError)
    assert outage.now == 0 and is_untouched(store, 2)


@pytest.mark.parametrize("name", ["state", "manifest.json"])
def test_after_ten_minutes_the_one_before_is_taken_and_the_newest_stays(
    store: Store, outage: Outage, name: str
) -> None:
    for sequence in (1, 2, 3):
        newest = publish(store, sequence)
    outage.hits = lambda path: path.name == name and newest.name in str(path)

    found = outage.picked(store)

    assert found is not None and found.passport.sequence == 2
    assert outage.now == 600
    assert outage.told[-1].startswith(f"{newest.name}: cannot be read (")
    assert outage.told[-1].endswith("it stays where it is; taking the one before")
    assert is_untouched(store, 3)


def test_an_outage_of_all_checkpoints_sets_none_aside(store: Store, outage: Outage) -> None:
    for sequence in range(1, 6):
        publish(store, sequence)
    outage.hits = lambda path: True

    with pytest.raises(
        OutageError, match=r"Input/output error; .*; no other checkpoint can be read; wait until it answers"
    ):
        outage.picked(store)

    assert outage.now == 600
    assert is_untouched(store, 5)


def test_in_an_outage_what_looks_bad_is_left_where_it_is(store: Store, outage: Outage) -> None:
    first, torn, newest = (publish(store, sequence) for sequence in (1, 2, 3))
    flip_byte(torn.folder / "state")
    outage.hits = lambda path: newest.name in str(path)

    found = outage.picked(store)

    assert found is not None and found.name == first.name
    assert is_untouched(store, 3)


def test_a_bad_newest_one_is_set_aside_before_an_outage_of_the_one_before_is_waited_for(
    store: Store, outage: Outage
) -> None:
    first, second, torn = (publish(store, sequence) for sequence in (1, 2, 3))
    flip_byte(torn.folder / "state")
    outage.hits = lambda path: second.name in str(path) and outage.now < 60

    found = outage.picked(store)

    assert found is not None and found.name == second.name
    assert store.names() == [first.name, second.name]


def test_an_old_checkpoint_that_cannot_be_read_keeps_nobody_waiting(store: Store, outage: Outage) -> None:
    first, second = publish(store, 1), publish(store, 2)
    outage.hits = lambda path: first.name in str(path)

    found = outage.picked(store)

    assert found is not None and found.name == second.name
    assert (outage.now, outage.told) == (0, [])


def test_nothing_is_pruned_that_cannot_be_read(store: Store, outage: Outage) -> None:
    for sequence in (1, 2, 3):
        publish(store, sequence)
    outage.hits = lambda path: path.parent.name.startswith("000001")

    store.prune(keep=1, milestone_every=0)

    assert [name[:6] for name in store.names()] == ["000001", "000003"]


# --- in a segment ----------------------------------------------------------------------------------------------------


def failing_digest(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    digest = checkpoint_module.digest_file

    def broken(path: Path, algorithm: str) -> str:
        if part in str(path) and "/checkpoints/0" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return digest(path, algorithm)

    monkeypatch.setattr(checkpoint_module, "digest_file", broken)


@pytest.mark.process
def test_a_segment_goes_on_from_the_one_before_and_the_unread_one_is_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for segment in (1, 2):
        run_program(tmp_path, program("one_step"), segment, goal=100, keep=9)
    unread = checkpoints(toy_job(tmp_path))[-1]
    monkeypatch.setattr(pick_module, "PATIENCE_SECONDS", 0.2)
    with monkeypatch.context() as patch:
        failing_digest(patch, unread.name)
        run_program(tmp_path, program("one_step"), 3, goal=100, keep=9)

    run_program(tmp_path, program("one_step"), 4, goal=100, keep=9)

    found = [(checkpoint.passport.sequence, checkpoint.passport.progress.done) for checkpoint in
             checkpoints(toy_job(tmp_path))]  # fmt: skip
    assert found == [(1, 1), (2, 2), (3, 2), (4, 3)]
    assert [attempt.kind for attempt in history(toy_job(tmp_path))] == [EndKind.PAUSED] * 4


@pytest.mark.process
def test_who_waits_for_a_file_server_leaves_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_program(tmp_path, program("one_step"), goal=100)
    failing_digest(monkeypatch, "state")

    def told(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(min(seconds, 0.01))

    monkeypatch.setattr(segment_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=told))

    with pytest.raises(InterruptedSegment, match=r"stopped by a signal \(SIGUSR1\) while the file server was silent"):
        run_program(tmp_path, program("one_step"), 2, goal=100)


@pytest.mark.process
def test_an_outage_that_lasts_ends_the_attempt_with_one_line_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for segment in (1, 2):
        run_program(tmp_path, program("one_step"), segment, goal=100)
    monkeypatch.setattr(pick_module, "PATIENCE_SECONDS", 0.2)
    with monkeypatch.context() as patch:
        failing_digest(patch, "state")
        with pytest.raises(
            UnbrokenError, match=r"^runs\.demo: .*Input/output error; that says nothing about the check"
        ):
            run_program(tmp_path, program("one_step"), 3, goal=100)

    record = run_program(tmp_path, program("one_step"), 3, 2, goal=100)

    assert record.progress.done == 3
    assert not (toy_job(tmp_path).places.checkpoints / ".quarantine").exists()


@pytest.mark.process
@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOTCONN, errno.EIO])
def test_an_outage_while_a_state_is_published_has_its_line_and_costs_no_checkpoint(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_program(tmp_path, program("one_step"))
    (before,) = checkpoints(toy_job(tmp_path))

    def publish_nothing(*_: object) -> None:
        raise OSError(number, os.strerror(number), "results/demo/checkpoints")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "publish", publish_nothing)
        with pytest.raises(
            UnbrokenError, match=f"results/demo/checkpoints: {os.strerror(number)}; earlier checkpoints"
        ):
            run_program(tmp_path, program("one_step"), 2)

    assert checkpoints(toy_job(tmp_path)) == [before]
    last = history(toy_job(tmp_path))[-1]
    assert last.kind is EndKind.FAILED
    assert run_program(tmp_path, program("one_step"), 2, 2).progress.done == 2
