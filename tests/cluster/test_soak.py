"""Everything that can happen, at random and for long, to twenty runs at once on a real cluster."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.lab import Cluster, LabError
from support.workdir import Driver, WorkDir, overlaps, uninterrupted

MINUTES = float(os.environ.get("UNBROKEN_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("UNBROKEN_SOAK_SEED", "1"))
RUNS = [f"run{number:02d}" for number in range(1, 21)]
SEGMENTS = 10
REPAIR_SECONDS = 20.0
# A segment of eight seconds counts about 350 steps.
GOAL = 2400


class Accidents:
    """What happens to whom, drawn from a seed; `happened` counts."""

    def __init__(self, work: WorkDir, cluster: Cluster) -> None:
        self.work, self.cluster, self.random = work, cluster, random.Random(SEED)
        self.happened: dict[str, int] = {}

    def repair(self) -> None:
        """What an administrator does: Slurm drains a node, and holds a job, whose processes it could not follow."""
        with suppress(LabError):
            for node in self.cluster.nodes:
                if "drain" in self.cluster.run("sinfo", "--noheader", f"--nodes={node}", "--format=%t"):
                    self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            for line in self.cluster.run("squeue", "--noheader", "--states=pending", "--format=%A %r").splitlines():
                if line.endswith("held"):
                    self.cluster.run("scontrol", "release", line.split()[0])

    def one(self, driver: Driver) -> None:
        """One accident, and a rest until the next."""
        kinds = {
            self.kill_a_segment: 6,
            self.kill_a_program: 6,
            self.kill_any_process: 6,
            self.requeue_a_job: 3,
            self.terminate_a_job: 3,
            self.warn_a_job: 2,
            self.cancel_a_job: 1,
            self.restart_the_controller: 1,
        }
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        if self.random.random() < 0.04:
            kind = self.kill_the_driver
        with suppress(LabError, ProcessLookupError, IndexError):
            kind(driver)
            self.happened[kind.__name__] = self.happened.get(kind.__name__, 0) + 1
        time.sleep(self.random.uniform(0.2, 2.0))

    def kill_a_segment(self, driver: Driver) -> None:
        self._kill_one("toy_segment.py")

    def kill_a_program(self, driver: Driver) -> None:
        self._kill_one("unbroken.engines.toy.program")

    def kill_any_process(self, driver: Driver) -> None:
        """Drivers apart, whose death has its own share."""
        self._kill_one("--mode remote")

    def requeue_a_job(self, driver: Driver) -> None:
        self.cluster.run("scontrol", "requeue", self._a_job())

    def terminate_a_job(self, driver: Driver) -> None:
        self.cluster.run("scancel", "--signal=TERM", self._a_job())

    def warn_a_job(self, driver: Driver) -> None:
        self.cluster.run("scancel", "--signal=URG", self._a_job())

    def cancel_a_job(self, driver: Driver) -> None:
        self.cluster.run("scancel", self._a_job())

    def restart_the_controller(self, driver: Driver) -> None:
        self.cluster.kill_slurmctld()
        time.sleep(self.random.uniform(0, 5))
        self.cluster.start_slurmctld()

    def kill_the_driver(self, driver: Driver) -> None:
        driver.kill()

    def _a_job(self) -> str:
        return self.random.choice(self.cluster.jobs("running"))

    def _kill_one(self, needle: str) -> None:
        os.kill(self.random.choice(self.work.processes(needle)), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(int(MINUTES * 60) + 1200)
def test_twenty_runs_survive_whatever_happens_to_them(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    settings = {"goal": GOAL, "step_seconds": 0.02, "save_steps": 50}
    run = {"engine": "toy", "segments": SEGMENTS, "segment_minutes": 0.13, "mem_mb": 500, "settings": settings}
    slurm_work.configure(dict.fromkeys(RUNS, run))
    accidents = Accidents(slurm_work, cluster)

    end = time.monotonic() + MINUTES * 60
    driver, repaired = slurm_work.start(), time.monotonic()
    while time.monotonic() < end:
        if driver.process.poll() is not None:
            if all(slurm_work.places(name).final.exists() for name in RUNS):
                break
            driver = slurm_work.start()
        accidents.one(driver)
        if time.monotonic() > repaired + REPAIR_SECONDS:
            accidents.repair()
            repaired = time.monotonic()
    until_done(slurm_work, driver, accidents)

    print(f"accidents: {accidents.happened}; drivers: {len(slurm_work.drivers)}")
    whole = uninterrupted(tmp_path / "whole", GOAL)
    wrong = [name for name in RUNS if slurm_work.final(name) != whole]
    assert wrong == []
    assert [line for name in RUNS for line in overlaps(slurm_work.history(name))] == []
    settled = {name: [each.segment for each in slurm_work.history(name) if each.outcome.settles] for name in RUNS}
    assert {name: found for name, found in settled.items() if found != sorted(set(found))} == {}
    assert sum(accidents.happened.values()) >= MINUTES * 10


def until_done(work: WorkDir, driver: Driver, accidents: Accidents) -> None:
    """The same command again until nothing is left; runs that use up their segments get more."""
    for _ in range(20):
        give_up = time.monotonic() + 600
        while driver.process.poll() is None:
            assert time.monotonic() < give_up, driver.text
            accidents.repair()
            time.sleep(2)
        if driver.process.returncode == 0 and all(work.places(name).final.exists() for name in RUNS):
            return
        settings = {"goal": GOAL, "step_seconds": 0.02, "save_steps": 50}
        more = {"engine": "toy", "segments": 40, "segment_minutes": 1, "mem_mb": 500, "settings": settings}
        work.configure(dict.fromkeys(RUNS, more))
        driver = work.start()
    raise AssertionError("twenty drivers did not bring all runs to their ends")
