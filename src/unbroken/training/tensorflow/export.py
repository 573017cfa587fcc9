"""What a training leaves for its user in `final/`: whole models, arrays, text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from unbroken.errors import CheckpointError
from unbroken.training.core import results


def write_result(folder: Path, name: str, content: object) -> None:
    """One result under its name; of a model, the name says how: `.keras`, `.weights.h5`, or a folder (SavedModel)."""

    def write_other(path: Path, value: object) -> None:
        if isinstance(value, keras.Model):
            _write_model(path, value)
        elif isinstance(value, Mapping):
            arrays: dict[str, Any] = {str(key): np.asarray(array) for key, array in value.items()}
            np.savez(path, **arrays)
        else:
            raise CheckpointError(
                f"finish(): {name!r} is a {type(value).__name__}, allowed: a Keras model, text, bytes, a Path to copy, "
                "or a dictionary of arrays"
            )

    results.write_result(folder, name, content, write_other)


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
