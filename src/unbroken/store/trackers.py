"""Keep the ids by which trackers of experiments (W&B, MLflow) take all segments of a run for one run."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from secrets import token_hex

from unbroken.store.layout import Format

FILE_NAME = "trackers.json"
FORMAT = Format()
# W&B keeps what was logged in memory for 15 s, which a kill takes.
_FLUSH_SECONDS = "0.2"
# Names the variables that are not the user's own.
_OURS = "UNBROKEN_TRACKERS"
_NOT_IN_IDS = re.compile(r"[^\w-]+")
_LONGEST_NAME = 40


def tracker_variables(live: Path, name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which W&B and MLflow resume their run, without those that `environment` has already.

    The id for W&B is made once and kept in the folder `live`, with which it is moved away when the run is restarted.
    MLflow makes its ids itself (`note_mlflow`).
    """
    noted = FORMAT.found(live / FILE_NAME)
    if "wandb" not in noted:
        noted["wandb"] = f"{_NOT_IN_IDS.sub('-', name)[:_LONGEST_NAME]}-{token_hex(4)}"
        FORMAT.update(live / FILE_NAME, noted)
    variables = {
        "WANDB_RUN_ID": noted["wandb"],
        "WANDB_RESUME": "allow",
        "WANDB_NAME": name,
        "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": _FLUSH_SECONDS,
        "MLFLOW_RUN_ID": noted.get("mlflow", ""),
    }
    return {key: value for key, value in variables.items() if value and not environment.get(key)}


def set_tracker_variables(live: Path, name: str, environment: MutableMapping[str, str]) -> None:
    """Set the variables in this process, in the place of those of a training that it had before."""
    for key in filter(None, environment.pop(_OURS, "").split(",")):
        environment.pop(key, None)
    variables = tracker_variables(live, name, environment)
    environment.update(variables)
    environment[_OURS] = ",".join(variables)


def note_mlflow(live: Path) -> None:
    """Keep the id of the MLflow run that this process has begun, if it has, for the next segment."""
    mlflow = sys.modules.get("mlflow")
    active = getattr(mlflow, "active_run", None)
    if active and (run := active()) and "mlflow" not in FORMAT.found(live / FILE_NAME):
        FORMAT.update(live / FILE_NAME, {"mlflow": run.info.run_id})
