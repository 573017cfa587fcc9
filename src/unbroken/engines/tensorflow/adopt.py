"""A backup of Keras (`BackupAndRestore`) becomes a run's first checkpoint; its epoch is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unbroken.engines.by_contract import adopted_contract, is_own
from unbroken.engines.foreign import Foreign, Found, copy_steady
from unbroken.errors import CheckpointError, ConfigError
from unbroken.program.contract import HANDOVER_FILE
from unbroken.runs.adopted import Handed
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.run import Run
from unbroken.system import jsontext

# As Keras 3 calls them (keras/src/callbacks/backup_and_restore.py).
WEIGHTS, METADATA = "latest.weights.h5", "training_metadata.json"
EPOCHS = "epochs"
_LOST = (
    "the random states of Python, numpy and TensorFlow; those of layers such as Dropout are among the weights",
    "the order of the data: it comes from unbroken's seed, from the epoch on that is next",
    "what callbacks remember, such as the patience of EarlyStopping",
    "the metrics so far: final/metrics.csv begins here",
)


def adopted(run: Run, foreign: Foreign, draft: Path) -> Found:
    """By what lies there: unbroken's own, the contract's, or a backup of Keras; ConfigError if it is none of them."""
    path = foreign.path
    if is_own(path) or (path / HANDOVER_FILE).is_file():
        return adopted_contract(run, foreign, draft)
    if not (path / METADATA).is_file():
        allowed = f"a folder of BackupAndRestore, with {METADATA} in it, or one of unbroken's own"
        raise ConfigError([f"{run.name}: --from: found {path}, allowed: {allowed}"])
    return _backup(run, foreign, draft)


def _backup(run: Run, foreign: Foreign, draft: Path) -> Found:
    path, unit = foreign.path, str(run.settings["goal_unit"])
    said = _metadata(run, path / METADATA)
    epoch, batch = said["epoch"], said["batch"]
    if not (path / WEIGHTS).is_file():
        raise CheckpointError(f"{run.name}: {path}: has no {WEIGHTS}")
    if unit == EPOCHS and foreign.done is not None:
        raise ConfigError([f"{run.name}: --done: {METADATA} says how far it is; leave it out"])
    if unit != EPOCHS and foreign.done is None:
        raise ConfigError([f"{run.name}: {METADATA} says epoch {epoch}, and the goal is in {unit}; type --done N"])
    done = float(epoch) if foreign.done is None else foreign.done
    copy_steady((path / name, draft / name) for name in (WEIGHTS, METADATA))
    Handed(".", epoch, int(done) if unit != EPOCHS else 0).write(draft)
    lost = list(_LOST)
    if batch:
        replayed = f"{batch} batches of epoch {epoch} are in the weights, and the whole epoch is trained again"
        lost.insert(0, f"the place in the epoch: {replayed}, as Keras's own backup does it")
    checked = [f"how far it is: {METADATA} says that {epoch} epochs are finished", f"there is {WEIGHTS}"]
    not_checked = ["whether the script loads it: three lines by `training.adopted`"]
    not_checked += ["how many steps it has made: they are counted from here"] if unit == EPOCHS else []
    return Found(Handover(Progress(done, run.goal, unit)), tuple(checked), tuple(not_checked), tuple(lost))


def _metadata(run: Run, path: Path) -> dict[str, int]:
    try:
        data: Any = jsontext.parse(path.read_bytes())
        return {name: int(data[name]) for name in ("epoch", "batch")}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{run.name}: {path}: says no epoch and batch ({error!r})") from error
