"""Let the launchers of several tasks meet: each writes its address, and learns the places of its ranks among all.

They meet in the folder of the attempt, which all nodes see because checkpoints are handed over there, and which no
other attempt shares.  So no port has to be guessed, and no node name has to be read from Slurm's lists.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from unbroken.errors import SegmentError

# A file server may show a new file to another node after a minute, and nodes start one after the other.
PATIENCE_SECONDS = 300.0
# What TF_CONFIG has to look like.
_ALLOWED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
# Which task this is and how many there are: Slurm, Open MPI, other MPIs.
_NUMBERS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


class Meeting(ExitStack):
    """Meet in the folder, and take this task's part in it; ports stay reserved as long as it is open.

    With `has_ports`, each rank gets a port of its own, as TensorFlow's workers need it.  Raise SegmentError if this
    task cannot know which of them it is.
    """

    def __init__(self, tasks: int, ranks: int, environment: Mapping[str, str], *, has_ports: bool = False) -> None:
        super().__init__()
        self._tasks, self._ranks, self._environment = tasks, ranks, environment
        self._task = 0
        self._folder: Path | None = None  # of a task that is alone
        if tasks > 1:
            stop = environment.get("UNBROKEN_STOP")
            if not stop:
                raise SegmentError(f"tasks is {tasks}, and only unbroken can start so many (UNBROKEN_STOP is not set)")
            self._folder = Path(stop).parent / "ranks"
            self._folder.mkdir(exist_ok=True)
            self._task = _own_number(tasks, environment)
        self._ports = [self.enter_context(reserve_port()) for _ in range(1 + (ranks if has_ports else 0))]

    def environments(self, is_told_to_leave: Callable[[], bool]) -> list[dict[str, str]] | None:
        """Wait for the others, and return the variables of each rank of this task; None if asked to leave.

        Raise SegmentError if a task is missing.
        """
        here = _address(self._tasks, self._environment)
        port, *worker_ports = (str(reserved.getsockname()[1]) for reserved in self._ports)
        own = {
            "node": _node(self._environment),
            "address": self._environment.get("MASTER_ADDR") or here,
            "port": self._environment.get("MASTER_PORT") or port,
            "workers": [f"[{here}]:{each}" if ":" in here else f"{here}:{each}" for each in worker_ports],
        }
        if self._folder is None:
            return self._of_ranks([own])
        draft = self._folder / f".{self._task}.draft"
        draft.write_text(json.dumps(own))
        draft.replace(self._folder / f"task-{self._task}.json")
        give_up = time.monotonic() + PATIENCE_SECONDS
        paths = [self._folder / f"task-{task}.json" for task in range(self._tasks)]
        while missing := [str(task) for task, path in enumerate(paths) if not path.exists()]:
            if time.monotonic() > give_up:
                raise SegmentError(
                    f"tasks {', '.join(missing)} of {self._tasks} did not come in {PATIENCE_SECONDS:g} s"
                )
            if is_told_to_leave():
                return None
        return self._of_ranks([json.loads(path.read_text()) for path in paths])

    def say_failed(self) -> None:
        """Tell the other tasks that a rank of this one has failed."""
        if self._folder:
            (self._folder / f"failed-{self._task}").touch()

    def failed_elsewhere(self) -> int | None:
        """Return the number of another task that has failed."""
        if self._folder is None:
            return None
        others = (task for task in range(self._tasks) if task != self._task)
        return next((task for task in others if os.path.exists(self._folder / f"failed-{task}")), None)

    def _of_ranks(self, everybody: list[dict[str, Any]]) -> list[dict[str, str]]:
        """Return torchrun's variables, where a group is a node's launcher, and TF_CONFIG for ranks with ports."""
        nodes = [each["node"] for each in everybody]
        here = nodes[self._task]
        same = {
            "WORLD_SIZE": self._tasks * self._ranks,
            "LOCAL_WORLD_SIZE": nodes.count(here) * self._ranks,
            "GROUP_RANK": self._task,
            "GROUP_WORLD_SIZE": self._tasks,
            # By this one, frameworks know that their processes were started for them, inside a Slurm job too.
            "TORCHELASTIC_RUN_ID": "unbroken",
            "MASTER_ADDR": everybody[0]["address"],
            "MASTER_PORT": everybody[0]["port"],
        }
        workers = [worker for each in everybody for worker in each["workers"]]
        first_here = nodes[: self._task].count(here) * self._ranks
        found = []
        for local in range(self._ranks):
            rank = self._task * self._ranks + local
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            own = {
                "RANK": rank,
                "LOCAL_RANK": first_here + local,
                **({"TF_CONFIG": json.dumps(task)} if workers else {}),
            }
            found.append({name: str(value) for name, value in {**same, **own}.items()})
        return found


def reserve_port() -> socket.socket:
    """Reserve a free port: no other process gets it while the socket is open, and torch's store can still listen there.

    Linux lets a second socket with SO_REUSEADDR bind a port on which no socket listens, and gives such a port to no
    connection of its own choosing; torch's store sets that option.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("::" if family == socket.AF_INET6 else "", 0))
    return reserved


def _own_number(tasks: int, environment: Mapping[str, str]) -> int:
    for number, count in _NUMBERS:
        if environment.get(number) and environment.get(count) == str(tasks):
            return int(environment[number])
    names = ", ".join(number for number, _ in _NUMBERS)
    raise SegmentError(
        f"tasks is {tasks}, but no variable says which of them this is ({names}); start them by enter: [srun] or "
        f'enter: [mpirun, -n, "{tasks}"]'
    )


def _node(environment: Mapping[str, str]) -> str:
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def _address(tasks: int, environment: Mapping[str, str]) -> str:
    """Return a name of this node that can be looked up; the others find it by the same name."""
    if tasks == 1:
        return "127.0.0.1"
    for name in (_node(environment), socket.gethostname()):
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            continue
        return name
    return environment.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")


def worker_place(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the index of this process among TensorFlow's workers, a chief before them, and how many there are.

    It is (0, 1) without TF_CONFIG.  Raise SegmentError if that is not one of workers alone.
    """
    text = environment.get("TF_CONFIG")
    try:
        told = json.loads(text or "{}")
        if not (cluster := told.get("cluster")):
            return 0, 1
        jobs = {kind: list(cluster.get(kind, ())) for kind in ("chief", "worker")}
        workers = (*jobs["chief"], *jobs["worker"])
        address = jobs[told["task"]["type"]][told["task"]["index"]]
        is_right = cluster.keys() <= jobs.keys() and all(":" in each for each in workers) and told["task"]["index"] >= 0
    except (ValueError, AttributeError, TypeError, LookupError):
        is_right = False
    if not is_right or len(set(workers)) < len(workers):
        raise SegmentError(
            f"TF_CONFIG is {text}, allowed: {_ALLOWED}; leave it unset, and unbroken makes it (`workers`)"
        )
    return workers.index(address), len(workers)
