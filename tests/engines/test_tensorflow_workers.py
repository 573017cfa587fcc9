"""Two workers of MultiWorkerMirroredStrategy: they stop at one step, save together, and go on to the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.toyrun import PYTHONPATH, ROOT
from support.training_parent import TrainingParent

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]

PROGRAM = ROOT / "tests" / "support" / "keras_workers.py"
TWO = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})


def run_by_snakemake(folder: Path) -> None:
    """One segment of two workers, as a user would start it."""
    settings = {"script": str(PROGRAM), "goal": 3, "workers": 2}
    run = {"engine": "tensorflow", "segments": 1, "segment_minutes": 30, "settings": settings}
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"demo": run}}))
    snakemake = Path(sys.executable).with_name("snakemake")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [str(snakemake), "-s", str(ROOT / "Snakefile"), "--cores", "1"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_workers_stopped_and_killed_end_as_two_that_were_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_by_snakemake(tmp_path)
    whole = tmp_path / "results" / "demo" / "final"
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    arguments = ["--signals", "5", "--saves-every", "3"]
    pieces = TrainingParent(
        tmp_path / "pieces", PROGRAM.read_text(), arguments, ranks=2, launcher_words=("--tf-config",)
    )
    codes = [pieces.run()]
    pieces.arguments = ["--dies-at", "15", "--saves-every", "4"]
    codes.append(pieces.run())
    pieces.arguments = []
    codes.append(pieces.run())

    assert codes == [85, 137, 0], pieces.log
    # Steps 3, 5, 8 and 12; the fourth is the best value, at the end of the epoch.
    assert [handover["done"] for handover in pieces.handovers[:5]] == pytest.approx([0.375, 0.625, 1, 1, 1.5])
    assert pieces.result()["final/weights.npz"] == (whole / "weights.npz").read_bytes()
    assert pieces.result()["final/metrics.csv"] == (whole / "metrics.csv").read_bytes()
    assert (whole / "model.keras").is_file()
    # What the other worker writes because TensorFlow wants it to is gone.
    assert list(pieces.root.glob("desk-*/save/worker-*")) == []


def test_the_workers_share_each_batch_and_every_sample_is_taken_once() -> None:
    import tensorflow as tf

    from unbroken.training.tensorflow.data import array_data
    from unbroken.training.tensorflow.workers import Workers

    def numbers(rank: int, size: int) -> list[list[int]]:
        data = array_data((tf.range(13),), 3, Workers(rank, size), batch_size=5)
        return [batch.numpy().tolist() for batch in data.stream(0, 0, epochs=1)]

    whole, first, second = numbers(0, 1), numbers(0, 2), numbers(1, 2)
    assert [batch[0::2] for batch in whole] == first
    assert [batch[1::2] for batch in whole] == second
    assert sorted(number for batch in first + second for number in batch) == list(range(13))


def test_a_last_batch_with_too_few_samples_for_all_workers_is_refused() -> None:
    from unbroken.training.tensorflow.data import array_data
    from unbroken.training.tensorflow.workers import Workers

    with pytest.raises(ValueError, match="the last batch of an epoch has 1 samples for 2 workers, allowed: one for ea"):
        array_data(([0] * 11,), 3, Workers(0, 2), batch_size=5)


def test_a_model_that_was_not_made_for_the_workers_is_refused() -> None:
    import tensorflow as tf
    from support.keras_pieces import dense_model

    from unbroken.errors import SegmentError
    from unbroken.training.tensorflow.workers import Workers

    with tf.distribute.MultiWorkerMirroredStrategy().scope():  # made before TF_CONFIG was there
        lone = dense_model()

    with pytest.raises(SegmentError, match=r"names 2 workers, and the model was not made for them; type: with multi_w"):
        Workers.of([dense_model()], {"TF_CONFIG": TWO})
    with pytest.raises(SegmentError, match="2 workers have 1 devices, allowed: one each"):
        Workers.of([lone], {"TF_CONFIG": TWO})


def test_what_several_workers_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.keras_pieces import Pieces, dense_model

    from unbroken.errors import CheckpointError, SegmentError
    from unbroken.training.keras import UnbrokenCallback
    from unbroken.training.tensorflow import Training
    from unbroken.training.tensorflow.workers import Workers

    alone = Pieces(tmp_path / "alone", monkeypatch)
    alone.attempt([3])
    monkeypatch.setenv("UNBROKEN_SAVE", "")
    monkeypatch.setattr(Workers, "of", lambda models: Workers(0, 2))

    with (
        monkeypatch.context() as told,
        pytest.raises(
            ValueError,
            match=r"names 2 workers, and fit of Keras 3\S+ fails with more than one; allowed: a loop of y",
        ),
    ):
        told.setenv("TF_CONFIG", TWO)
        UnbrokenCallback()
    with pytest.raises(SegmentError, match="2 workers cannot keep a folder of their own; start them by a workflow"):
        Training({"model": dense_model()}, folder=tmp_path / "kept")
    monkeypatch.setenv("UNBROKEN_SAVE", str(tmp_path))
    monkeypatch.setenv("UNBROKEN_RESUME", str(alone.latest))
    with pytest.raises(CheckpointError, match="made by 1 workers, and there are 2; allowed: as many"):
        Training({"model": dense_model()})
