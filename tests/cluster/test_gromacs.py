"""GROMACS whose ranks are started by `srun`, on a real cluster: as the engine's page says it."""

from pathlib import Path

import pytest
from support import gmx_systems
from support.workdir import WorkDir

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("gromacs", "openmpi-bin", "libpmix-dev"),
    pytest.mark.usefixtures("pmix"),
]


def test_srun_starts_the_ranks_of_each_segment_and_the_chain_equals_the_whole(
    slurm_work: WorkDir, tmp_path: Path
) -> None:
    # More steps than any machine makes in a segment, which only its time can end: srun kills its ranks when it is told.
    tpr = str(gmx_systems.water_tpr("for_srun", nsteps=10_000_000))
    launcher = ["srun", "--mpi=pmix", "-n", "{ranks}"]
    settings = {"tpr": tpr, "gmx": "gmx_mpi", "tools": "gmx", "launcher": launcher, "ranks": 2, "exact": True}
    run = {"engine": "gromacs", "tasks": 2, "enter": [], "settings": settings}
    # Ranks that wait must not keep the others from working, where cores are few.
    slurm_work.added_environment = {**slurm_work.added_environment, "OMPI_MCA_mpi_yield_when_idle": "1"}

    slurm_work.configure({"pieces": {**run, "segments": 1, "segment_minutes": 0.75}})
    paused = slurm_work.start().wait(PATIENCE_SECONDS)
    to_the_end = {**run, "settings": {**settings, "goal": slurm_work.saved("pieces") + 1000}, "segment_minutes": 9}
    slurm_work.configure({"pieces": {**to_the_end, "segments": 2}, "whole": {**to_the_end, "segments": 1}})
    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert (paused.code, done.code) == (0, 0), paused.text + done.text
    pieces, whole = (slurm_work.places(name) for name in ("pieces", "whole"))
    outcomes = [attempt.kind for attempt in slurm_work.history("pieces")]
    assert outcomes == [EndKind.PAUSED, EndKind.FINISHED]
    assert "Using 2 MPI processes" in (whole.final / "md.log").read_text()
    for name in ("md.xtc", "md.gro"):
        assert (pieces.final / name).read_bytes() == (whole.final / name).read_bytes()
