"""Pass a training's metrics to TensorBoard, Weights & Biases, MLflow or a logger of your own, each step once.

A step is passed on when the checkpoint that holds it was handed over: what a killed attempt was ahead of its checkpoint
is computed again, and no logger has seen it before.  Each tracker's own library is imported when the training begins.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from unbroken.store.layout import parse_json
from unbroken.system import fs

# W&B writes its file every 0.2 s (store/trackers.py).
WANDB_PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.02


class Logger(Protocol):
    """Define a logger: `log`, and any of three more methods.

    `begin(step)` is called before training begins, with the last step that was logged before, or -1.  It may remove
    later steps, or look which the tracker has, and return the last one that is there now.  `flush(step)` returns when
    a kill can take nothing of what was logged, and `close()` ends it when the process ends.
    """

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        """Take the metrics of a step."""


class JsonLines:
    """Write a line of JSON per step into a file, for `tail -F` and `pandas.read_json(lines=True)`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def begin(self, step: int) -> int:
        """Remove lines of later steps, and a line that a kill has torn."""
        self.become(line for line in read_lines(self.path) if line.get("step", math.inf) <= step)
        return step

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a line; NaN and infinity become null, which pandas reads as NaN."""
        self.append({**metrics, "step": step})

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Append lines."""
        text = "".join(map(_text, lines))
        with fs.storage_errors(self.path, len(text)), self.path.open("a") as file:
            file.write(text)

    def become(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Make the file hold these lines alone; a program that follows it keeps it open if it began with them."""
        data = "".join(map(_text, lines)).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not data and not self.path.exists():
            return
        if self.path.is_file() and self.path.read_bytes().startswith(data):
            os.truncate(self.path, len(data))
        else:
            fs.write_atomic(self.path, data.decode())


class TensorBoard:
    """Write for TensorBoard into a folder (`pip install tensorboard`)."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        _check_installed("tensorboard", "TensorBoard")
        self._folder = str(folder)

    def begin(self, step: int) -> int:
        """Open a new file, which hides what others in the folder have of later steps."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer: Any = EventFileWriter(self._folder)
        self._add(step + 1, session_log={"status": "START"})
        return step

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a scalar for each metric."""
        self._add(step, summary={"value": [{"tag": name, "simple_value": value} for name, value in metrics.items()]})

    def flush(self, step: int) -> None:
        """Write what is still in memory."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))


class WandB:
    """Log to Weights & Biases (`pip install wandb`), all segments into one run of theirs.

    `options` are those of `wandb.init`.  A run that the script has begun before is used as it is.
    """

    def __init__(self, **options: Any) -> None:
        _check_installed("wandb", "WandB")
        self._options, self._names = options, set[str]()
        self._size, self._is_readable = 0, True  # the run's own file, as far as it was read, and whether it can be

    def begin(self, step: int) -> int | None:
        """Begin or resume the run; return the last step that the server has, if it is asked (not in offline mode)."""
        import wandb

        self._is_own = wandb.run is None
        self._run: Any = wandb.run or wandb.init(**self._options)
        return int(self._run.summary.get("step", -1)) if self._run.resumed else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log over `step`: W&B's own count of steps only rises, also with what the script logs by itself meanwhile."""
        for name in metrics.keys() - self._names - {"step"}:
            self._run.define_metric(name, step_metric="step")
            self._names.add(name)
        self._run.log({**metrics, "step": step})

    def flush(self, step: int) -> None:
        """Return when the step is in the run's own file: what is still in memory, a kill takes.

        Raise TimeoutError if it is not, once.
        """
        if not self._is_readable or getattr(self._run, "disabled", False):
            return
        value, path = str(step).encode(), Path(self._run.settings.sync_file)
        mark = b"\x12\x04step\x82\x01" + bytes([len(value)]) + value  # as the file has it: `step`, and its value
        until = time.monotonic() + WANDB_PATIENCE_SECONDS
        with path.open("rb") as file:
            file.seek(self._size)
            found = file.read()
            while mark not in found:
                if time.monotonic() > until:
                    self._is_readable = False
                    raise TimeoutError(
                        f"step {step} is not in {path} after {WANDB_PATIENCE_SECONDS:g} s; a kill may lose steps"
                    )
                time.sleep(POLL_SECONDS)
                found += file.read()
        self._size += found.index(mark)

    def close(self) -> None:
        """End the run, until the next segment resumes it; not one that the script has begun."""
        if self._is_own:
            self._run.finish()


class MLflow:
    """Log to MLflow (`pip install mlflow`), all segments into one run of theirs.

    `options` are those of `mlflow.start_run`.  A run that the script has begun before is used as it is.
    """

    def __init__(self, **options: Any) -> None:
        _check_installed("mlflow", "MLflow")
        self._options = options

    def begin(self, step: int) -> None:
        """Begin or resume the run."""
        import mlflow

        self._mlflow, self._is_own = mlflow, mlflow.active_run() is None
        self._run: Any = mlflow.active_run() or mlflow.start_run(**self._options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics; MLflow has stored them when this returns."""
        self._mlflow.log_metrics(dict(metrics), step=step, run_id=self._run.info.run_id, synchronous=True)

    def close(self) -> None:
        """End the run, until the next segment resumes it; not one that the script has begun."""
        if self._is_own:
            self._mlflow.end_run()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that are complete; a kill may have torn the last one."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            data = parse_json(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


def _text(line: Mapping[str, Any]) -> str:
    """Return a line of JSON, which has neither NaN nor infinity."""
    no_numbers = {key: None for key, value in line.items() if isinstance(value, float) and not math.isfinite(value)}
    return json.dumps({**line, **no_numbers}) + "\n"


def _check_installed(module: str, name: str) -> None:
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"loggers=[{name}(...)]: {module} is not installed; type: pip install {module}")
