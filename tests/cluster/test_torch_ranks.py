"""A training on several nodes of a real cluster: launchers that find each other, ranks that stop and go on together."""

import pytest
from support.workdir import ROOT, WorkDir

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0

pytestmark = pytest.mark.slow


def test_ranks_on_two_nodes_train_in_pieces_what_they_train_at_once(slurm_work: WorkDir) -> None:
    script = ROOT / "examples" / "torch_ddp" / "train.py"
    run = {"engine": "torch", "tasks": 2, "nodes": 2, "threads": 1, "save_minutes": 0.1}
    settings = {"script": str(script), "goal": 6}
    slurm_work.configure(
        {
            "pieces": {
                **run,
                "segments": 40,  # beside load, a segment is a tenth of an epoch
                "segment_minutes": 0.5,
                "settings": {**settings, "args": ["--pause-seconds", 0.2]},
            },
            "whole": {**run, "segments": 1, "segment_minutes": 8, "settings": settings},
        }
    )

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    pieces, whole = (slurm_work.places(name) for name in ("pieces", "whole"))
    outcomes = [attempt.kind for attempt in slurm_work.history("pieces")]
    assert len(outcomes) >= 2
    assert outcomes == [EndKind.PAUSED] * (len(outcomes) - 1) + [EndKind.FINISHED]
    for name in ("model.pt", "metrics.csv"):
        assert (pieces.final / name).read_bytes() == (whole.final / name).read_bytes()
