"""Saves beside the training: a snapshot of one moment, one at a time, errors told, nothing torn shown."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest
from support.toyrun import until

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.errors import CheckpointError, StorageError  # noqa: E402
from unbroken.store.checkpoints import Store  # noqa: E402
from unbroken.training.core import session  # noqa: E402
from unbroken.training.core.session import in_thread  # noqa: E402
from unbroken.training.torch import Saves, Training, rank_checkpoint, save_verified  # noqa: E402
from unbroken.training.torch import state as torch_state  # noqa: E402
from unbroken.training.torch.snapshot import SnapshotBuffer  # noqa: E402

WIDTH = 100_000
PATIENCE_SECONDS = 600


class Gate:
    """Takes the place of `save_verified`: writes when it is opened, and notes what came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open, self.came = threading.Event(), 0
        monkeypatch.setattr(rank_checkpoint, "save_verified", self.save)

    def save(self, *arguments):
        self.came += 1
        assert self.is_open.wait(PATIENCE_SECONDS)
        return save_verified(*arguments)


class Loop:
    """A training whose steps the test takes one by one."""

    def __init__(self, folder: Path, **saves) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(WIDTH, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        saves = Saves(**{"steps": 2, "in_background": True, **saves})
        self.training = Training(state={"model": self.model, "optimizer": self.optimizer}, folder=folder, saves=saves)
        self.loader = self.training.loader(torch.utils.data.TensorDataset(torch.ones(100, 1)))
        self.steps = self._steps()

    def _steps(self):
        for _ in self.training.epochs(1):
            for _ in self.training.batches(self.loader):
                yield self.training._course.position.step

    def step(self) -> None:
        next(self.steps)
        self.optimizer.zero_grad()
        self.model(torch.ones(1, WIDTH)).sum().backward()
        self.optimizer.step()

    def close(self) -> None:
        self.training._link.place.close()


@pytest.fixture
def loop(tmp_path: Path):
    made = Loop(tmp_path)
    yield made
    made.close()


def saved(folder: Path) -> dict[str, object]:
    return torch_state.load(folder / "checkpoints" / "latest")


def test_a_snapshot_has_the_bytes_of_its_original_however_tensors_share_their_memory(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.randn(3, WIDTH)).sum().backward()
    optimizer.step()
    base = torch.arange(10.0)
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "empty": torch.empty(0)}
    parts |= {
        "views": [base, base[2:5], base.reshape(2, 5).T, (base, {"deep": base[1]})],
        "wave": torch.ones(2).cfloat(),
    }
    parts |= {"half": base.bfloat16(), "odd": base.cfloat().conj(), "size": torch.Size([1]), "set": {1, 2}}
    state = torch_state.canonical(parts, "state")
    save_verified(state, tmp_path / "original")

    buffer = SnapshotBuffer()
    copy = buffer.take(state)
    buffer.wait()
    save_verified(copy, tmp_path / "copy")

    assert (tmp_path / "copy").read_bytes() == (tmp_path / "original").read_bytes()
    assert copy["model"]["0.weight"].data_ptr() != model[0].weight.data_ptr()


