"""A training whose Keras made backups goes on as a run."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.toyrun import checkpoints

from unbroken.engines.found import known_schemas, read_checked_runs
from unbroken.engines.imports import ImportSource
from unbroken.engines.tensorflow.engine import TensorFlowEngine
from unbroken.errors import SegmentError
from unbroken.job.attempt import Job
from unbroken.job.import_export import export_run, import_run
from unbroken.job.lifecycle import run_segment
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import EndKind
from unbroken.store.record import Record

pytestmark = pytest.mark.process

# Nothing is drawn but the first weights, and the order is that of the data.
MODEL = """
import os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import keras, numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
keras.utils.set_random_seed(0)
inputs = np.linspace(0, 1, 512, dtype="float32").reshape(64, 8)
targets = np.linspace(-1, 1, 64, dtype="float32").reshape(64, 1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
model.optimizer.build(model.trainable_variables)
"""
BY_HAND = """
class Dies(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 2):
            os._exit(9)
how_often = int(sys.argv[2]) if sys.argv[2:] else "epoch"
backup = keras.callbacks.BackupAndRestore("backup", save_freq=how_often, delete_checkpoint=False)
callbacks = [backup, Dies()] if sys.argv[1] == "dies" else []
model.fit(inputs, targets, batch_size=16, shuffle=False, epochs=6, callbacks=callbacks, verbose=0)
np.savez("weights.npz", *model.get_weights())
"""
# Asks to stop once, as a run: after 2 of the 4 batches of the third epoch.
STOPS = """
import signal
class Stops(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 1) and "UNBROKEN_STOP" in os.environ:
            os.kill(os.getpid(), signal.SIGUSR1)
"""
TRAINING = """
from unbroken.training.keras import UnbrokenCallback
unbroken = UnbrokenCallback(seed=0)
"""
THREE_LINES = """
if unbroken.imported:
    model.load_weights(unbroken.imported / "latest.weights.h5")
"""
FIT = """
data = unbroken.data(inputs, targets, batch_size=16, shuffle=False)
model.fit(data, epochs=unbroken.goal or 6, callbacks=[unbroken], verbose=0)
"""
SCRIPT = MODEL + TRAINING + THREE_LINES + FIT


def job(base: Path, script: str = SCRIPT, **settings: object) -> Job:
    base.mkdir(exist_ok=True)
    (base / "train.py").write_text(script)
    told = {"script": str(base / "train.py"), "goal": 6, **settings}
    run = {"engine": "tensorflow", "segments": 5, "segment_minutes": 9, "settings": told}
    found = read_checked_runs({"runs": {"demo": run}}, base)[0]
    made = Job(found, known_schemas().engines["tensorflow"].identity, 1, 1, base)
    made.places.log(1).parent.mkdir(parents=True, exist_ok=True)
    return made


def segment(made: Job) -> Record:
    return run_segment(made, TensorFlowEngine(made.base))


def taken(made: Job, source: Path, done: float | None = None) -> Checkpoint:
    return import_run(made, TensorFlowEngine(made.base), ImportSource(source, done))


def by_hand(folder: Path, *words: str) -> Path:
    folder.mkdir()
    (folder / "by_hand.py").write_text(MODEL + BY_HAND)
    subprocess.run([sys.executable, "by_hand.py", *words], cwd=folder, check=False)
    return folder


def weights(path: Path) -> list[bytes]:
    import keras
    import numpy as np

    if path.suffix == ".keras":
        return [array.tobytes() for array in keras.saving.load_model(path).get_weights()]
    with np.load(path) as arrays:
        return [arrays[name].tobytes() for name in sorted(arrays.files)]


@pytest.mark.tensorflow
def test_a_backup_from_the_end_of_an_epoch_goes_on_to_the_weights_of_one_piece(tmp_path: Path) -> None:
    half, whole = by_hand(tmp_path / "half", "dies"), by_hand(tmp_path / "whole", "whole")

    taken(job(tmp_path), half / "backup", done=2)
    record = segment(job(tmp_path))

    assert (record.kind, record.progress.done) == (EndKind.FINISHED, 6)
    assert weights(job(tmp_path).places.final / "model.keras") == weights(whole / "weights.npz")


@pytest.mark.tensorflow
def test_a_script_that_does_not_load_it_is_stopped(tmp_path: Path) -> None:
    half = by_hand(tmp_path / "half", "dies")
    taken(job(tmp_path, MODEL + TRAINING + FIT), half / "backup", done=2)

    with pytest.raises(SegmentError, match=r"does not load it; before epochs or fit type: .*: model\.load_weights"):
        segment(job(tmp_path, MODEL + TRAINING + FIT))

    assert [each.passport.segment for each in checkpoints(job(tmp_path))] == [0]


@pytest.mark.tensorflow
def test_a_run_that_was_stopped_within_an_epoch_goes_on_by_what_is_exported(tmp_path: Path) -> None:
    whole = by_hand(tmp_path / "whole", "whole")
    script = MODEL + STOPS + TRAINING + FIT.replace("[unbroken]", "[Stops(), unbroken]")
    made = job(tmp_path / "run", script)

    record = segment(made)
    export_run(made, TensorFlowEngine(made.base), tmp_path / "out", "")
    subprocess.run([tmp_path / "out" / "resume.sh"], check=True)

    assert (record.kind, record.progress.done) == (EndKind.PAUSED, 2.5)
    assert weights(tmp_path / "out" / "final" / "model.keras") == weights(whole / "weights.npz")
