"""GROMACS whose ranks are started by `srun`, on a real cluster: as the engine's page says it."""

from pathlib import Path

import pytest
from support import gmx_systems
from support.workdir import WorkDir

from longhaul.outcome import Outcome

PATIENCE_SECONDS = 600.0

pytestmark = [pytest.mark.slow, pytest.mark.needs("gromacs", "openmpi-bin", "libpmix-dev")]


def test_srun_starts_the_ranks_of_each_segment_and_the_chain_equals_the_whole(
    slurm_work: WorkDir, tmp_path: Path
) -> None:
    tpr = str(gmx_systems.water_tpr("for_srun", nsteps=20_000))
    launcher = ["srun", "--mpi=pmix", "-n", "{ranks}"]
    settings = {"tpr": tpr, "gmx": "gmx_mpi", "tools": "gmx", "launcher": launcher, "ranks": 2, "exact": True}
    run = {"engine": "gromacs", "tasks": 2, "enter": [], "settings": settings}
    slurm_work.configure(
        {
            "pieces": {**run, "segments": 20, "segment_minutes": 0.15},
            "whole": {**run, "segments": 1, "segment_minutes": 8},
        }
    )

    # Ranks that wait must not keep the others from working, where cores are few.
    slurm_work.added_environment = {**slurm_work.added_environment, "OMPI_MCA_mpi_yield_when_idle": "1"}
    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    pieces, whole = (slurm_work.places(name) for name in ("pieces", "whole"))
    assert len(slurm_work.history("pieces")) >= 2
    assert {attempt.outcome for attempt in slurm_work.history("pieces")} == {Outcome.PAUSED, Outcome.FINISHED}
    assert "Using 2 MPI processes" in (whole.final / "md.log").read_text()
    for name in ("md.xtc", "md.gro"):
        assert (pieces.final / name).read_bytes() == (whole.final / name).read_bytes()
