"""Which bytes of mdrun's files are before a checkpoint, and which files it counts: in a recording."""

import json
import tarfile
from pathlib import Path

import pytest

from unbroken.engines.gromacs.cpt import read_cpt
from unbroken.engines.gromacs.frames import bytes_before, frames
from unbroken.errors import CheckpointError

RECORDED = Path(__file__).parents[1] / "recorded" / "gromacs.tar.gz"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints of one mdrun: at step 9400, and at 10,200, where its time was up; the first has the files."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as tar:
        tar.extractall(folder, filter="data")
    return sorted((folder / "results" / "count" / "checkpoints").glob("0*"))


@pytest.mark.parametrize(("number", "step"), [(0, 9400), (1, 10200)])
def test_the_bytes_before_a_checkpoint_are_those_that_mdrun_counted(
    number: int, step: int, checkpoints: list[Path]
) -> None:
    counted = json.loads((checkpoints[number] / "parts" / "offsets.json").read_text())
    cpt = read_cpt(checkpoints[number] / "md.cpt")

    trajectory = "md.part0001.xtc"

    assert cpt.step == step
    assert {output.name: output.size_bytes for output in cpt.outputs} == counted
    assert bytes_before(checkpoints[0] / "parts" / trajectory, step) == counted[trajectory]


def test_frames_are_told_by_their_steps(checkpoints: list[Path]) -> None:
    parts = checkpoints[0] / "parts"

    assert [frame.step for frame in frames(parts / "md.part0001.xtc")] == [0, 5000, 10000]


def test_what_is_none_of_mdrun_s_is_refused(tmp_path: Path, checkpoints: list[Path]) -> None:
    data = (checkpoints[0] / "parts" / "md.part0001.xtc").read_bytes()
    (tmp_path / "md.xtc").write_bytes(b"nothing at all")
    (tmp_path / "twice.xtc").write_bytes(data * 2)

    with pytest.raises(CheckpointError, match=r"md\.xtc: no \.xtc of mdrun"):
        bytes_before(tmp_path / "md.xtc", 5)
    with pytest.raises(CheckpointError, match=r"twice\.xtc: its steps do not count up"):
        bytes_before(tmp_path / "twice.xtc", 5)
