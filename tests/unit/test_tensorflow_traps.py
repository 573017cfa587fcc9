"""What Keras's and TensorFlow's own ways lose between two starts, shown on them, and that `Training` does not lose it.

Should one of these fail after an update of TensorFlow, the way is mended there: change docs/engines/tensorflow.md.
"""

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]


def plain_fit(model, epochs=1, callbacks=(), **options):
    from support.keras_pieces import FEATURES, TARGETS

    model.fit(
        FEATURES, TARGETS, batch_size=5, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks], **options
    )


def seeds_of_dropout(model):
    return model.layers[2].seed_generator.state


def total(variables):
    return sum(abs(variable.numpy()).sum() for variable in variables)


def test_checkpoints_of_a_model_lose_the_seeds_of_dropout_and_ours_do_not(pieces, tmp_path):
    import tensorflow as tf
    from support.keras_pieces import dense_model

    saved, fresh = dense_model(), dense_model()
    plain_fit(saved, steps_per_epoch=3)
    before = seeds_of_dropout(fresh).numpy().tolist()
    path = tf.train.Checkpoint(model=saved, optimizer=saved.optimizer).write(str(tmp_path / "plain"))
    tf.train.Checkpoint(model=fresh, optimizer=fresh.optimizer).read(path).assert_existing_objects_matched()
    whole, cut = pieces("whole", goal=1), pieces("cut", goal=1)
    codes = [whole.attempt(), *cut.in_pieces(3)]

    assert seeds_of_dropout(fresh).numpy().tolist() == before != seeds_of_dropout(saved).numpy().tolist()
    assert codes == [0, 85, 0]
    assert cut.left() == whole.left()


def test_backup_and_restore_trains_batches_again_and_ours_none(pieces, tmp_path):
    import keras
    from support.keras_pieces import BATCHES, dense_model

    class Killed(BaseException):
        pass

    def die(batch, logs):
        if batch == 5:
            raise Killed

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=4)

    with pytest.raises(Killed):
        plain_fit(dense_model(), epochs=2, callbacks=[backup(), keras.callbacks.LambdaCallback(on_train_batch_end=die)])
    plain = dense_model()
    plain_fit(plain, epochs=2, callbacks=[backup()])
    ours = pieces("ours", goal=2)
    codes = ours.in_pieces(5)

    assert int(plain.optimizer.iterations) == 4 + 2 * BATCHES
    assert codes == [85, 0]
    assert ours.notes()["position"]["step"] == 2 * BATCHES


def test_a_weights_file_gives_no_optimizer_back_and_ours_does(pieces, tmp_path):
    from support.keras_pieces import dense_model

    saved, loaded = dense_model(), dense_model()
    plain_fit(saved, steps_per_epoch=3)
    saved.save_weights(tmp_path / "plain.weights.h5")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded.load_weights(tmp_path / "plain.weights.h5")
    ours = pieces("ours", goal=1)
    ours.attempt([3])
    seen = {}
    ours.train = lambda work, signals: seen.update(training=work.training())
    ours.attempt()

    assert [int(model.optimizer.iterations) for model in (saved, loaded)] == [3, 0]
    assert int(seen["training"].model.optimizer.iterations) == 3
    assert total(seen["training"].model.optimizer.variables[2:]) > 0


def test_variables_of_an_optimizer_that_is_built_later_stay_empty_and_ours_are_built_before(pieces, tmp_path):
    import keras
    import tensorflow as tf
    from support.keras_pieces import dense_model

    def variables(model):
        return [variable.value for variable in model.optimizer.variables]

    saved, fresh = dense_model(), dense_model()
    plain_fit(saved, steps_per_epoch=3)
    path = tf.train.Checkpoint(optimizer=variables(saved)).write(str(tmp_path / "plain"))
    tf.train.Checkpoint(optimizer=variables(fresh)).read(path).assert_existing_objects_matched()
    fresh.optimizer.build(fresh.trainable_variables)
    ours = pieces("ours", goal=1)
    training = ours.training(other=(other := keras.optimizers.Adam()))

    assert int(fresh.optimizer.iterations) == 3
    assert total(saved.optimizer.variables[2:]) > 0 == total(fresh.optimizer.variables[2:])
    assert training.model.optimizer.built
    assert other.built


def test_a_saved_iterator_goes_on_in_another_order_after_an_epochs_end_and_ours_does_not(pieces, tmp_path):
    import tensorflow as tf
    from support.keras_pieces import BATCHES

    plain = tf.data.Options()
    plain.experimental_optimization.inject_prefetch = False  # its place would depend on a thread of TensorFlow

    def begun():
        tf.random.set_seed(3)
        numbers = tf.data.Dataset.range(43).shuffle(43, seed=1).batch(5).repeat(3)
        return iter(numbers.with_options(plain))

    def differs_after(batches):
        whole = [batch.numpy().tolist() for batch in begun()]
        saved = begun()
        for _ in range(batches):
            next(saved)
        path = tf.train.Checkpoint(iterator=saved).write(str(tmp_path / f"after-{batches}"))
        restored = begun()
        tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
        return [batch.numpy().tolist() for batch in restored] != whole[batches:]

    whole, cut = pieces("whole", goal=2), pieces("cut", goal=2)
    codes = [whole.attempt(), *cut.in_pieces(BATCHES, -1)]

    assert [batches for batches in range(6, 20) if differs_after(batches)] == [9, 18]  # 9 make an epoch
    assert codes == [0, 85, 85, 0]
    assert cut.left() == whole.left()


def test_fit_shuffles_otherwise_at_each_start_or_alike_in_each_epoch_and_ours_by_seed_and_epoch(pieces):
    import keras
    import numpy as np
    import tensorflow as tf

    numbers = np.arange(40.0, dtype="float32")[:, None]

    def orders(seed, epochs=2):
        """Of all numbers in each epoch, as a script sees them that begins with `seed`."""
        seen = []

        class Recorded(keras.Sequential):
            def train_step(self, data):
                seen.append(data[0].numpy().ravel().tolist())
                return super().train_step(data)

        tf.random.set_seed(seed)
        model = Recorded([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
        model.fit(numbers, numbers, batch_size=len(numbers), epochs=epochs, verbose=0)
        return seen

    def ours(epoch, epochs):
        data = training.data(numbers, batch_size=len(numbers))
        return [batch.numpy().ravel().tolist() for batch in data.stream(epoch, 0, epochs)]

    first, second = orders(seed=7)
    unseeded = orders(seed=None) + orders(seed=None)
    training = pieces("ours", goal=2).training()
    whole = ours(0, 2)

    assert first == second != sorted(first)
    assert len({tuple(order) for order in unseeded}) == 4
    assert whole[0] != whole[1]
    assert ours(1, 1) == whole[1:]
