"""FSDP2 on the CPU with `Training`: two gloo ranks resume bit for bit, and one and four take over their state."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from support import fsdp2  # noqa: E402

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("training_fsdp2")]
PROGRAM = Path(__file__).parents[1] / "support" / "fsdp2_program.py"


def run(folder: Path, ranks: int, *options: object) -> int:
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [*launcher, str(PROGRAM), str(folder), *map(str, options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    print(done.stdout, done.stderr)
    return done.returncode


def rows(folder: Path, kind: str, rank: int = 0) -> list[str]:
    """What a rank has written down of all its processes, without what was trained again after a kill."""
    return [line.split(" ", 1)[1] for line in (folder / f"states-{rank}").read_text().splitlines() if kind in line]


def trained(folder: Path) -> dict[int, str]:
    """What the state was after each step; a step that was trained again gave the same."""
    found: dict[int, str] = {}
    for row in rows(folder, "trained"):
        assert found.setdefault(int(row.split()[1]), row) == row
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fsdp2.require_on_the_cpu()
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder, 2) == 0
    return folder


@pytest.fixture(scope="module")
def stopped(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that stop in the middle of the second epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    assert run(folder, 2, "at", 7, signal.SIGTERM) != 0
    return folder


def copied(folder: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", str(folder), str(target)], check=True)
    return target


def test_two_ranks_that_are_killed_and_stopped_give_the_bits_of_one_piece(whole: Path, tmp_path: Path) -> None:
    assert run(tmp_path, 2, "at", 6, signal.SIGKILL) != 0
    assert run(tmp_path, 2, "at", 9, signal.SIGTERM) != 0
    assert run(tmp_path, 2) == 0

    assert [row.split()[0] for row in rows(tmp_path, "loaded")] == ["0", "5", "10"]  # ranks agree a step later
    assert trained(tmp_path) == trained(whole)


def test_the_comparison_sees_a_restore_that_loses_the_state_of_the_optimizer(
    whole: Path, stopped: Path, tmp_path: Path
) -> None:
    folder = copied(stopped, tmp_path / "broken")
    assert run(folder, 2, "broken") == 0

    assert trained(folder) != trained(whole)


def test_sharded_tensors_are_saved_by_torch_distributed_checkpoint_alone(stopped: Path) -> None:
    checkpoint = (stopped / "checkpoints" / "latest").resolve()
    state = torch.load(checkpoint / "state.pt", weights_only=True)["parts"]

    assert {path.name for path in (checkpoint / "shards").iterdir()} == {".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert not any(isinstance(value, torch.Tensor) for value in state["model"].values())


@pytest.mark.parametrize("ranks", [1, 4])
def test_another_number_of_ranks_takes_over_every_bit_and_every_sample(
    ranks: int, stopped: Path, tmp_path: Path
) -> None:
    folder = copied(stopped, tmp_path / "resharded")
    begun = [row for row in rows(folder, "trained") if row.split()[0] == "1"]
    (folder / "states-1").rename(folder / "states-of-two")
    assert run(folder, ranks) == 0

    (_, _), (step, state) = (row.split() for row in rows(folder, "loaded"))
    assert int(step) == 8 and state == trained(stopped)[8].split()[2]
    of_two = [ast.literal_eval(row.split(" ", 3)[3]) for row in begun]
    of_two += [ast.literal_eval(row.split(" ", 4)[4]) for row in _second_epoch(folder / "states-of-two")]
    rest = [samples for rank in range(ranks) for samples in _after(folder, rank, 8)]
    assert sorted(index for samples in of_two + rest for index in samples) == list(range(40))


def _second_epoch(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("trained 1 ")]


def _after(folder: Path, rank: int, step: int) -> list[list[int]]:
    found = [row.split(" ", 3) for row in rows(folder, "trained", rank)]
    return [ast.literal_eval(row[3]) for row in found if row[0] == "1" and int(row[1]) > step]
