"""What several unit tests share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    """Makes Keras trainings; the module is loaded here, because a collection of tests must not need TensorFlow."""
    from support.keras_pieces import Pieces

    return lambda name, **options: Pieces(tmp_path / name, monkeypatch, **options)


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """Put back what a training in this process sets for its signals."""
    numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
