"""What the conformance suite needs to know of an engine, and a chain of it that can be run and killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from support.toyrun import children_of

from longhaul.installed import root_folder

ROOT = root_folder()
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
RUN = "case"


def engines() -> list[str]:
    """The engines that have a rule file; two files hold what belongs to none."""
    return sorted({path.stem for path in (ROOT / "workflow" / "rules").glob("*.smk")} - {"common", "overview"})


@dataclass(frozen=True)
class Case:
    """A small run of an engine: ends after two segments at least, and its result is the same each time."""

    settings: Mapping[str, object]
    segments: int
    segment_minutes: float
    save_minutes: float
    final_files: tuple[str, ...]  # must be byte-identical however the run was cut
    other_settings: Mapping[str, object]  # make another computation of it
    further_goal: float | None  # None: only the program itself knows its end, and the engine has no such setting
    example_files: tuple[str, ...] = ()  # copied from examples/<engine>
    whole_settings: Mapping[str, object] = field(default_factory=dict)  # may differ where nothing interrupts
    kills: int = 10
    longest_pause_seconds: float = 0.9  # between two kills; long enough that some segments advance


class Chain:
    """A working directory with one run in it."""

    def __init__(self, folder: Path, engine: str, case: Case) -> None:
        self.folder, self.engine, self.case = folder, engine, case
        (folder / "config").mkdir(parents=True)
        for name in case.example_files:
            shutil.copyfile(ROOT / "examples" / engine / name, folder / name)

    @property
    def results(self) -> Path:
        return self.folder / "results" / RUN

    def configure(self, settings: Mapping[str, object] = {}, **run_keys: object) -> None:
        self._run = run = {
            "engine": self.engine,
            "segments": self.case.segments,
            "segment_minutes": self.case.segment_minutes,
            "save_minutes": self.case.save_minutes,
            "settings": {**self.case.settings, **settings},
            **run_keys,
        }
        self._write(run)

    def configure_whole(self, **settings: object) -> None:
        self.configure({**self.case.whole_settings, **settings}, segments=1, segment_minutes=20, save_minutes=20)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [SNAKEMAKE, "-s", ROOT / "Snakefile", "--cores", "1", *arguments]
        with (self.folder / "driver.log").open("a") as log:
            return subprocess.Popen(
                list(map(str, command)), cwd=self.folder, stdout=log, stderr=log, start_new_session=True, text=True
            )

    def run(self, *targets: str) -> int:
        """Runs snakemake; to the run's end if no target is given."""
        code = self.start(*targets).wait()
        # On a busy machine a segment comes less far, so more of them are needed.
        for times in range(2, 9):
            if code or targets or (self.results / "final" / "summary.json").exists():
                break
            self._write({**self._run, "segments": times * self._run["segments"]})
            code = self.start().wait()
        return code

    def _write(self, run: Mapping[str, object]) -> None:
        (self.folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {RUN: run}}))

    def said(self) -> str:
        return (self.folder / "driver.log").read_text()

    def history(self) -> list[dict[str, object]]:
        path = self.results / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def final(self) -> dict[str, bytes]:
        return {name: (self.results / "final" / name).read_bytes() for name in self.case.final_files}

    def claim(self) -> Mapping[str, object] | None:
        """The lease of the run, if somebody holds it now."""
        while claims := sorted((self.results / "lease").glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # a successor has just removed it
                claim = json.loads(claims[-1].read_text())
                return None if claim["released_utc"] else claim
        return None

    def holder(self) -> int | None:
        """The process that holds the run now."""
        claim = self.claim()
        return int(claim["pid"]) if claim else None

    def run_with_hits(self, shares: Sequence[float], hit: Callable[[subprocess.Popen[str]], int]) -> int:
        """Runs to the end; returns how often `hit(driver)` says that it met something.

        It is called as soon as the attempt at work has come to each of these shares of the goal, however quick the
        machine is.
        """
        hits, driver = 0, self.start()
        for share in sorted(shares):
            while not self._is_at(share):
                if driver.poll() is not None:
                    assert not (self.results / "final" / "summary.json").exists(), self.said()
                    driver = self.start()
                time.sleep(0.02)
            hits += hit(driver)
        driver.wait()
        assert self.run() == 0, self.said()
        return hits

    def _is_at(self, share: float) -> bool:
        """True if the attempt that works now says that it has come so far."""
        claim = self.claim()
        if not claim or not Path(f"/proc/{claim['pid']}").exists():
            return False
        try:
            told = json.loads((self.results / "work" / f"{claim['token']:06d}" / "progress.json").read_text())
        except FileNotFoundError:
            return False
        before = max((attempt["progress_to"] for attempt in self.history()), default=0)
        return told["done"] > before and told["done"] >= share * told["goal"]

    def warn(self, driver: subprocess.Popen[str]) -> int:
        """Tells the segment at work that its time is nearly up."""
        return int((holder := self.holder()) is not None and _sent(holder, signal.SIGUSR1))

    def kill_one(self, dice: random.Random) -> Callable[[subprocess.Popen[str]], int]:
        """Kills the driver, the segment or its program, a moment later."""

        def kill(driver: subprocess.Popen[str]) -> int:
            time.sleep(dice.uniform(0, 0.1))
            return self._kill(dice.choice(["driver", "segment", "program"]), driver)

        return kill

    def run_with_kills(self, seed: int) -> int:
        """Runs to the end and kills driver, segment or program at random moments on the way; returns the kills made."""
        dice = random.Random(seed)
        kills = 0
        while kills < self.case.kills:
            driver = self.start()
            while kills < self.case.kills and driver.poll() is None:
                time.sleep(dice.uniform(0.1, self.case.longest_pause_seconds))
                victim = dice.choice(["driver", "segment", "program"])
                kills += self._kill(victim, driver)
            if driver.wait() == 0:
                return kills
        while (code := self.run()) != 0 and "without a step forward" in self.said():
            pass
        assert code == 0, self.said()
        return kills

    def _kill(self, victim: str, driver: subprocess.Popen[str]) -> int:
        if victim == "driver":
            driver.kill()
            driver.wait()
            return 1
        holder = self.holder()
        pids = [holder] if victim == "segment" else (children_of(holder) if holder else [])
        return sum(_sent(pid, signal.SIGKILL) for pid in pids if pid)


def _sent(pid: int, number: int) -> int:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return 0
    return 1
