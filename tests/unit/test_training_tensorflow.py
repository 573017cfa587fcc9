"""A Keras training in pieces is the training as a whole, byte for byte, wherever it is cut."""

import zipfile
from types import SimpleNamespace

import pytest
from support.disks import mount_small, unmount
from support.telling import begin_as_a_new_process

from unbroken.errors import StorageError
from unbroken.store.history import History

pytestmark = [
    pytest.mark.tensorflow,
    # Keras 3.15 with numpy 2, in its own conversion of a variable.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]


class DrawsNoise:
    """A callback whose random numbers end in the weights."""

    def __new__(cls):
        import random

        import keras
        import numpy as np

        class Draws(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                bias = self.model.layers[0].bias
                bias.assign_add(np.full(16, 1e-3 * (random.random() + np.random.rand()), "float32"))

        return Draws()


def whole_and_pieces(pieces, *signals, **options):
    whole, cut = pieces("whole", **options), pieces("pieces", **options)
    assert whole.attempt() == 0
    assert cut.in_pieces(*signals) == [85] * len(signals) + [0]
    return whole, cut


def test_pieces_equal_the_whole_wherever_they_are_cut(pieces):
    """In the middle of an epoch, twice in one, in its last batch (its end is run then), at its end."""
    whole, cut = whole_and_pieces(pieces, 3, 5, 8, -2, 17)

    assert cut.left() == whole.left()


@pytest.mark.parametrize("broken", ["generators", "dropout", "metrics of fit", "callbacks", "position"])
def test_a_broken_restore_is_seen_by_this_comparison(pieces, monkeypatch, broken):
    """The control: each part of the state counts."""
    import keras

    from unbroken.training.core import notes
    from unbroken.training.tensorflow import checkpoint

    def callbacks():
        return [keras.callbacks.EarlyStopping("loss", patience=9), DrawsNoise()]

    whole, cut = pieces("whole", goal=2, callbacks=callbacks), pieces("cut", goal=2, callbacks=callbacks)
    assert [whole.attempt(), cut.attempt([11])] == [0, 85]
    if broken == "generators":
        monkeypatch.setattr(notes, "restore_random", lambda state: None)
    elif broken in ("callbacks", "position"):
        read = notes.read_notes

        def read_otherwise(*arguments):
            kept = read(*arguments)
            forgotten = [(name, {}) for name, _ in kept["callbacks"]]
            elsewhere = {**kept["position"], "batch": 4}
            return {**kept, **({"callbacks": forgotten} if broken == "callbacks" else {"position": elsewhere})}

        monkeypatch.setattr(notes, "read_notes", read_otherwise)
    else:
        put_back = checkpoint.put_back

        def put_back_the_others(groups, folder):
            kept = {name: [(each, each.value.numpy()) for each in group] for name, group in groups.items()}
            put_back(groups, folder)
            for name, group in kept.items():
                for variable, value in group:
                    if name == broken or (broken == "dropout" and "seed" in variable.path):
                        variable.assign(value)

        monkeypatch.setattr(checkpoint, "put_back", put_back_the_others)
    assert cut.attempt() == 0

    assert cut.left() != whole.left()


def test_each_epoch_is_logged_once_and_the_callback_can_be_asked_to_save(pieces):
    import keras

    class Lines:
        def log(self, step, metrics):
            lines.append(step)

        def close(self):
            pass

    class Saves(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ours = next(each for each in work.seen if each.model is self.model)
            asked.append(ours.stop_requested)
            if batch == 4:
                ours.save()

    lines, asked = [], []
    work = pieces("logged", callbacks=lambda: [Saves()], loggers=lambda: [Lines()])
    assert work.in_pieces(3, 12) == [85, 85, 0]

    assert lines == [8, 16, 24]
    assert {round(work.progress(number)["done"] * 8) for number in range(len(work.handovers))} >= {21}
    assert [each.resumed for each in work.seen] == [False, True, True]
    assert work.seen[1].resume == str(work.handovers[0])
    assert len(asked) == 24


def test_mixed_precision_goes_on_with_its_loss_scale(pieces):
    """The scale grows every fourth step here, and a step is left out where it was too large."""
    import keras
    import tensorflow as tf
    from support.keras_pieces import dense_model

    def model():
        inner = keras.optimizers.Adam(0.01)
        scaled = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=2.0**14, dynamic_growth_steps=4)
        return dense_model(scaled)

    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        whole, cut = whole_and_pieces(pieces, 6, goal=2, make_model=model)
    finally:
        keras.mixed_precision.set_global_policy("float32")

    assert cut.left() == whole.left()
    saved = tf.train.load_checkpoint(str(whole.latest / "state"))
    scalars = [saved.get_tensor(name) for name, shape in saved.get_variable_to_shape_map().items() if not shape]
    assert [number for number in scalars if not isinstance(number, bytes) and number >= 2.0**10] != []


def test_averaged_weights_that_fit_puts_in_place_at_its_end_do_not_spoil_a_raised_goal(pieces):
    """With use_ema, the end of fit overwrites the weights by their average: a training that goes on needs its own."""
    import keras
    from support.keras_pieces import dense_model

    def model():
        return dense_model(keras.optimizers.SGD(0.1, use_ema=True))

    whole, cut = pieces("whole", goal=2, make_model=model), pieces("cut", goal=1, make_model=model)
    assert [whole.attempt(), cut.attempt()] == [0, 0]
    cut.goal = 2
    assert cut.attempt() == 0

    assert cut.left() == whole.left()


def test_callbacks_go_on_with_what_they_remember(pieces):
    """The learning rate falls after two epochs without a better value, wherever these are cut."""
    import keras

    def callbacks():
        return [
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=10.0, verbose=0),
            keras.callbacks.EarlyStopping("loss", patience=4, min_delta=10.0),
        ]

    whole, cut = whole_and_pieces(pieces, -1, 20, -3, goal=9, callbacks=callbacks)

    assert cut.left() == whole.left()
    assert cut.history.history == whole.history.history
    assert len(cut.history.history["loss"]) == 5
    assert cut.progress()["is_finished"] is True


def test_a_goal_in_steps_ends_inside_an_epoch_and_a_raised_one_goes_on_from_there(pieces):
    whole, cut = pieces("whole", goal=13, unit="steps"), pieces("cut", goal=11, unit="steps")
    assert whole.attempt() == 0
    assert cut.attempt() == 0
    cut.goal = 13
    assert cut.attempt() == 0

    assert cut.notes()["position"]["step"] == whole.notes()["position"]["step"] == 13
    assert cut.variables() == whole.variables()


def test_several_steps_in_one_execution_are_counted_and_cut_exactly(pieces):
    from functools import partial

    from support.keras_pieces import dense_model

    model = partial(dense_model, steps_per_execution=4)

    whole, cut = whole_and_pieces(pieces, 4, goal=2, make_model=model)

    assert cut.left() == whole.left()
    assert whole.notes()["position"]["step"] == 16


def test_a_loop_of_ones_own_in_pieces_equals_the_whole(pieces):
    """With a generator, a variable and an optimizer of its own, and Python's and numpy's numbers."""
    from support.keras_pieces import own_loop

    whole, cut = pieces("whole", train=own_loop), pieces("cut", train=own_loop)
    assert whole.attempt() == 0
    assert cut.in_pieces(3, 8, 9) == [85, 85, 85, 0]

    assert cut.left() == whole.left()


def test_a_pipeline_of_ones_own_goes_on_in_the_middle(pieces):
    """Shuffled by a seed of its epoch: tf.data's saved iterator would go on in another order at the epoch's end."""
    from support.keras_pieces import piped

    whole, cut = pieces("whole", make_data=piped), pieces("cut", make_data=piped)
    assert whole.attempt() == 0
    assert cut.in_pieces(5, 7, 8) == [85, 85, 85, 0]

    assert cut.left() == whole.left()


def test_a_deadline_that_is_near_ends_the_training_after_a_batch(pieces):
    work = pieces("near", deadline_seconds=0.0)

    assert work.attempt() == 85

    assert work.notes()["position"]["step"] == 1


def test_the_best_value_is_saved_when_it_comes(pieces):
    work = pieces("best", goal=2)

    assert work.attempt() == 0

    assert work.progress(0)["is_best"] is True
    assert work.progress(0)["done"] == 1


def test_whole_models_are_exported_in_three_forms(pieces):
    import keras
    import numpy as np
    import tensorflow as tf
    from support.keras_pieces import FEATURES, own_loop

    work = pieces("export", goal=1, train=own_loop)
    assert work.attempt() == 0
    final = work.latest / "final"

    loaded = keras.saving.load_model(final / "model.keras")
    served = tf.saved_model.load(final / "served")

    assert sorted(path.name for path in final.iterdir()) == [
        *("metrics.csv", "metrics.json", "model.keras", "model.weights.h5", "served", "weights.npz"),
    ]
    assert np.allclose(loaded(FEATURES), served.serve(FEATURES), atol=1e-6)


def test_a_weight_that_is_no_number_ends_the_run_and_saves_nothing_bad(pieces):
    work = pieces("nan", goal=2, spoil=5)
    work.attempt([3])

    with pytest.raises(SystemExit, match=r"hold NaN or infinity, at step 6 in epoch 0"):
        work.attempt([6], is_expected=False)

    assert work.verdict()["verdict"] == "hopeless"
    assert work.notes()["position"]["step"] == 3


def test_a_checkpoint_that_predicts_otherwise_is_rejected(pieces):
    work = pieces("doubt", validate=True)
    work.attempt([3])
    work.change_a_note("trust", lambda trust: {**trust, "prediction": [number + 1 for number in trust["prediction"]]})

    with pytest.raises(SystemExit, match=r"the prediction differs from the one made when it was saved in 4 of 4"):
        work.attempt(is_expected=False)

    assert work.verdict()["verdict"] == "bad_checkpoint"


def test_a_right_prediction_is_accepted(pieces):
    work = pieces("trust", validate=True, goal=1)

    assert work.in_pieces(3) == [85, 0]


def flipped(work):
    path = next(work.latest.glob("state.data-*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_is_found_by_tensorflow_too(pieces):
    from unbroken.errors import CheckpointError

    work = pieces("flip")
    work.attempt([3])
    flipped(work)

    with pytest.raises(
        CheckpointError,
        match=r"cannot be restored; allowed: an intact checkpoint .* Checksum does not match",
    ):
        work.attempt()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"units": 17},
            r"shape \(6, 16\) when attempting to restore variable with shape \(6, 17\) and name seq",
        ),
        ({"plain": True}, r"Unresolved object in checkpoint \(root\).part optimizer of model"),
        ({"batch_size": 8}, "from the middle of an epoch of 8 batches, and the data have 5"),
        ({"own_seed": 4}, "made with seed=3, and the script has 4"),
    ],
)
def test_another_training_than_the_saved_one_is_refused(pieces, change, message):
    from unbroken.errors import CheckpointError

    work = pieces("other")
    work.attempt([3])
    work.change(**change)

    with pytest.raises(CheckpointError, match=message):
        work.attempt()


