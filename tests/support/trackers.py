"""Runs the program that logs, and reads what the trackers themselves have of it."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROGRAM = Path(__file__).with_name("logged_training.py")
OF_FRAMEWORKS = Path(__file__).with_name("logged_by_frameworks.py")
BLOCK_BYTES, HEADER_BYTES, NAME_BYTES = 32768, 7, 7


def train(base: Path, server: str = "", **options: object) -> int:
    """One process of the training in `base/run`; its exit code.  With the address of a server, W&B is online."""
    return _run(base, [str(PROGRAM), json.dumps(options)], server)


def train_by(framework: str, base: Path, **options: object) -> list[int]:
    """A segment of the framework's loop that pauses, one that is killed, and the last one; their exit codes."""
    accidents: list[dict[str, int]] = [{"stop": 4}, {"kill": 9}, {}]
    return [_run(base, [str(OF_FRAMEWORKS), framework, json.dumps(options | each)]) for each in accidents]


def _run(base: Path, words: list[str], server: str = "") -> int:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        **({"WANDB_BASE_URL": server, "WANDB_API_KEY": "0" * 40, "WANDB_ENTITY": "e"} if server else {}),
        "WANDB_MODE": "online" if server else "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"file:{base}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    command = [sys.executable, "-W", "ignore", *words]
    done = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, timeout=250)
    with (base / "said").open("a") as file:
        file.write(done.stdout + done.stderr)
    return done.returncode


def train_to_the_end(base: Path, server: str = "", **options: object) -> list[int]:
    """A segment that pauses, two that are killed ahead of their checkpoint, and the last one; their exit codes."""
    return [train(base, server, **options, **accident) for accident in ({"stop": 4}, {"kill": 8}, {"kill": 14}, {})]


ENDS = [85, -9, -9, 0]


def of_wandb(base: Path) -> tuple[set[str], list[dict[str, float]]]:
    """The runs' ids in the files of offline mode, and all rows of their history, by W&B's own records."""
    from wandb.proto.wandb_internal_pb2 import Record

    ids, rows = set(), []
    for path in sorted(base.glob("wandb/offline-run-*/*.wandb")):
        for text in _records(path.read_bytes()):
            record = Record()
            record.ParseFromString(text)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("history"):
                items = record.history.item
                rows.append({(item.key or item.nested_key[0]): json.loads(item.value_json) for item in items})
    return ids, rows


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, as W&B writes it."""
    at, text = NAME_BYTES, b""
    while at + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        at += HEADER_BYTES + length
        text += data[at - length : at]
        if kind in (1, 4):  # all of it, or its end
            yield text
            text = b""


def of_mlflow(base: Path, name: str) -> tuple[list[str], list[tuple[int, float]]]:
    """The states of all runs, and a metric's history of all of them."""
    from mlflow import MlflowClient

    client = MlflowClient(f"file:{base}/mlruns")
    runs = client.search_runs(["0"])
    history = [(each.step, each.value) for run in runs for each in client.get_metric_history(run.info.run_id, name)]
    return [run.info.status for run in runs], history


def of_tensorboard(folder: Path, name: str) -> list[tuple[int, float]]:
    """What TensorBoard itself makes of its files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(name)]
