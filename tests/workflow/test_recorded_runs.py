"""Runs that an earlier version left half done, as they lay on its disk, go on to the bytes that it would have come to.

Recorded before the project was renamed and its modules moved: the toy, a shell script, PyTorch, TensorFlow and GROMACS.
Each has come to an end of its first segment and computes in whole numbers, so that its bytes are the same on every
machine; GROMACS does not, and of it the times in the table of energies are compared.  DMTCP's images belong to the
machine that made them.
"""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from support.workdir import ROOT, WorkDir

RECORDED = ROOT / "tests" / "recorded"
RUN = "count"


@pytest.fixture
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> WorkDir:
    with tarfile.open(RECORDED / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path / "work", filter="data")
    return WorkDir(tmp_path / "work", words=("--cores", "1"))


def digests(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.parametrize(
    "recorded",
    [
        "toy",
        "command",
        "torch",
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
    indirect=True,
)
def test_a_run_of_an_earlier_version_goes_on_to_the_same_bytes(
    recorded: WorkDir, request: pytest.FixtureRequest
) -> None:
    engine = request.node.callspec.params["recorded"]
    if engine == "torch":
        pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    expected = json.loads((RECORDED / f"{engine}.json").read_text())
    (first,) = recorded.history(RUN)
    began = (recorded.places(RUN).checkpoints / "latest").resolve().name

    done = recorded.snakemake()

    assert done.code == 0, done.text
    assert f"resuming from results/{RUN}/checkpoints/{began} " in done.text
    assert recorded.history(RUN)[0] == first
    assert digests(recorded.places(RUN).final, list(expected)) == expected
    assert len(expected) > 0


@pytest.mark.needs("gromacs")
@pytest.mark.parametrize("recorded", ["gromacs"], indirect=True)
def test_a_simulation_of_an_earlier_version_goes_on(recorded: WorkDir) -> None:
    expected = json.loads((RECORDED / "gromacs.json").read_text())
    began = (recorded.places(RUN).checkpoints / "latest").resolve().name

    done = recorded.snakemake()

    assert done.code == 0, done.text
    assert f"resuming from results/{RUN}/checkpoints/{began} " in done.text
    rows = (recorded.places(RUN).final / "energy.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == expected["times"]
    assert (recorded.places(RUN).final / "md.xtc").stat().st_size > 0
