"""What the conformance suite needs to know of an engine, and a chain of it that can be run and killed."""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml
from support.prefork import Started, start_command
from support.toyrun import is_alive, programs_of

from unbroken.config.package_files import root_folder
from unbroken.engines.found import found_engines

ROOT = root_folder()
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
RUN = "case"
VICTIMS = ("driver", "segment", "program")
# What an attempt comes to, on a quick machine and on a slow one; a kill follows at once, or a moment later.
EARLY = ("begun", "started")
AT_WORK = ("advanced", "saved", "told to stop")
MOMENT_SECONDS = 0.1
# More than any number of kills needs: something else ends them.
MOST_DRIVERS = 100


def engines() -> list[str]:
    """Return the engines that this package brings."""
    return sorted(name for name, engine in found_engines().items() if engine.is_ours)


@dataclass(frozen=True)
class Case:
    """A small run of an engine: ends after two segments at least, and its result is the same each time."""

    settings: Mapping[str, object]
    segments: int
    segment_minutes: float
    save_minutes: float
    final_files: tuple[str, ...]  # must be there; all but `per_piece` are byte-identical however the run was cut
    other_settings: Mapping[str, object]  # make another computation of it
    further_goal: float | None  # None: only the program itself knows its end, and the engine has no such setting
    example_files: tuple[str, ...] = ()  # copied from examples/<engine>
    whole_settings: Mapping[str, object] = field(default_factory=dict)  # may differ where nothing interrupts
    kills: int = 10
    # Shares of the goal at which the pieces are cut, for a program that takes long to start: `segment_minutes` are
    # then more than a slow machine needs.  Where there are none, the clock cuts.
    cuts: tuple[float, ...] = ()
    per_piece: tuple[str, ...] = ()  # globs of results that tell how the run was cut, or hold times
    own_save: str = ""  # where the program works: what it saves into, of an engine that publishes at the end alone


def compared(final: Path, case: Case) -> dict[str, bytes]:
    """Return the results in a folder by name, all but those that tell how the run was cut."""
    names = {path.relative_to(final).as_posix() for path in final.rglob("*") if path.is_file()}
    assert names >= set(case.final_files)
    excepted = ("summary.json", *case.per_piece)
    names = {name for name in names if not any(PurePath(name).match(glob) for glob in excepted)}
    return {name: (final / name).read_bytes() for name in names}