def test_a_callback_that_cannot_go_on_exactly_is_refused_before_it_begins(pieces):
    import keras
    from support.keras_pieces import dense_model

    work = pieces("refused")
    keeping = pieces("keeping", callbacks=lambda: [keras.callbacks.EarlyStopping(restore_best_weights=True)])
    backup = pieces("backup", callbacks=lambda: [keras.callbacks.BackupAndRestore(str(work.root))])
    odd = pieces("odd", make_model=lambda: dense_model(steps_per_execution=3))

    with pytest.raises(ValueError, match=r"EarlyStopping\(restore_best_weights=True\) keeps weights in memory alone"):
        keeping.attempt()
    with pytest.raises(ValueError, match="BackupAndRestore begins a broken epoch anew"):
        backup.attempt()
    with pytest.raises(ValueError, match="steps_per_execution is 3 with 8 batches an epoch"):
        odd.attempt()
    assert [one.handovers for one in (keeping, backup, odd)] == [[], [], []]


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"steps_per_epoch": 8},
            r"fit\(steps_per_epoch=...\) is without effect here; leave it out, Unbroken",
        ),
        ({"initial_epoch": 1}, r"fit\(initial_epoch=...\) is without effect here"),
        (
            {"class_weight": {0: 1.0, 1: 2.0}},
            r"fit\(class_weight=...\) is without effect here; leave it out, give it",
        ),
        ({"batch_size": 4}, r"fit\(batch_size=...\) is without effect here"),
        ({"shuffle": False}, r"fit\(shuffle=...\) is without effect here"),
        ({"epochs": 2}, r"fit\(epochs=2\), and the goal takes 3; type epochs=unbroken.goal"),
    ],
)
def test_an_argument_of_fit_that_would_be_without_effect_is_refused(pieces, options, message):
    work = pieces("refused", fit_options=options)

    with pytest.raises(ValueError, match=message):
        work.attempt()

    assert work.handovers == []


