"""Let the launchers of several tasks meet: each writes its address, and learns its rank among the others.

They meet in the folder of the attempt, which all nodes see because checkpoints are handed over there, and which no
other attempt shares.  So no port has to be guessed, and no node name has to be read from Slurm's lists.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.errors import SegmentError
from unbroken.training.launch.tf_config import tf_config

# A file server may show a new file to another node after a minute, and nodes start one after the other.
PATIENCE_SECONDS = 300.0
# Which task this is and how many there are: Slurm, Open MPI, other MPIs.
_NUMBERS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True)
class RankAssignment:
    """Hold this task's place among all; the names are torchrun's, where a group is a node's launcher."""

    task: int
    tasks: int
    ranks: int  # of each task
    tasks_before_here: int  # on the same node
    tasks_here: int
    address: str
    port: int
    workers: tuple[str, ...] = ()  # host:port of each rank of all tasks, where they have ports of their own

    @property
    def first_rank(self) -> int:
        return self.task * self.ranks

    def environment(self, local: int) -> dict[str, str]:
        """Return torchrun's variables for the rank with number `local` of this task, and TF_CONFIG if it has a port."""
        config = {"TF_CONFIG": tf_config(self.workers, self.first_rank + local)} if self.workers else {}
        return {
            **config,
            "RANK": str(self.first_rank + local),
            "LOCAL_RANK": str(self.tasks_before_here * self.ranks + local),
            "WORLD_SIZE": str(self.tasks * self.ranks),
            "LOCAL_WORLD_SIZE": str(self.tasks_here * self.ranks),
            "GROUP_RANK": str(self.task),
            "GROUP_WORLD_SIZE": str(self.tasks),
            # By this one, frameworks know that their processes were started for them, inside a Slurm job too.
            "TORCHELASTIC_RUN_ID": "unbroken",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


class Meeting:
    """Meet in the folder, and take this task's part in it; ports stay reserved as long as it is open.

    With `has_ports`, each rank gets a port of its own, as TensorFlow's workers need it.  Raise SegmentError if this
    task cannot know which of them it is.
    """

    def __init__(self, tasks: int, ranks: int, environment: Mapping[str, str], *, has_ports: bool = False) -> None:
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
        self._reserved = reserve_port() if self._task == 0 else None
        self._worker_ports = [reserve_port() for _ in range(ranks if has_ports else 0)]

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *reason: object) -> None:
        for reserved in (self._reserved, *self._worker_ports):
            if reserved:
                reserved.close()

    def assigned(self, is_told_to_leave: Callable[[], bool]) -> RankAssignment | None:
        """Wait for the others, and return our place; None if asked to leave.  Raise SegmentError if one is missing."""
        here = _address(self._tasks, self._environment)
        address = self._environment.get("MASTER_ADDR") or here
        port = int(self._environment.get("MASTER_PORT") or (self._reserved.getsockname()[1] if self._reserved else 0))
        own: dict[str, Any] = {"node": _node(self._environment), "address": address, "port": port}
        own["workers"] = [f"{_bracketed(here)}:{each.getsockname()[1]}" for each in self._worker_ports]
        if self._folder is None:
            return self._seated([own])
        draft = self._folder / f".{self._task}.draft"
        draft.write_text(json.dumps(own))
        draft.replace(self._folder / f"task-{self._task}.json")
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            there = [self._said_by(task) for task in range(self._tasks)]
            everybody = [each for each in there if each is not None]
            if len(everybody) == self._tasks:
                return self._seated(everybody)
            if time.monotonic() > give_up:
                missing = [str(task) for task, each in enumerate(there) if each is None]
                raise SegmentError(
                    f"tasks {', '.join(missing)} of {self._tasks} did not come in {PATIENCE_SECONDS:g} s"
                )
            if is_told_to_leave():
                return None

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

    def _said_by(self, task: int) -> dict[str, Any] | None:
        try:
            said: dict[str, Any] = json.loads((self._folder or Path()).joinpath(f"task-{task}.json").read_text())
        except FileNotFoundError:
            return None
        return said

    def _seated(self, everybody: list[dict[str, Any]]) -> RankAssignment:
        nodes = [each["node"] for each in everybody]
        here = nodes[self._task]
        before, count = nodes[: self._task].count(here), nodes.count(here)
        first = everybody[0]
        workers = tuple(worker for each in everybody for worker in each["workers"])
        address, port = str(first["address"]), int(first["port"])
        return RankAssignment(self._task, self._tasks, self._ranks, before, count, address, port, workers)


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


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


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
