"""How many bytes of mdrun's files count at a checkpoint: as many as mdrun itself wrote into it, in a recording."""

import json
import tarfile
from pathlib import Path

import pytest

from unbroken.engines.gromacs.cpt import _TAIL_BYTES, _outputs_without_part, read_cpt
from unbroken.engines.gromacs.cut import bytes_before, frames_of
from unbroken.errors import CheckpointError

RECORDED = Path(__file__).parents[1] / "recorded" / "gromacs.tar.gz"
DT_PS = 0.002


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

    parts = checkpoints[0] / "parts"
    found = {name: bytes_before(parts / name, Path(name).suffix, step, step * DT_PS, DT_PS) for name in counted}

    assert found == counted
    assert found["md.part0001.edr"] < (parts / "md.part0001.edr").stat().st_size  # its last frame came behind


def test_frames_are_told_by_their_steps(checkpoints: list[Path]) -> None:
    parts = checkpoints[0] / "parts"

    assert [frame.step for frame in frames_of(parts / "md.part0001.xtc", ".xtc")] == [0, 5000, 10000]
    assert [frame.step for frame in frames_of(parts / "md.part0001.edr", ".edr")] == [*range(0, 10001, 1000), 10200]


def test_the_rows_of_a_table_are_told_by_their_times(tmp_path: Path) -> None:
    table = tmp_path / "md_pullx.part0001.xvg"
    head, rows = "# gmx\n@ title\n", [f"{step * DT_PS:.4f}\t0.5\n" for step in range(0, 100, 10)]
    table.write_text(head + "".join(rows) + "0.2")  # torn

    assert bytes_before(table, "_pullx.xvg", 50, 50 * DT_PS, DT_PS) == len(head + "".join(rows[:5]))
    assert bytes_before(table, "_pullx.xvg", 100, 100 * DT_PS, DT_PS) == len(head + "".join(rows))


def test_what_is_none_of_mdrun_s_is_refused(tmp_path: Path, checkpoints: list[Path]) -> None:
    (tmp_path / "md.xtc").write_bytes(b"nothing at all")

    with pytest.raises(CheckpointError, match=r"md\.xtc: no \.xtc of mdrun"):
        bytes_before(tmp_path / "md.xtc", ".xtc", 5, 0.01, DT_PS)
    with pytest.raises(CheckpointError, match=r"md\.part0001\.log: has no checkpoint of step 77"):
        bytes_before(checkpoints[0] / "parts" / "md.part0001.log", ".log", 77, 0.154, DT_PS)


def test_the_list_of_outputs_is_found_without_the_number_of_a_part(checkpoints: list[Path]) -> None:
    for folder in checkpoints:
        tail = (folder / "md.cpt").read_bytes()[-_TAIL_BYTES:]

        assert _outputs_without_part(tail) == read_cpt(folder / "md.cpt").outputs
