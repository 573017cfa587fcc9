"""Files of torch that are whole or not there, checked before they are loaded."""

import json
import os
import zipfile
from pathlib import Path

import pytest
from protocol.kill_harness import Steps, forked
from support.toyrun import flip_byte

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from unbroken.errors import CheckpointError, StorageError  # noqa: E402
from unbroken.training import atomic_torch_save, check_file, verified_torch_load  # noqa: E402
from unbroken.training.torch import serialization  # noqa: E402

STATE = {"weights": torch.arange(1000.0), "step": 7, "name": "demo"}


class Net(torch.nn.Linear):
    """A class of the user's own, pickled with the model."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded_and_nothing_else_lies_there(tmp_path: Path) -> None:
    atomic_torch_save(STATE, tmp_path / "state.pt")
    found = verified_torch_load(str(tmp_path / "state.pt"))

    assert torch.equal(found["weights"], STATE["weights"])
    assert (found["step"], found["name"]) == (7, "demo")
    assert names(tmp_path) == ["state.pt"]
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 7
    assert torch.load(tmp_path / "state.pt", weights_only=True, mmap=True)["step"] == 7
    assert zipfile.ZipFile(tmp_path / "state.pt").testzip() is None


def test_options_of_torch_save_are_handed_on(tmp_path: Path) -> None:
    atomic_torch_save({"a": 1}, tmp_path / "state.pt", pickle_protocol=4)

    assert b"\x80\x04" in (tmp_path / "state.pt").read_bytes()
    assert verified_torch_load(tmp_path / "state.pt", trusted=True) == {"a": 1}


def test_without_xxhash_the_digest_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbroken.system.digests.HAS_XXHASH", False)
    atomic_torch_save(STATE, tmp_path / "state.pt")

    assert b"\nunbroken blake2b  " in (tmp_path / "state.pt").read_bytes()
    assert verified_torch_load(tmp_path / "state.pt")["step"] == 7


@pytest.mark.process
def test_every_flipped_byte_is_found_before_torch_opens_the_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "state.pt"
    atomic_torch_save({"a": torch.arange(20.0)}, path)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch opened it"))
    good, missed = path.read_bytes(), []
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        try:
            check_file(path)
            missed.append(position)
        except CheckpointError:
            continue

    assert len(good) > 1000
    assert missed == []
    path.write_bytes(good[:100] + b"?" + good[101:])
    with pytest.raises(CheckpointError, match=r"state.pt: the content changed since it was written \(digest\)"):
        verified_torch_load(path)


def test_a_shorter_a_missing_and_an_unknown_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    atomic_torch_save(STATE, path)
    content = path.read_bytes()
    for size in (len(content) - 1, len(content) // 2, 0):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=r"state\.pt: no digest is at its end; allowed: complete files"):
            verified_torch_load(path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"state\.pt: No such file or directory"):
        verified_torch_load(path)
    torch.save(STATE, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"other\.pt: no digest is at its end; allowed: complete files"):
        verified_torch_load(tmp_path / "other.pt")


def test_a_file_that_is_whole_but_no_archive_of_torch_is_named(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "state.pt"
    monkeypatch.setattr(torch, "save", lambda obj, file: file.write(b"junk"))
    atomic_torch_save(STATE, path)

    with pytest.raises(CheckpointError, match=r"state\.pt: cannot be read \("):
        verified_torch_load(path)


def test_a_whole_model_is_loaded_only_if_it_is_trusted(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Net(3, 2)
    atomic_torch_save(model, tmp_path / "model.pt")

    with pytest.raises(CheckpointError, match=r"model\.pt: holds .*Net.*, which can run code.*type: trusted=True"):
        verified_torch_load(tmp_path / "model.pt")
    found = verified_torch_load(tmp_path / "model.pt", trusted=True)
    assert type(found) is Net
    assert torch.equal(found.weight, model.weight)


def test_a_trusted_file_is_checked_too(tmp_path: Path) -> None:
    atomic_torch_save(Net(3, 2), tmp_path / "model.pt")
    flip_byte(tmp_path / "model.pt")

    with pytest.raises(CheckpointError, match="the content changed"):
        verified_torch_load(tmp_path / "model.pt", trusted=True)


def test_a_full_disk_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_torch_save({"step": 1}, tmp_path / "state.pt")
    write = serialization._Writer.write

    def full(self, data):
        self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
        with self._file:
            return write(self, data)

    monkeypatch.setattr(serialization._Writer, "write", full)

    with pytest.raises(StorageError, match=r"No space left on device; [\d,]+ bytes needed"):
        atomic_torch_save(STATE, tmp_path / "state.pt")
    monkeypatch.undo()
    assert verified_torch_load(tmp_path / "state.pt") == {"step": 1}
    assert names(tmp_path) == ["state.pt"]


def test_a_file_that_torch_saved_before_may_be_replaced(tmp_path: Path) -> None:
    torch.save({"step": 0}, tmp_path / "state.pt")
    atomic_torch_save({"step": 1}, tmp_path / "state.pt")

    assert verified_torch_load(tmp_path / "state.pt") == {"step": 1}


@pytest.mark.process
def test_a_kill_before_after_or_within_any_step_leaves_a_file_that_proves_to_be_the_old_or_the_new_one(
    tmp_path: Path,
) -> None:
    def counted(base: Path, at: int = 0, mode: str = "after") -> list[str]:
        steps = Steps(base, at, mode)
        atomic_torch_save({"step": 2}, base / "state.pt")
        return steps.names

    def prepared(name: str) -> Path:
        base = tmp_path / name
        base.mkdir()
        atomic_torch_save({"step": 1}, base / "state.pt")
        return base

    base = prepared("counted")
    assert forked(lambda: (tmp_path / "steps").write_text(json.dumps(counted(base))), tmp_path / "screen")[1] == 0
    steps = json.loads((tmp_path / "steps").read_text())
    seen = set()
    kills = [(at, "after") for at in range(1, len(steps) + 1)]
    kills += [(at, "half") for at, name in enumerate(steps, 1) if name == "write"]
    for at, mode in [(1, "before"), *kills]:
        base = prepared(f"{mode}{at}")
        _, status = forked(lambda base=base, at=at, mode=mode: counted(base, at, mode), tmp_path / "screen")
        assert os.WIFSIGNALED(status)
        seen.add(verified_torch_load(base / "state.pt")["step"])
        for path in base.glob(".*"):
            os.utime(path, (1, 1))  # time passes
        atomic_torch_save({"step": 3}, base / "state.pt")
        assert names(base) == ["state.pt"], (at, steps[at - 1])
        assert verified_torch_load(base / "state.pt") == {"step": 3}

    assert len(kills) >= 3
    assert seen == {1, 2}


@pytest.mark.process
def test_a_first_file_killed_at_any_step_is_not_there_or_whole(tmp_path: Path) -> None:
    for at in range(1, 9):
        base = tmp_path / str(at)
        base.mkdir()

        def save(base=base, at=at):
            Steps(base, at, "after")
            atomic_torch_save({"step": 1}, base / "state.pt")

        forked(save, tmp_path / "screen")
        if (base / "state.pt").exists():
            assert verified_torch_load(base / "state.pt") == {"step": 1}
        atomic_torch_save({"step": 2}, base / "state.pt")
        assert verified_torch_load(base / "state.pt") == {"step": 2}
