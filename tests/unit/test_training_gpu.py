"""What only a GPU shows: snapshots that lie in host memory, its streams, spread tensors under NCCL."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gpu import DEVICE

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import distributed  # noqa: E402

from unbroken.training.torch import rank_checkpoint  # noqa: E402
from unbroken.training.torch import state as torch_state  # noqa: E402
from unbroken.training.torch.snapshot import SnapshotBuffer  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(DEVICE != "cuda", reason="looks into the GPU itself")]

WIDTH = 100_000
# Of the GPU's clock, a tenth of a second or more: so long it has not yet done what it was told.
BUSY_CYCLES = 200_000_000


def test_a_snapshot_of_a_gpu_is_of_one_moment_and_lies_in_the_memory_of_the_host() -> None:
    model = torch.nn.Linear(WIDTH, 100, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, WIDTH, device="cuda")).sum().backward()
    optimizer.step()
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    expected = model.weight.detach().cpu().clone()

    buffer = SnapshotBuffer()
    copy = buffer.take(torch_state.canonical(parts, "state"))
    optimizer.step()
    buffer.wait()

    assert copy["model"]["weight"].is_pinned()
    assert torch.equal(copy["model"]["weight"], expected)
    assert not torch.equal(model.weight.cpu(), expected)


def test_a_clone_made_on_another_stream_is_complete_before_it_is_written() -> None:
    """A view that negates is no plain memory, so it is cloned on the GPU."""
    ones = torch.ones(WIDTH, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY_CYCLES)
        value = torch._neg_view(ones + 6)
        buffer = SnapshotBuffer()
        copy = buffer.take({"value": value})
    read: list[torch.Tensor] = []

    def write() -> None:
        buffer.wait()
        read.append(copy["value"].cpu())

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()

    assert torch.equal(read[0], torch.full((WIDTH,), -7.0))


@pytest.fixture
def alone_on_nccl(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone_on_nccl")
def test_a_copy_in_host_memory_of_a_spread_model_is_whole_at_the_end() -> None:
    """It lies in host memory, and a mesh of GPUs gathers there nothing."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(5, 3, device="cuda")
    expected = model.weight.detach().cpu().clone()
    fully_shard(model)
    copy = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}

    whole = rank_checkpoint.whole(copy)

    assert whole["weight"].device.type == "cpu"
    assert torch.equal(whole["weight"], expected)
