"""Accidents on a real cluster, drawn from a seed and counted: what is killed, and what else happens to jobs."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from cluster.endings import signal_job
from cluster.lab import Cluster, LabError
from support.workdir import Driver, WorkDir

from unbroken.engines.testing.kills import programs_of
from unbroken.system import host

REPAIR_SECONDS = 20.0
# So many in a hundred meet any run at work, the others wait for one that has come further since it was hit.
ANY_RUN = 25


class Accidents:
    """What happens to which run; `kills` counts SIGKILLs that met a process, `others` the rest."""

    def __init__(self, work: WorkDir, cluster: Cluster, dice: random.Random) -> None:
        self.work, self.cluster, self.dice = work, cluster, dice
        self.kills: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self._came_to: dict[str, tuple[int, int]] = {}
        self._repaired = time.monotonic()
        self._is_for_any = False

    def repair(self) -> None:
        """What an administrator does: Slurm drains a node, and holds a job, whose processes it could not follow."""
        if time.monotonic() < self._repaired + REPAIR_SECONDS:
            return
        self._repaired = time.monotonic()
        with suppress(LabError):
            for node in self.cluster.nodes:
                if "drain" in self.cluster.run("sinfo", "--noheader", f"--nodes={node}", "--format=%t"):
                    self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            waiting = ("squeue", "--noheader", "--array", "--states=pending", "--format=%i %r")
            for line in self.cluster.run(*waiting).splitlines():
                if line.endswith("held"):
                    self.cluster.run("scontrol", "release", line.split()[0])

    def one(self, driver: Driver | None) -> None:
        """One accident, if a run is at work."""
        kinds = {
            self._kill_segment: 30,
            self._kill_program: 30,
            self._kill_any: 15,
            self._requeue: 8,
            self._terminate: 8,
            self._warn: 6,
            self._cancel: 2,
            self._restart_controller: 2,
        }
        (kind,) = self.dice.choices(list(kinds), list(kinds.values()))
        if (pid := self._victim()) is None:
            return
        if driver is not None and self.dice.random() < 0.04:
            driver.kill()
            self.kills["driver"] += 1
        else:
            with suppress(LabError, ProcessLookupError, IndexError, FileNotFoundError, ValueError):  # it has just left
                kind(pid)

    def _victim(self) -> int | None:
        """The process that holds a run which is at work."""
        holders = {run: pid for run in self._came_to if (pid := self._holder(run))}
        advanced = [run for run in holders if self._place(run) > self._came_to[run]]
        found = list(holders) if self._is_for_any else advanced
        if not found:
            return None
        self._is_for_any = self.dice.randrange(100) < ANY_RUN
        run = self.dice.choice(found)
        self._came_to[run] = self._place(run)
        time.sleep(self.dice.uniform(0, 0.3))
        return self._holder(run)

    def begin(self, runs: list[str]) -> None:
        """From now on it is these that things happen to."""
        self._came_to = dict.fromkeys(runs, (0, 0))

    def _place(self, run: str) -> tuple[int, int]:
        with suppress(OSError):
            return self.work.saved(run), self.work.reported(run)
        return 0, 0

    def _holder(self, run: str) -> int | None:
        """None also where the number of one that is gone is that of somebody else's process by now."""
        try:
            claim = self.work.claim(run)
            pid = int(claim["pid"])
        except (OSError, IndexError, ValueError, KeyError):
            return None
        return pid if host.process_start(pid) == claim["pid_start"] else None

    def _kill_segment(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.kills["segment"] += 1

    def _kill_program(self, pid: int) -> None:
        os.kill(self.dice.choice(programs_of(pid)), signal.SIGKILL)
        self.kills["program"] += 1

    def _kill_any(self, pid: int) -> None:
        """Any process that was started from there: a guard, a shell of a job, a rank; drivers have their own share."""
        drivers = {driver.process.pid for driver in self.work.drivers}
        os.kill(self.dice.choice([found for found in self.work.processes() if found not in drivers]), signal.SIGKILL)
        self.kills["any process"] += 1

    def _requeue(self, pid: int) -> None:
        self.cluster.run("scontrol", "requeue", self._job(pid))
        self.others["requeue"] += 1

    def _terminate(self, pid: int) -> None:
        signal_job(self.cluster, self._job(pid), "TERM")
        self.others["TERM"] += 1

    def _warn(self, pid: int) -> None:
        signal_job(self.cluster, self._job(pid), "URG")
        self.others["warning"] += 1

    def _cancel(self, pid: int) -> None:
        self.cluster.run("scancel", self._job(pid))
        self.others["scancel"] += 1

    def _restart_controller(self, pid: int) -> None:
        self.cluster.kill_slurmctld()
        time.sleep(self.dice.uniform(0, 5))
        self.cluster.start_slurmctld()
        self.kills["slurmctld"] += 1

    def _job(self, pid: int) -> str:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        (number,) = (entry.partition(b"=")[2].decode() for entry in environ if entry.startswith(b"SLURM_JOB_ID="))
        return self.cluster.task_named(number)
