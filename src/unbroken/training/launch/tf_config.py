"""Write and read TF_CONFIG, in which TensorFlow lists the workers of one training; standard library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    if not text:
        return None
    try:
        told = json.loads(text)
    except ValueError as error:
        raise _wrong(f"is no JSON ({error})") from None
    if not isinstance(told, dict) or not told.get("cluster"):
        return None
    cluster, task = told["cluster"], told.get("task") or {}
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise _wrong(f"is {text}")
    if others := sorted(cluster.keys() - {"chief", "worker"}):
        raise _wrong(f"names {', '.join(others)} in its cluster; only chief and worker train in step")
    chiefs, workers = _addresses(cluster, "chief"), _addresses(cluster, "worker")
    return WorkerCluster((*chiefs, *workers), _index(task, chiefs, workers))


def _addresses(cluster: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    found = cluster.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and ":" in each for each in found):
        raise _wrong(f"has {found!r} as {kind}")
    if len(set(found)) < len(found):
        raise _wrong(f"names an address twice: {', '.join(found)}")
    return tuple(found)


def _index(task: Mapping[str, Any], chiefs: Sequence[str], workers: Sequence[str]) -> int:
    kind, index = task.get("type"), task.get("index")
    count = {"chief": len(chiefs), "worker": len(workers)}.get(str(kind), 0)
    if not isinstance(index, int) or not 0 <= index < count:
        raise _wrong(f"says that this is {kind} {index}, and has {len(chiefs)} chief and {len(workers)} workers")
    return index + (len(chiefs) if kind == "worker" else 0)


def _wrong(what: str) -> SegmentError:
    return SegmentError(f"TF_CONFIG {what}; allowed: {ALLOWED}; leave it unset, and unbroken makes it (`workers`)")
