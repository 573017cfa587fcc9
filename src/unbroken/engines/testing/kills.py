"""Kill what is at work in a chain of segments: the driver, the segment, or its program, at moments of its life."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from unbroken.engines.testing.chain import RUN, Chain, Started, has_met, is_alive
from unbroken.program import guard

VICTIMS = ("driver", "segment", "program")
# What an attempt comes to, on a quick machine and on a slow one; a kill follows at once, or a moment later.
EARLY = ("begun", "started")
AT_WORK = ("advanced", "saved", "told to stop")
MOMENT_SECONDS = 0.1


class KilledChain(Chain):
    """A chain that is killed while it works."""

    def kill_one(self, dice: random.Random) -> Callable[[Started], int]:
        """Return what kills the driver, the segment or its program, a moment later."""

        def kill(driver: Started) -> int:
            time.sleep(dice.uniform(0, MOMENT_SECONDS))
            return self._kill(dice.choice(VICTIMS), driver)

        return kill

    @property
    def hurry(self) -> Path:
        """A file that is there once no further kill comes, for a program that then need not rest any more."""
        return self.folder / "no-further-kills"

    def run_with_kills(self, seed: str) -> int:
        """Run to the end and kill on the way; return the kills that met something: all, if the run is long enough.

        The attempt at work is hit when it has come to the moment, whichever driver started it.  The last victim is the
        driver, so that its orphan works on beside the next one.
        """
        dice, kills = random.Random(seed), 0
        driver = self.start()
        for victim, moment in _drawn(self.case.kills, dice):
            is_hit = 0
            while not is_hit and not self.has_ended:
                driver = self.at_work(driver)
                if self._has_come_to(moment):
                    time.sleep(dice.uniform(0, MOMENT_SECONDS))
                    is_hit = self._kill(victim, driver)
                time.sleep(0.01)
            kills += is_hit
        self.hurry.touch()
        driver.wait()
        self.run_to_end()
        return kills

    def _has_come_to(self, moment: str) -> bool:
        """Return True if the attempt that works now has come so far; it is told to stop for that."""
        claim = self.living_claim()
        if not claim or moment == "begun":
            return claim is not None
        if not any(is_alive(pid) for pid in programs_of(claim["pid"])):
            return False
        if moment == "saved":
            return self._has_saved(claim["token"])
        if moment == "told to stop":
            return self.is_at(0) and self._is_told_to_stop(claim["pid"])
        return moment == "started" or self.is_at(0)

    def _has_saved(self, token: int) -> bool:
        """Return True if there is something of this attempt to go on from."""
        if self.case.own_save:
            return any(self.attempt_folder(token).rglob(self.case.own_save))
        try:
            newest = json.loads((self.places.checkpoints / "latest" / "manifest.json").read_text())
        except FileNotFoundError:
            return False
        return bool(newest["token"] == token)

    def _is_told_to_stop(self, holder: int) -> bool:
        """Warn the segment and wait until it has passed that on; return False if it ended before."""
        before = self._stops()
        is_warned = has_met(holder, signal.SIGUSR1)
        while is_warned and is_alive(holder) and self._stops() == before:
            time.sleep(0.01)
        return self._stops() > before

    def _stops(self) -> int:
        """Count in all logs, of which Snakemake removes those of a job that it starts again."""
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
        hits = [has_met(pid, signal.SIGKILL) for pid in program or [holder]]
        return int(any(hits))


def _drawn(kills: int, dice: random.Random) -> list[tuple[str, str]]:
    """Return so many victims, each with its moment; the last driver comes after all others."""
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


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def programs_of(pid: int) -> list[int]:
    """Return the programs that a segment has started, each behind its two guards; the oldest first."""
    outer = [child for child in children_of(pid) if is_guard(child)]
    inner = [child for each in outer for child in children_of(each)]
    return [child for each in inner for child in children_of(each) if not is_guard(child)]


def is_guard(pid: int) -> bool:
    """Return True also for what is just becoming the program."""
    try:
        return os.fsencode(guard.__file__) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True  # it has left
