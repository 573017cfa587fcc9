"""What Keras trainings share with those of PyTorch: bad checkpoints, early ends, the pace of saves, a bar."""

import pytest
from support.telling import begin_as_a_new_process

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]


@pytest.fixture
def training(tmp_path, monkeypatch, signals_kept):
    """Makes trainings that keep their checkpoints in one folder."""
    import keras
    from support.keras_pieces import dense_model

    from unbroken.training.tensorflow import Training, seed_everything

    monkeypatch.delenv("UNBROKEN_SAVE", raising=False)

    def make(**options):
        keras.utils.clear_session()
        begin_as_a_new_process()
        seed_everything(3)
        return Training({"model": dense_model()}, folder=tmp_path / "kept", **options)

    return make


def data(training):
    """Two batches an epoch."""
    from support.keras_pieces import FEATURES, TARGETS

    return training.data(FEATURES, TARGETS, batch_size=20)


def test_without_the_workflow_a_checkpoint_that_predicts_otherwise_gives_way_to_the_one_before(
    training, tmp_path, capsys
):
    from unbroken.store.checkpoints import Store
    from unbroken.training.tensorflow import Saves

    store, value, steps = tmp_path / "kept" / "checkpoints", [1.0], []

    def train(epochs, last_value):
        one = training(saves=Saves(steps=1, keep=9), validate=lambda: value[0])
        for epoch in one.epochs(epochs):
            for number, _ in enumerate(one.batches(data(one))):
                steps.append((epoch, number))
        value[0] = last_value
        one.finish()

    train(2, last_value=2.0)
    before = sorted(path.name for path in store.glob("0*"))
    value[0] = 1.0
    train(2, last_value=1.0)

    aside = sorted(path.name for path in (store / ".quarantine").glob("0*"))
    said = capsys.readouterr().out
    assert aside == [before[-1], f"{before[-1]}.reason.json"]
    assert f"unbroken: bad checkpoint {before[-1]}: the prediction differs from the one made when it was saved" in said
    # The one before was made after the last step, so nothing is trained again.
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    newest = Store(store).readable()[-1].passport
    assert (newest.is_finished, newest.progress.done, newest.parent) == (True, 2, before[-2])


def test_a_mean_time_between_failures_says_how_often_it_saves(training):
    from unbroken.training.tensorflow import Saves

    one = training(saves=Saves(mtbf_hours=24.0), best=("loss", "min"))
    for _ in one.epochs(2):
        for _ in one.batches(data(one)):
            one.log(loss=-1.0)
    one.finish()

    assert one._link.pace.chosen["save_every_seconds"] > 1


def test_another_release_of_keras_than_the_checkpoint_was_made_with_is_said(training, monkeypatch, capsys):
    import keras

    with monkeypatch.context() as patched:
        patched.setattr(keras, "__version__", "3.0.0")
        training().finish()
    training().finish()

    said = [line for line in capsys.readouterr().out.splitlines() if "environment changed" in line]
    assert said == [
        f"unbroken: environment changed since this checkpoint (keras 3.0.0 -> {keras.__version__}): training continues "
        "but is not bit-identical"
    ]


class Heard:
    """A logger that remembers."""

    def __init__(self):
        self.steps = []

    def log(self, step, metrics):
        self.steps.append((step, sorted(metrics)))


def test_loggers_get_each_step_once_over_restarts(training):
    heard, again = Heard(), Heard()
    for epochs, logger in ((1, heard), (2, again)):
        one = training(loggers=[logger])
        for _ in one.epochs(epochs):
            for number, _ in enumerate(one.batches(data(one))):
                one.log(loss=float(number))
        one.finish()

    assert heard.steps == [(1, ["loss"]), (2, ["loss"])]
    assert again.steps == [(3, ["loss"]), (4, ["loss"])]
