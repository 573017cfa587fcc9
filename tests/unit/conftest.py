"""What several unit tests share."""

import pytest


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    """Makes Keras trainings; the module is loaded here, because a collection of tests must not need TensorFlow."""
    from support.keras_pieces import Pieces

    return lambda name, **options: Pieces(tmp_path / name, monkeypatch, **options)


@pytest.fixture
def told(request, tmp_path, monkeypatch, signals_kept):
    """Tell this process what unbroken tells a program, all files in `tmp_path`; a module may add more as `TOLD`."""
    from support.telling import tell_here

    more = {"GOAL": "2", "VERDICT": tmp_path / "verdict.json", **getattr(request.module, "TOLD", {})}
    return tell_here(tmp_path, monkeypatch, **more)
