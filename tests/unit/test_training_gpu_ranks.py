"""Two ranks on one GPU: NCCL refuses that, so they talk by gloo, which then has the tensors of the GPU alone."""

import signal
from pathlib import Path

import pytest
from support import ranks_program
from support.gpu import DEVICE, EXACT
from support.training_parent import TrainingParent

pytest.importorskip("torch", reason="missing: torch (pip install torch)")

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("training_gpu_ranks")]

TEXT = Path(ranks_program.__file__).read_text()
BESIDE = Path(ranks_program.__file__).with_name("ranks_beside.py").read_text()
KINDS = ["ddp", "fsdp"]


class GpuRanks(TrainingParent):
    """Two ranks whose sums are the same in each process."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **EXACT}


def ranks(folder: Path, *arguments: object, text: str = TEXT) -> GpuRanks:
    return GpuRanks(folder, text, [*map(str, arguments), "--device", DEVICE], ranks=2)


def files_of(parent: GpuRanks) -> dict[str, bytes]:
    """All but the one file into which torch writes a new identifier at each save."""
    return {name: data for name, data in parent.result().items() if name != "shards/.metadata"}


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GpuRanks:
    parent = ranks(tmp_path_factory.mktemp("whole") / "run", request.param)
    parent.run_to_the_end()
    assert parent.codes == [0], parent.log
    return parent


def test_a_stop_of_two_ranks_changes_no_byte_of_the_result(whole: GpuRanks, tmp_path: Path) -> None:
    pieces = ranks(tmp_path / "run", whole.arguments[0], "--signals", 8)

    pieces.run_to_the_end()

    assert pieces.codes == [85, 0], pieces.log
    assert files_of(pieces) == files_of(whole)


def test_a_rank_that_dies_in_a_save_beside_the_training_costs_that_save(
    whole: GpuRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ranks(tmp_path / "run", whole.arguments[0], "--beside", 4, text=BESIDE + TEXT)
    monkeypatch.setenv("RANKS_MISHAP", "dies")
    parent.run()
    before = len(parent.handovers)
    monkeypatch.delenv("RANKS_MISHAP")
    parent.run_to_the_end()

    assert parent.codes[0] not in (0, 85, -signal.SIGUSR1), parent.log
    assert before >= 1
    assert parent.codes[-1] == 0
    assert files_of(parent) == files_of(whole)