def test_the_thread_that_writes_works_on_the_gpu_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread begins on GPU 0, where each of eight ranks would take memory."""
    chosen: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda number: chosen.append((threading.current_thread().name, number))
    )

    buffer = SnapshotBuffer()
    buffer.take({})
    in_thread(buffer.wait).result()

    assert chosen == [("unbroken-save", 3)]


def test_room_for_a_snapshot_is_used_again() -> None:
    stage, state = SnapshotBuffer(), {"a": torch.ones(10), "b": torch.ones(20)}
    places = [[tensor.data_ptr() for tensor in stage.take(state).values()] for _ in range(2)]

    assert places[0] == places[1]
    assert sum(map(len, stage._used.values())) == 2


@pytest.mark.process
def test_what_is_saved_is_of_one_moment_while_steps_go_on_and_no_second_save_begins(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    for _ in range(2):
        loop.step()
    moment = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    momentum = loop.optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    for _ in range(8):  # a save is due every two of them
        loop.step()
    busy = [thread for thread in threading.enumerate() if thread.name == "unbroken-save"]
    gate.is_open.set()
    loop.training._link.wait()
    state = saved(tmp_path)

    assert (gate.came, len(busy)) == (1, 1)
    assert state["position"]["step"] == 2
    assert torch.equal(state["parts"]["model"]["weight"], moment["weight"])
    assert torch.equal(state["parts"]["optimizer"]["state"][0]["momentum_buffer"], momentum)
    assert not torch.equal(loop.model.weight, moment["weight"])


@pytest.mark.process
def test_a_fork_that_exits_during_a_save_waits_for_nothing(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    may_copy, copy = threading.Event(), SnapshotBuffer.wait

    def late(buffer: SnapshotBuffer) -> None:
        may_copy.wait(PATIENCE_SECONDS)
        copy(buffer)

    monkeypatch.setattr(SnapshotBuffer, "wait", late)
    for _ in range(2):
        loop.step()
    next(loop.steps)  # a save has begun, and no step may follow
    assert loop.training._link._async_save

    if (child := os.fork()) == 0:
        try:
            loop.training._link._at_exit()  # which Python calls there
        finally:
            os._exit(0)
    try:
        until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 120)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        may_copy.set()
    loop.training._link.wait()


@pytest.mark.process
def test_an_error_beside_the_training_is_raised_in_its_loop_and_the_checkpoint_of_before_stays(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_):
        raise StorageError("the disk is full")

    for _ in range(3):
        loop.step()
    loop.training._link.wait()
    before = Store(tmp_path / "checkpoints").names()
    monkeypatch.setattr(rank_checkpoint, "save_verified", full)

    with pytest.raises(StorageError, match="the disk is full"):
        for _ in range(50):
            loop.step()
            if loop.training._link._async_save:
                loop.training._link._async_save.exception(PATIENCE_SECONDS)
    assert Store(tmp_path / "checkpoints").names() == before
    assert saved(tmp_path)["position"]["step"] == 2


@pytest.mark.process
def test_weights_that_are_no_numbers_are_found_in_the_copy_and_end_the_training(loop: Loop, tmp_path: Path) -> None:
    for _ in range(5):
        loop.step()
        if loop.training._link._async_save:
            loop.training._link._async_save.exception(PATIENCE_SECONDS)
    with torch.no_grad():
        loop.model.weight[0, 7] = torch.inf

    line = "unbroken: the weights model.weight hold NaN or infinity, at step 6 in epoch 0"
    with pytest.raises(SystemExit, match=line):
        for _ in range(50):
            loop.step()
            if loop.training._link._async_save:
                loop.training._link._async_save.exception(PATIENCE_SECONDS)

    assert loop.training._course.position.step > 6  # the training did not wait for the answer
    assert saved(tmp_path)["position"]["step"] == 4


@pytest.mark.process
def test_a_training_that_ends_by_an_error_keeps_the_save_that_was_on_its_way(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    for _ in range(3):
        loop.step()
    gate.is_open.set()
    loop.training._link._at_exit()

    assert saved(tmp_path)["position"]["step"] == 2


@pytest.mark.process
def test_where_memory_is_short_saves_stop_the_training_and_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "available_bytes", lambda: 0)
    loop = Loop(tmp_path)
    for _ in range(5):
        loop.step()
    loop.close()

    assert saved(tmp_path)["position"]["step"] == 4
    said = re.findall(
        "no async checkpoints, saves stop the training: not enough free memory for a copy of 1 MB",
        capsys.readouterr().out,
    )
    assert len(said) == 1


@pytest.mark.process
def test_small_states_are_saved_at_once(tmp_path: Path) -> None:
    loop = Loop(tmp_path, in_background=None)
    for _ in range(3):
        loop.step()
    loop.close()

    assert loop.training._link._async_save is None
    assert saved(tmp_path)["position"]["step"] == 2


def test_a_last_save_that_reads_back_otherwise_is_no_pause_and_no_finish(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiling(state, path, **more):
        made = save_verified(state, path, **more)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        return made

    monkeypatch.setattr(rank_checkpoint, "save_verified", spoiling)

    with pytest.raises(
        CheckpointError, match=r"state\.pt: reads back differently from what was written; check the disk"
    ):
        loop.training.finish()
    assert Store(tmp_path / "checkpoints").names() == []


@pytest.mark.process
def test_the_interval_that_was_chosen_is_shown(tmp_path: Path) -> None:
    loop = Loop(tmp_path, steps=None, mtbf_hours=24)
    loop.training._link.pace._saved_at -= 10**6
    for _ in range(2):
        loop.step()
    loop.training._link.wait()
    loop.close()

    shown = loop.training._link.pace.chosen
    assert shown["save_every_seconds"] > shown["save_stall_seconds"] > 0