def test_a_fit_on_other_data_than_its_own_and_a_second_fit_are_refused(pieces):
    from support.keras_pieces import FEATURES, TARGETS, dense_model

    from unbroken.training.keras import UnbrokenCallback

    unbroken, model = UnbrokenCallback(), dense_model()
    with pytest.raises(ValueError, match=r"fit\(\) is given a ndarray, allowed: unbroken.data\(images, labels\)"):
        model.fit(FEATURES, TARGETS, callbacks=[unbroken], verbose=0)
    model.fit(unbroken.data(FEATURES, TARGETS), callbacks=[unbroken], verbose=0)
    with pytest.raises(ValueError, match="called twice with the same UnbrokenCallback"):
        model.fit(unbroken.data(FEATURES, TARGETS), callbacks=[unbroken], verbose=0)


def test_another_backend_another_fit_and_several_devices_are_refused(monkeypatch):
    import keras
    from support.keras_pieces import FEATURES, TARGETS

    from unbroken.training.keras import SET_HERE, WITHOUT_EFFECT, UnbrokenCallback, check_fit

    unbroken, model = UnbrokenCallback(), SimpleNamespace(distribute_strategy=SimpleNamespace(num_replicas_in_sync=2))
    fit = {"x": unbroken.data(FEATURES, TARGETS), **WITHOUT_EFFECT, **SET_HERE}

    with pytest.raises(ValueError, match=r"fit\(\): the model is made for 2 devices, allowed: one"):
        check_fit(fit, [], model)
    with pytest.raises(RuntimeError, match=r"fit of Keras [\d.]+ is not known; type: pip install 'keras>=3.10,<=3.15'"):
        unbroken.on_train_begin()
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Keras runs on jax, allowed: KERAS_BACKEND=tensorflow"):
        UnbrokenCallback()


