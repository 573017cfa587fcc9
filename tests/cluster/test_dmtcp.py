"""A program under DMTCP in segments on a real cluster: the stand-in, or the real one that UNBROKEN_DMTCP names."""

import shutil
import sys

import pytest
from support.dmtcp_here import PROGRAMS
from support.workdir import ROOT, WorkDir

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0
STEPS = 600

pytestmark = pytest.mark.slow


def test_jobs_on_the_cluster_bring_a_program_to_its_end_as_one_run_would(slurm_work: WorkDir) -> None:
    shutil.copyfile(ROOT / "examples" / "dmtcp" / "orbit.py", slurm_work.root / "orbit.py")
    settings = {"command": [sys.executable, "orbit.py", STEPS, 0.05], "inputs": ["orbit.py"], "dmtcp": str(PROGRAMS)}
    run = {"engine": "dmtcp", "enter": [], "settings": settings, "save_minutes": 0.1}
    slurm_work.configure(
        {
            "pieces": {**run, "segments": 20, "segment_minutes": 0.35},
            "whole": {**run, "segments": 1, "segment_minutes": 8},
        }
    )

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    pieces, whole = (slurm_work.places(name) for name in ("pieces", "whole"))
    # On a busy machine the images of a segment may not be written in time, and the next attempt does it.
    settled = {attempt.kind for attempt in slurm_work.history("pieces") if attempt.kind.settles}
    assert settled == {EndKind.PAUSED, EndKind.FINISHED}
    assert len({attempt.slurm_job for attempt in slurm_work.history("pieces")}) >= 2
    assert (pieces.final / "orbit.csv").read_bytes() == (whole.final / "orbit.csv").read_bytes()
