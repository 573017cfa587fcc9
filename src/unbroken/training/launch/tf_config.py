"""Write and read TF_CONFIG, in which TensorFlow lists the workers of one training; standard library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unbroken.errors import SegmentError

ALLOWED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class WorkerCluster:
    """Hold all workers, the chief first, and the index of this process."""

    workers: tuple[str, ...]
    index: int


def tf_config(workers: Sequence[str], index: int) -> str:
    """Return TF_CONFIG for one of the workers; the first is the chief, as always if none is named."""
    return json.dumps({"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": index}})


def read_cluster(environment: Mapping[str, str] = os.environ) -> WorkerCluster | None:
    """Return the cluster in TF_CONFIG, None without one; raise SegmentError if it is not one of workers alone."""
    text = environment.get("TF_CONFIG")
    try:
        told = json.loads(text or "{}")
        if not (cluster := told.get("cluster")):
            return None
        jobs = {kind: list(cluster.get(kind, ())) for kind in ("chief", "worker")}
        workers = (*jobs["chief"], *jobs["worker"])
        address = jobs[told["task"]["type"]][told["task"]["index"]]
        is_right = cluster.keys() <= jobs.keys() and all(":" in each for each in workers) and told["task"]["index"] >= 0
    except (ValueError, AttributeError, TypeError, LookupError):
        is_right = False
    if not is_right or len(set(workers)) < len(workers):
        raise SegmentError(
            f"TF_CONFIG is {text}, allowed: {ALLOWED}; leave it unset, and unbroken makes it (`workers`)"
        )
    return WorkerCluster(workers, workers.index(address))
