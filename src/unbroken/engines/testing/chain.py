"""Run a chain of segments of one engine in a working directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Protocol

import yaml

from unbroken.config.package_files import snakefile
from unbroken.store.layout import RunFolder

RUN = "case"
# More than any number of kills needs: something else ends them.
MOST_DRIVERS = 100


@dataclass(frozen=True)
class Case:
    """Describe a small run of an engine, which ends after two segments at least, with the same result each time.

    `settings` are those of the run; `whole_settings` may differ where nothing interrupts, such as a pause between
    steps.  `files` are copied into the working directory.
    """

    engine: str
    settings: Mapping[str, object]
    segments: int
    segment_minutes: float
    save_minutes: float
    final_files: tuple[str, ...]  # must be there; all but `per_piece` are byte-identical however the run was cut
    other_settings: Mapping[str, object]  # make another computation of it
    further_goal: float | None  # None: only the program itself knows its end, and the engine has no such setting
    files: tuple[Path, ...] = ()
    whole_settings: Mapping[str, object] = field(default_factory=dict)
    kills: int = 10
    # Shares of the goal at which the pieces are cut, for a program that takes long to start: `segment_minutes` are
    # then more than a slow machine needs.  Where there are none, the clock cuts.
    cuts: tuple[float, ...] = ()
    per_piece: tuple[str, ...] = ()  # globs of results that tell how the run was cut, or hold times
    own_save: str = ""  # where the program works: what it saves into, of an engine that publishes at the end alone


class BrokenPromiseError(AssertionError):
    """Say which promise an engine does not keep."""


def must(is_so: object, text: str) -> None:
    """Raise BrokenPromiseError unless it is so."""
    if not is_so:
        raise BrokenPromiseError(text)


class Started(Protocol):
    """A process, as subprocess.Popen has it."""

    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


def compared(final: Path, case: Case) -> dict[str, bytes]:
    """Return the results in a folder by name, all but those that tell how the run was cut."""
    names = {path.relative_to(final).as_posix() for path in final.rglob("*") if path.is_file()}
    must(names >= set(case.final_files), f"{final} lacks {sorted(set(case.final_files) - names)}")
    excepted = ("summary.json", *case.per_piece)
    names = {name for name in names if not any(PurePath(name).match(glob) for glob in excepted)}
    return {name: (final / name).read_bytes() for name in names}


class Chain:
    """A working directory with one run in it."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        self._drivers = 0
        (folder / "config").mkdir(parents=True)
        for path in case.files:
            shutil.copyfile(path, folder / path.name)

    @property
    def places(self) -> RunFolder:
        return RunFolder(RUN, self.folder)

    @property
    def results(self) -> Path:
        return self.places.root

    def configure(self, settings: Mapping[str, object] = {}, **run_keys: object) -> None:
        """Write config.yaml: the case, with some settings and keys of the run changed."""
        self._run: dict[str, Any] = {
            "engine": self.case.engine,
            "segments": self.case.segments,
            "segment_minutes": self.case.segment_minutes,
            "save_minutes": self.case.save_minutes,
            "settings": {**self.case.settings, **settings},
            **run_keys,
        }
        self._write()

    def configure_whole(self, **settings: object) -> None:
        """Write config.yaml for the run in one segment that nothing interrupts."""
        self.configure({**self.case.whole_settings, **settings}, segments=1, segment_minutes=20, save_minutes=20)

    def start(self, *arguments: str) -> Started:
        """Start snakemake; its output is appended to driver.log."""
        command = [sys.executable, "-m", "snakemake", "-s", str(snakefile()), "--cores", "1"]
        with (self.folder / "driver.log").open("a") as log:
            return subprocess.Popen([*command, *arguments], cwd=self.folder, stdout=log, stderr=log)

    def run(self, *targets: str) -> int:
        """Run snakemake, to the run's end if no target is given; return its exit code."""
        code = self.start(*targets).wait()
        for _ in range(MOST_DRIVERS):
            if code or targets or self.has_ended:
                break
            self._add_segments()
            code = self.start().wait()
        return code

    def run_to_end(self) -> None:
        """Run snakemake to the run's end; raise BrokenPromiseError if that fails."""
        must(self.run() == 0, self.said())

    def keep(self) -> None:
        """Keep the working directory as it stands now, for `restore`."""
        shutil.copytree(self.folder, self._kept, symlinks=True)

    def restore(self) -> None:
        """Put the kept state back in its own place: an engine may be tied to its folder."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)

    @property
    def _kept(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.kept")

    def run_first_segment(self) -> None:
        """Run snakemake for the first segment alone, which is cut."""
        driver = self.start(f"results/{RUN}/segments/001.json")
        for share in self.case.cuts[:1]:
            while not self.is_at(share) and driver.poll() is None:
                time.sleep(0.02)
            self.warn(driver)
        must(driver.wait() == 0, self.said())

    def run_on_in_pieces(self) -> None:
        """Run snakemake, after the first segment, to the run's end in several segments."""
        further = self.case.cuts[1:]
        if not further:
            self.run_to_end()
        else:
            must(self.run_with_hits(further, self.warn) == len(further), self.said())

    @property
    def has_ended(self) -> bool:
        return (self.places.final / "summary.json").exists()

    def _add_segments(self) -> None:
        """Give it more of them: on a busy machine a segment comes less far."""
        self._run["segments"] += self.case.segments
        self._write()

    def _write(self) -> None:
        (self.folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {RUN: self._run}}))

    def said(self) -> str:
        """Return all that snakemake has printed."""
        return (self.folder / "driver.log").read_text()

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of history."""
        path = self.places.history
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def final(self) -> dict[str, bytes]:
        """Return the results by name, all but those that tell how the run was cut."""
        return compared(self.places.final, self.case)

    def claim(self) -> Mapping[str, Any] | None:
        """Return the lease of the run, if somebody holds it now."""
        while claims := sorted(self.places.lease.glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # a successor has just removed it
                claim: Mapping[str, Any] = json.loads(claims[-1].read_text())
                return None if claim["released_utc"] else claim
        return None

    def holder(self) -> int | None:
        """Return the process that holds the run now."""
        claim = self.claim()
        return claim["pid"] if claim else None

    def run_with_hits(self, shares: Sequence[float], hit: Callable[[Started], int]) -> int:
        """Run to the end; return how often `hit(driver)` says that it met something.

        It is called as soon as the attempt at work has come to each of these shares of the goal, however quick the
        machine is.
        """
        hits, driver = 0, self.start()
        for share in sorted(shares):
            while not self.is_at(share):
                driver = self.at_work(driver)
                must(not self.has_ended, self.said())
                time.sleep(0.02)
            hits += hit(driver)
        driver.wait()
        self.run_to_end()
        return hits

    def warn(self, driver: Started) -> int:
        """Tell the segment at work that its time is nearly up, and wait until it has left."""
        holder = self.holder()
        if holder is None or not has_met(holder, signal.SIGUSR1):
            return 0
        while self.holder() == holder and is_alive(holder):
            time.sleep(0.02)
        return 1

    def at_work(self, driver: Started) -> Started:
        """Return this driver, or the next one if it has left."""
        if driver.poll() is None:
            return driver
        self._drivers += 1
        must(self._drivers <= MOST_DRIVERS, self.said())
        if driver.returncode == 0 and not self.has_ended:
            self._add_segments()
        return self.start()

    def is_at(self, share: float) -> bool:
        """Return True if the attempt at work has made a step, and says that it has come to this share of the goal."""
        claim = self.living_claim()
        if not claim:
            return False
        try:
            told = json.loads((self.attempt_folder(claim["token"]) / "progress.json").read_text())
        except FileNotFoundError:
            return False
        before = max((attempt["progress_to"] for attempt in self.history()), default=0)
        return bool(told["done"] > before and told["done"] >= share * (told["goal"] or 0))

    def living_claim(self) -> Mapping[str, Any] | None:
        """Return the lease of the attempt at work; None if its process is gone."""
        claim = self.claim()
        return claim if claim and is_alive(claim["pid"]) else None

    def attempt_folder(self, token: int) -> Path:
        """Return where the attempt works that has this token."""
        return self.places.work / f"{token:06d}"


def is_alive(pid: int) -> bool:
    """Return True while the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def has_met(pid: int, number: int) -> bool:
    """Send a signal; return False if the process is gone, whether its parent has noticed or not."""
    if not is_alive(pid):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