def test_a_part_that_cannot_be_saved_is_refused():
    import keras
    from support.keras_pieces import dense_model

    from unbroken.training.tensorflow import Training

    with pytest.raises(ValueError, match="'net' is not built"):
        Training({"net": keras.Sequential([keras.layers.Dense(1)])})
    with pytest.raises(TypeError, match=r"Training\(state=...\): 'extra' is a dict, allowed: a Keras model"):
        Training({"model": dense_model(), "extra": {}})
    with pytest.raises(
        TypeError, match=r"Training\(state=...\) is a Sequential, allowed: a dictionary of parts by name"
    ):
        Training(dense_model())
    with pytest.raises(ValueError, match=r"'o' is not built, and there are 2 models; type o.build\(model.trainable"):
        Training({"a": dense_model(), "b": dense_model(), "o": keras.optimizers.Adam()})


def test_without_the_workflow_a_folder_keeps_the_checkpoints(pieces, tmp_path):
    work = pieces("home", goal=2, folder=tmp_path / "kept")

    assert work.in_pieces(3, 12) == [85, 85, 0]

    assert (tmp_path / "kept" / "final" / "model.keras").is_file()
    assert (tmp_path / "kept" / "final" / "metrics.csv").read_text().splitlines()[0].startswith("epoch,step,")
    lines = History(tmp_path / "kept" / "history.jsonl").attempts()
    assert [line.kind.value for line in lines] == ["interrupted", "interrupted", "finished"]
    assert lines[1].from_checkpoint == lines[0].to_checkpoint


def weights_in(path):
    with zipfile.ZipFile(path) as archive:
        return archive.read("model.weights.h5")


def test_a_finished_training_in_a_folder_trains_no_step_again(pieces, tmp_path):
    work = pieces("home", goal=2, folder=tmp_path / "kept")
    assert work.attempt() == 0
    before = weights_in(tmp_path / "kept" / "final" / "model.keras")

    begin_as_a_new_process()
    assert work.attempt() == 0

    assert weights_in(tmp_path / "kept" / "final" / "model.keras") == before
    first, second = History(tmp_path / "kept" / "history.jsonl").attempts()
    assert second.progress_from == second.progress_to == first.progress_to


@pytest.mark.process
def test_a_full_disk_is_one_line_with_the_bytes_that_are_missing(tmp_path):
    import tensorflow as tf

    from unbroken.training.tensorflow.checkpoint import write_variables

    (tmp_path / "disk").mkdir()
    mount_small(tmp_path / "disk", "size=1m")
    try:
        with pytest.raises(StorageError, match=r"No space left on device; 4,000,000 bytes needed, .* missing"):
            write_variables({"part": [tf.Variable(tf.zeros(1_000_000))]}, tmp_path / "disk")
    finally:
        unmount(tmp_path / "disk")
