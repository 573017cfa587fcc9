"""Two TensorFlow workers on two nodes of a real cluster: launchers that find each other, and go on from one step."""

import pytest
from support.toyrun import PYTHONPATH
from support.workdir import ROOT, WorkDir

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 900.0
PROGRAM = ROOT / "tests" / "support" / "keras_workers.py"

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def test_workers_on_two_nodes_train_in_pieces_what_two_on_one_node_train_at_once(slurm_work: WorkDir) -> None:
    run = {"engine": "tensorflow", "segments": 3, "segment_minutes": 8}
    settings = {"script": str(PROGRAM), "goal": 2}
    slurm_work.added_environment["PYTHONPATH"] = PYTHONPATH
    slurm_work.configure(
        {
            "pieces": {**run, "tasks": 2, "nodes": 2, "settings": {**settings, "args": ["--signals", 5]}},
            "whole": {**run, "settings": {**settings, "workers": 2}},
        }
    )

    done = slurm_work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    pieces, whole = (slurm_work.places(name) for name in ("pieces", "whole"))
    outcomes = {name: [attempt.kind for attempt in slurm_work.history(name)] for name in ("pieces", "whole")}
    assert outcomes == {"pieces": [EndKind.PAUSED, EndKind.FINISHED], "whole": [EndKind.FINISHED]}
    for name in ("weights.npz", "metrics.csv"):
        assert (pieces.final / name).read_bytes() == (whole.final / name).read_bytes()
