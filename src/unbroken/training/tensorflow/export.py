"""What a training leaves for its user in `final/`: whole models, arrays, text."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from unbroken.errors import CheckpointError


def write_result(folder: Path, name: str, content: object) -> None:
    """One result under its name; of a model, the name says how: `.keras`, `.weights.h5`, or a folder (SavedModel)."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"finish(): {name!r} lies outside of final/, allowed: a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, keras.Model):
        _write_model(path, content)
    elif isinstance(content, Path):
        shutil.copyfile(content, path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, Mapping):
        arrays: dict[str, Any] = {str(key): np.asarray(value) for key, value in content.items()}
        np.savez(path, **arrays)
    else:
        raise CheckpointError(
            f"finish(): {name!r} is a {type(content).__name__}, allowed: a Keras model, text, bytes, a Path to copy, "
            "or a dictionary of arrays"
        )


def _write_model(path: Path, model: keras.Model) -> None:
    if path.suffix == ".keras":
        model.save(path)
    elif path.name.endswith(".weights.h5"):
        model.save_weights(path)
    elif not path.suffix:
        model.export(path, verbose=False)
    else:
        raise CheckpointError(
            f"finish(): a model as {path.name!r}, allowed: name.keras, name.weights.h5, or a name without a suffix"
        )
