"""Everything that can happen, at random and for long, to runs of one engine on a real cluster: `make soak`."""

import importlib
import json
import os
import random
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cluster.accidents import Accidents
from cluster.detached import detached
from cluster.lab import Cluster
from engines.conformance import Case, Chain, compared
from support.workdir import Driver, WorkDir, overlaps

ASKED = os.environ.get("UNBROKEN_SOAK_ENGINE", "toy")
# Programs of one engine that another file of tests has the case of.
ENGINE, CASES = {"command_exit": ("command", "test_killed_while_publishing")}.get(ASKED, (ASKED, f"test_{ASKED}"))
NAMES = {
    "command_exit": "command (`saved_by: exit`)",
    "dmtcp": "dmtcp" if os.environ.get("UNBROKEN_DMTCP") else "dmtcp (stand-in)",
}
HOW = os.environ.get("UNBROKEN_SOAK_HOW", "attached")
MINUTES = float(os.environ.get("UNBROKEN_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("UNBROKEN_SOAK_SEED", "1"))
RESULTS = os.environ.get("UNBROKEN_SOAK_RESULTS", "")
# Twenty that wait are no load; the others start programs that take seconds of a core.
RUNS = {"toy": 12, "command": 8}.get(ENGINE, 4)
SEGMENTS = 40
MOST_DRIVERS = 400
LONGEST_MINUTES = 8  # the cluster's partition has ten
PATIENCE_SECONDS = 1200.0


class Round:
    """Some runs of one engine, from their first step to their results."""

    def __init__(self, work: WorkDir, cluster: Cluster, case: Case, name: str) -> None:
        self.work, self.cluster, self.case = work, cluster, case
        self.runs = [f"{name}_{number:02d}" for number in range(RUNS)]
        self.segments = SEGMENTS
        self.drivers: list[Driver] = []
        for file in case.files:
            shutil.copyfile(file, work.root / file.name)
        self._configure()

    def _configure(self) -> None:
        run = {
            "engine": ENGINE,
            "segments": self.segments,
            "segment_minutes": min(max(self.case.segment_minutes, 0.5), LONGEST_MINUTES),
            "save_minutes": self.case.save_minutes,
            "attempts_without_progress": 1000,
            "settings": dict(self.case.settings),
        }
        self.work.configure(dict.fromkeys(self.runs, run))

    def over(self) -> bool:
        return all((self.work.places(run).final / "summary.json").exists() for run in self.runs)

    def start(self) -> Driver:
        """The command that people type again after any failure; runs that used up their segments get more."""
        assert len(self.work.drivers) < MOST_DRIVERS, self.work.drivers[-1].text
        begun = any(self.work.history(run) for run in self.runs)
        assert begun or all(driver.process.returncode in (0, None, -9) for driver in self.drivers), self.drivers[
            -1
        ].text
        used = max((len(list(self.work.places(run).segments.glob("*.json"))) for run in self.runs), default=0)
        if used >= self.segments:
            self.segments += SEGMENTS
            self._configure()
        self.drivers.append(self.work.start())
        return self.drivers[-1]

    def play(self, accidents: Accidents, until: float) -> None:
        """With accidents until that moment, then in peace."""
        accidents.begin(self.runs)
        driver = self.start()
        give_up = until + PATIENCE_SECONDS
        while not self.over():
            assert time.monotonic() < give_up, driver.text
            if driver.process.poll() is not None and (HOW == "attached" or not self._has_jobs()):
                driver = self.start()
            if time.monotonic() < until:
                accidents.one(driver if HOW == "attached" else None)
            accidents.repair()
            time.sleep(0.05 if HOW == "attached" else 0.2)
        driver.wait()

    def _has_jobs(self) -> bool:
        return bool(self.cluster.jobs("pending,running,completing"))

    def wrong(self, whole: dict[str, bytes]) -> list[str]:
        """Runs whose results are not those of an uninterrupted one."""
        return [run for run in self.runs if compared(self.work.places(run).final, self.case) != whole]

    def lost(self) -> list[str]:
        """Attempts that did not go on from the newest checkpoint, or beside another one."""
        lines = {run: [each for each in self.work.history(run) if not each.kind.is_before_work] for run in self.runs}
        return [f"{run}: {line}" for run, worked in lines.items() for line in overlaps(worked)]

    def twice(self) -> list[str]:
        """Runs of which a segment was settled more than once."""
        settled = {run: [each.segment for each in self.work.history(run) if each.kind.settles] for run in self.runs}
        return [run for run, found in settled.items() if found != sorted(set(found))]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(int(MINUTES * 60) + 3600)
def test_runs_survive_whatever_happens_to_them(slurm_work: WorkDir, cluster: Cluster, tmp_path: Path) -> None:
    case = importlib.import_module(f"engines.{CASES}").CASE
    single = Chain(tmp_path / "whole", case)
    single.configure_whole()
    assert single.run() == 0, single.said()
    work = detached(slurm_work) if HOW == "detached" else slurm_work
    accidents = Accidents(work, cluster, random.Random(SEED))

    begin = time.monotonic()
    end, rounds = begin + MINUTES * 60, []
    while time.monotonic() < end:
        rounds.append(Round(work, cluster, case, f"r{len(rounds):03d}"))
        rounds[-1].play(accidents, end)
        came = f"{sum(len(each.runs) for each in rounds)} runs, {accidents.kills.total()} kills"
        print(f"{(time.monotonic() - begin) / 60:.0f} of {MINUTES:g} minutes: {came}", flush=True)

    found = {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "engine": NAMES.get(ASKED, ASKED),
        "how": HOW,
        "seed": SEED,
        "minutes": round((time.monotonic() - begin) / 60),
        "runs": sum(len(each.runs) for each in rounds),
        "kills": dict(accidents.kills),
        "others": dict(accidents.others),
        "lost": sum(len(each.lost()) for each in rounds),
        "wrong": sum(len(each.wrong(single.final())) for each in rounds),
    }
    print(json.dumps(found))
    if RESULTS:
        with open(RESULTS, "a") as file:
            file.write(json.dumps(found) + "\n")
    assert [line for each in rounds for line in each.lost()] == []
    assert [run for each in rounds for run in each.wrong(single.final())] == []
    assert [run for each in rounds for run in each.twice()] == []
    assert accidents.kills.total() >= MINUTES
