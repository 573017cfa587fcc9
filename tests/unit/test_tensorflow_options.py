"""Every option of a Keras training does what it says: what if it were ignored?"""

import json

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    # Keras 3.15 with numpy 2, in its own conversion of a variable.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]


def saved_steps(folder):
    """The steps at which there are checkpoints; eight are an epoch."""
    manifests = sorted((folder / "checkpoints").glob("[0-9]*/manifest.json"))
    found = [json.loads(path.read_text())["progress"]["done"] for path in manifests]
    return sorted({round(done * 8) for done in found})


@pytest.fixture
def kept(pieces, tmp_path):
    """Trains in a folder, in pieces with a stop after each of these steps; returns the steps of its checkpoints."""

    def train(name, *stops, **saves):
        from unbroken.training.tensorflow import Saves

        work = pieces(name, folder=tmp_path / f"{name}-kept", saves=Saves(**saves))
        assert work.in_pieces(*stops) == [85] * len(stops) + [0]
        return saved_steps(work.folder)

    return train


def test_fit_saves_every_so_many_steps_of_the_whole_training(kept):
    ends = {8, 16}  # where the metric is better than before

    assert {3, 6, 9, 12, 15, 18, 21, 24} == set(kept("whole", steps=3, keep=99)) - ends
    assert {3, 4, 6, 9, 12, 15, 18, 21, 24} == set(kept("cut", 4, steps=3, keep=99)) - ends


def test_fit_saves_after_so_many_minutes(kept):
    assert kept("often", minutes=1e-6, keep=99) == [*range(1, 25)]
    assert set(kept("never", minutes=1000, keep=99)) <= {8, 16, 24}


def test_fit_keeps_so_many_checkpoints_and_the_milestones(kept):
    best = {8, 16}

    assert set(kept("some", steps=1, keep=4)) - best == {21, 22, 23, 24}
    one, marked = (set(kept(name, steps=1, keep=1, milestone_every=each)) for name, each in [("one", 0), ("marked", 4)])
    assert one - best == {24}
    assert len(marked - best) > 3


def test_the_batch_size_the_shuffle_the_last_batch_and_the_augmentation_are_as_asked():
    import numpy as np
    from support.keras_pieces import FEATURES, dense_model

    from unbroken.training.tensorflow import Training

    def batches(seed=0, **options):
        data = Training({"model": dense_model()}, seed=seed).data(FEATURES, batch_size=12, **options)
        return [np.asarray(batch) for batch in data.stream(0, 0, epochs=1)]

    def augment(features, seed):
        return features + 1000

    plain, shuffled = batches(shuffle=False), batches()
    assert [len(batch) for batch in plain] == [12, 12, 12, 4]
    assert [len(batch) for batch in batches(drop_last=True)] == [12, 12, 12]
    assert np.array_equal(np.concatenate(plain), FEATURES)
    assert not np.array_equal(np.concatenate(shuffled), FEATURES)
    assert np.array_equal(np.concatenate(shuffled), np.concatenate(batches(seed=0)))
    assert not np.array_equal(np.concatenate(shuffled), np.concatenate(batches(seed=1)))
    assert np.array_equal(np.concatenate(batches(shuffle=False, augment=augment)), FEATURES + 1000)


def test_a_goal_by_hand_may_be_steps():
    from support.keras_pieces import FEATURES, TARGETS, dense_model

    from unbroken.training.tensorflow import Training

    training = Training({"model": dense_model()})
    data = training.data(FEATURES, TARGETS, batch_size=5)
    for _ in training.epochs(11, "steps"):
        for _ in training.batches(data):
            pass

    assert (training.step, training.epoch) == (11, 1)


def test_saves_in_the_background_are_refused(pieces):
    from unbroken.training.tensorflow import Saves

    with pytest.raises(ValueError, match=r"Saves\(in_background=True\), allowed: None or False"):
        pieces("refused", goal=1, saves=Saves(in_background=True)).attempt()


def test_the_last_save_of_a_process_is_read_again(pieces, monkeypatch):
    from unbroken.errors import CheckpointError
    from unbroken.training.tensorflow import checkpoint

    write = checkpoint.write_variables

    def flip(groups, folder):
        write(groups, folder)
        path = next(folder.glob("state.data-*"))
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(checkpoint, "write_variables", flip)
    work = pieces("flipped", goal=1)

    with pytest.raises(CheckpointError, match="reads back differently from what was written; check the disk: "):
        work.attempt([3])
    assert work.handovers == []