class Chain:
    """A working directory with one run in it."""

    def __init__(self, folder: Path, engine: str, case: Case) -> None:
        self.folder, self.engine, self.case = folder, engine, case
        self._drivers = 0
        (folder / "config").mkdir(parents=True)
        for name in case.example_files:
            shutil.copyfile(ROOT / "examples" / engine / name, folder / name)

    @property
    def results(self) -> Path:
        return self.folder / "results" / RUN

    def configure(self, settings: Mapping[str, object] = {}, **run_keys: object) -> None:
        self._run = {
            "engine": self.engine,
            "segments": self.case.segments,
            "segment_minutes": self.case.segment_minutes,
            "save_minutes": self.case.save_minutes,
            "settings": {**self.case.settings, **settings},
            **run_keys,
        }
        self._write(self._run)

    def configure_whole(self, **settings: object) -> None:
        self.configure({**self.case.whole_settings, **settings}, segments=1, segment_minutes=20, save_minutes=20)

    def start(self, *arguments: str) -> Started:
        command = [SNAKEMAKE, "-s", ROOT / "Snakefile", "--cores", "1", *arguments]
        with (self.folder / "driver.log").open("a") as log:
            return start_command(list(map(str, command)), self.folder, os.environ, log)

    def run(self, *targets: str) -> int:
        """Runs snakemake; to the run's end if no target is given."""
        code = self.start(*targets).wait()
        for _ in range(MOST_DRIVERS):
            if code or targets or self.has_ended:
                break
            self._add_segments()
            code = self.start().wait()
        return code

    def keep(self) -> None:
        """Keeps the working directory as it stands now, for `restore`."""
        shutil.copytree(self.folder, self._kept, symlinks=True)

    def restore(self) -> None:
        """In its own place: a process image of DMTCP is made for its folder."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)

    @property
    def _kept(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.kept")

    def run_on_in_pieces(self) -> int:
        """Runs snakemake, after the first segment, to the run's end in several segments."""
        further = self.case.cuts[1:]
        if not further:
            return self.run()
        hits = self.run_with_hits(further, self.warn)
        return 0 if hits == len(further) else 1

    def run_first_segment(self) -> int:
        """Runs snakemake for the first segment alone, which is cut."""
        driver = self.start(f"results/{RUN}/segments/001.json")
        for share in self.case.cuts[:1]:
            while not self._is_at(share) and driver.poll() is None:
                time.sleep(0.02)
            self.warn(driver)
        return driver.wait()

    @property
    def has_ended(self) -> bool:
        return (self.results / "final" / "summary.json").exists()

    def _add_segments(self) -> None:
        """On a busy machine a segment comes less far, so more of them are needed."""
        self._run["segments"] += self.case.segments
        self._write(self._run)

    def _write(self, run: Mapping[str, Any]) -> None:
        (self.folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {RUN: run}}))

    def said(self) -> str:
        return (self.folder / "driver.log").read_text()

    def history(self) -> list[dict[str, object]]:
        path = self.results / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def final(self) -> dict[str, bytes]:
        """Return the results by name, all but those that tell how the run was cut."""
        return compared(self.results / "final", self.case)

    def claim(self) -> Mapping[str, Any] | None:
        """The lease of the run, if somebody holds it now."""
        while claims := sorted((self.results / "lease").glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # a successor has just removed it
                claim = json.loads(claims[-1].read_text())
                return None if claim["released_utc"] else claim
        return None

    def holder(self) -> int | None:
        """The process that holds the run now."""
        claim = self.claim()
        return claim["pid"] if claim else None

    def run_with_hits(self, shares: Sequence[float], hit: Callable[[Started], int]) -> int:
        """Runs to the end; returns how often `hit(driver)` says that it met something.

        It is called as soon as the attempt at work has come to each of these shares of the goal, however quick the
        machine is.
        """
        hits, driver = 0, self.start()
        for share in sorted(shares):
            while not self._is_at(share):
                driver = self._at_work(driver)
                assert not self.has_ended, self.said()
                time.sleep(0.02)
            hits += hit(driver)
        driver.wait()
        assert self.run() == 0, self.said()
        return hits

    def warn(self, driver: Started) -> int:
        """Tells the segment at work that its time is nearly up, and waits until it has left."""
        holder = self.holder()
        if holder is None or not _has_met(holder, signal.SIGUSR1):
            return 0
        while self.holder() == holder and is_alive(holder):
            time.sleep(0.02)
        return 1

    def kill_one(self, dice: random.Random) -> Callable[[Started], int]:
        """Kills the driver, the segment or its program, a moment later."""

        def kill(driver: Started) -> int:
            time.sleep(dice.uniform(0, MOMENT_SECONDS))
            return self._kill(dice.choice(VICTIMS), driver)

        return kill

    @property
    def hurry(self) -> Path:
        """A file that is there once no further kill comes, for a program that then need not rest any more."""
        return self.folder / "no-further-kills"

    def run_with_kills(self, seed: str) -> int:
        """Runs to the end and kills on the way; returns the kills that met something: all, if the run is long enough.

        The attempt at work is hit when it has come to the moment, whichever driver started it.  The last victim is the
        driver, so that its orphan works on beside the next one.
        """
        dice, kills = random.Random(seed), 0
        driver = self.start()
        for victim, moment in _drawn(self.case.kills, dice):
            is_hit = 0
            while not is_hit and not self.has_ended:
                driver = self._at_work(driver)
                if self._has_come_to(moment):
                    time.sleep(dice.uniform(0, MOMENT_SECONDS))
                    is_hit = self._kill(victim, driver)
                time.sleep(0.01)
            kills += is_hit
        self.hurry.touch()
        driver.wait()
        assert self.run() == 0, self.said()
        return kills

    def _at_work(self, driver: Started) -> Started:
        """This driver, or the next one if it has left."""
        if driver.poll() is None:
            return driver
        self._drivers += 1
        assert self._drivers <= MOST_DRIVERS, self.said()
        if driver.returncode == 0 and not self.has_ended:
            self._add_segments()
        return self.start()

    def _has_come_to(self, moment: str) -> bool:
        """True if the attempt that works now has come so far; it is told to stop for that, where nobody else does."""
        claim = self._living_claim()
        if not claim or moment == "begun":
            return claim is not None
        if not any(is_alive(pid) for pid in programs_of(claim["pid"])):
            return False
        if moment == "saved":
            return self._has_saved(claim["token"])
        if moment == "told to stop":
            return self._is_at(0) and self._is_told_to_stop(claim["pid"])
        return moment == "started" or self._is_at(0)

    def _is_at(self, share: float) -> bool:
        """True if the attempt that works now has made a step, and says that it has come to this share of the goal."""
        claim = self._living_claim()
        if not claim:
            return False
        try:
            told = json.loads((self._desk(claim["token"]) / "progress.json").read_text())
        except FileNotFoundError:
            return False
        before = max((attempt["progress_to"] for attempt in self.history()), default=0)
        return told["done"] > before and told["done"] >= share * (told["goal"] or 0)

    def _living_claim(self) -> Mapping[str, Any] | None:
        claim = self.claim()
        return claim if claim and is_alive(claim["pid"]) else None

    def _has_saved(self, token: int) -> bool:
        """True if there is something of this attempt to go on from."""
        if self.case.own_save:
            return any(self._desk(token).rglob(self.case.own_save))
        try:
            newest = json.loads((self.results / "checkpoints" / "latest" / "manifest.json").read_text())
        except FileNotFoundError:
            return False
        return newest["token"] == token

    def _desk(self, token: int) -> Path:
        return self.results / "work" / f"{token:06d}"

    def _is_told_to_stop(self, holder: int) -> bool:
        """Warns the segment and waits until it has passed that on; False if it ended before."""
        before = self._stops()
        is_warned = _has_met(holder, signal.SIGUSR1)
        while is_warned and is_alive(holder) and self._stops() == before:
            time.sleep(0.01)
        return self._stops() > before

    def _stops(self) -> int:
        """In all logs, of which Snakemake removes those of a job that it starts again."""
        while True:
            logs = (self.folder / "logs" / RUN).glob("*.log")
            with suppress(FileNotFoundError):
                return sum(log.read_text(errors="replace").count("stopping the program") for log in logs)

    def _kill(self, victim: str, driver: Started) -> int:
        if victim == "driver":
            is_met = driver.poll() is None
            driver.kill()
            driver.wait()
            return int(is_met)
        holder = self.holder()
        if holder is None:
            return 0
        program = programs_of(holder) if victim == "program" else []  # it may not be there yet, or any more
        hits = [_has_met(pid, signal.SIGKILL) for pid in program or [holder]]
        return int(any(hits))


def _drawn(kills: int, dice: random.Random) -> list[tuple[str, str]]:
    """So many victims, each with its moment; the last driver comes after all others."""
    victims: list[str] = []
    moments: list[str] = []
    while len(victims) < kills:
        victims = [*dice.sample(["segment", "program"], 2), "driver", *victims]
        moments += dice.sample(AT_WORK, len(AT_WORK)) + dice.sample(EARLY, len(EARLY))
    moments = dice.sample(moments[:kills], kills)
    return [
        (victim, "started" if victim == "program" and moment == "begun" else moment)
        for victim, moment in zip(victims[-kills:], moments, strict=True)
    ]


def _has_met(pid: int, number: int) -> bool:
    """Sends a signal; False if the process is gone, buried or not."""
    if not is_alive(pid):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
