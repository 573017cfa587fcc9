"""What several unit tests share."""

import pytest


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    """Makes Keras trainings; the module is loaded here, because a collection of tests must not need TensorFlow."""
    from support.keras_pieces import Pieces

    return lambda name, **options: Pieces(tmp_path / name, monkeypatch, **options)
