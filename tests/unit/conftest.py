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
    (tmp_path / "save").mkdir()
    told = {"RUN": "demo", "RESUME": "", "SAVE": tmp_path / "save", "STOP": tmp_path / "stop", "DEADLINE": "1e12"}
    told |= {"PROGRESS": tmp_path / "progress.json", "VERDICT": tmp_path / "verdict.json", "SAVE_SECONDS": "1000"}
    for name, value in {**told, "GOAL": "2", **getattr(request.module, "TOLD", {})}.items():
        monkeypatch.setenv(f"UNBROKEN_{name}", str(value))
    return tmp_path
