"""Saves of a Keras training that are written while it goes on."""

import threading

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]


class Late:
    """Holds a save beside the training back until a step is done."""

    def __init__(self, step):
        self.step, self.may_write, self.calls = step, threading.Event(), []

    def callback(self):
        import keras

        return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: self.look(batch))

    def look(self, batch):
        if batch + 1 == self.step:
            self.may_write.set()

    def around(self, write):
        def held_back(*arguments):
            is_beside = threading.current_thread() is not threading.main_thread()
            self.calls.append("beside" if is_beside else "in the training")
            if is_beside:
                assert self.may_write.wait(250)
            write(*arguments)

        return held_back


@pytest.fixture
def late(monkeypatch):
    from unbroken.training.tensorflow import rank_checkpoint

    late = Late(step=8)
    monkeypatch.setattr(rank_checkpoint, "write", late.around(rank_checkpoint.write))
    return late


def every(steps, in_background):
    from unbroken.training.tensorflow import Saves

    return Saves(steps=steps, in_background=in_background)


def values(folder):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder / "state"))
    names = [name for name in sorted(reader.get_variable_to_shape_map()) if not name.startswith("_")]
    return {name: reader.get_tensor(name).tolist() for name in names}


def test_a_save_beside_the_training_holds_all_of_its_moment(pieces, late):
    """It is written three steps later, when each variable has another value."""
    plain = pieces("plain", goal=1, saves=every(5, False))  # once in 8 steps, however soon it is written
    beside = pieces("beside", goal=1, saves=every(5, True), callbacks=lambda: [late.callback()])
    assert plain.attempt() == 0
    before = len(late.calls)
    assert beside.attempt() == 0

    assert late.calls[before:][:2] == ["beside", "in the training"]
    assert [work.progress(0)["done"] for work in (plain, beside)] == [0.625, 0.625]
    assert values(beside.handovers[0]) == values(plain.handovers[0]) != values(plain.latest)
    assert values(beside.latest) == values(plain.latest)


def test_a_training_that_leaves_waits_for_the_save_beside_it_and_goes_on_from_its_own_last(pieces, late):
    late.step = 4
    whole = pieces("whole", goal=1)
    cut = pieces("cut", goal=1, saves=every(3, True), callbacks=lambda: [late.callback()])
    assert whole.attempt() == 0
    assert cut.attempt([4]) == 85
    first, second = cut.handovers
    assert cut.attempt() == 0

    assert late.calls[1:3] == ["beside", "in the training"]
    assert values(first) != values(second)
    assert cut.variables() == whole.variables()


def test_what_goes_wrong_beside_the_training_is_raised_in_it(pieces, monkeypatch):
    from unbroken.training.tensorflow import rank_checkpoint

    def fail(*arguments):
        raise OSError("no room")

    monkeypatch.setattr(rank_checkpoint, "write", fail)

    with pytest.raises(OSError, match="no room"):
        pieces("failing", goal=1, saves=every(3, True)).attempt()


def test_without_memory_for_another_copy_saves_stop_the_training(pieces, monkeypatch, capfd):
    from unbroken.training.tensorflow import writer as tensorflow_link

    monkeypatch.setattr(tensorflow_link, "available_bytes", lambda: 10)
    work = pieces("tight", goal=1, saves=every(3, True))

    assert work.attempt() == 0
    assert (
        capfd.readouterr().out.count(
            "no async checkpoints, saves stop the training: not enough free memory for 0 MB more"
        )
        == 1
    )


def test_the_last_save_of_a_process_is_read_again(pieces, monkeypatch):
    from unbroken.errors import CheckpointError
    from unbroken.training.tensorflow import rank_checkpoint

    write = rank_checkpoint.write

    def flip(state, folder, workers):
        write(state, folder, workers)
        path = next(folder.glob("state.data-*"))
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(rank_checkpoint, "write", flip)
    work = pieces("flipped", goal=1)

    with pytest.raises(CheckpointError, match="reads back differently from what was written; check the disk: "):
        work.attempt([3])
    assert work.handovers == []
