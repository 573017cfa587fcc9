"""A training's connection to the place where its checkpoints go: when to save, and what is on its way there.

Standard library alone.
"""

from __future__ import annotations

import atexit
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.runs.progress import Progress
from unbroken.runs.segment_end import EndKind
from unbroken.training.core.environment import (
    WAIT_POLL_SECONDS,
    Contract,
    Reporter,
    SavePlace,
    Signals,
    passport_versions,
    schedule_of,
)
from unbroken.training.core.provenance import differences
from unbroken.training.core.run_directory import say
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase

# Before the first save nothing is known: 100 MB/s is a slow disk.
GUESSED_BYTES_PER_SECOND = 100e6
# What is smaller is written in less time than a thread takes to come to work.
BACKGROUND_BYTES = 16_000_000
TOLD_CHANGE = 1.5


class Connection(ABC):
    """Made before any worker process is, which inherit the signal handlers.

    `guessed_bytes` is how much the first save may write.
    """

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, guessed_bytes: int) -> None:
        saves = contract.saves(saves)
        self.contract, self.place, self._saves = contract, place, saves
        self.reporter = Reporter(contract.progress)
        signals = Signals()
        signals.install()
        self.pace = schedule_of(contract, saves, guessed_bytes / GUESSED_BYTES_PER_SECOND, signals)
        self._pid = os.getpid()
        self._has_memory: bool | None = None
        self._told_interval = math.nan
        atexit.register(self._at_exit)

    @abstractmethod
    def poll(self, following: Phase) -> None:
        """Between two steps: sees how the save beside the training is doing, and raises what went wrong with it."""

    @abstractmethod
    def wait(self) -> None:
        """Returns when no save is on its way any more; raises what went wrong with it."""

    @abstractmethod
    def _lack_of_memory(self, size_bytes: int) -> str:
        """What a save of this size beside the training has too little memory for; empty if there is enough."""

    @abstractmethod
    def _made_with(self) -> Mapping[str, str]:
        """What a passport says of the means of this process."""

    def tell_what_changed(self) -> None:
        """Says with what the checkpoint was made that we go on from, where that shows in the result."""
        resume = self.contract.resume
        other = differences(passport_versions(resume), self._made_with()) if resume else ""
        if other:
            self._say(
                f"environment changed since this checkpoint ({other}): training continues but is not bit-identical"
            )

    def is_save_due(self, step: int) -> bool:
        """True if it is time, and what was saved before is on its way: to go on is better than to wait."""
        return self.pace.is_save_due(step) and not self.pace.is_saving and self.place.has_room

    def wait_for_room(self, following: Phase) -> None:
        """Returns when one more checkpoint may be handed over, or when there is no time to wait."""
        self.wait()
        while not self.place.has_room and not self.pace.must_stop(following):
            time.sleep(WAIT_POLL_SECONDS)

    def fall_back(self, reason: str) -> Path | None:
        """Rejects the checkpoint that was loaded; gives the one before, if this process is to go on from there."""
        return self.place.reject(reason)

    def close_place(self, is_paused: bool) -> None:
        """Lets others go on: the last checkpoint of this process is published."""
        if is_paused:
            self.place.note_end(EndKind.PAUSED if self.pace.is_time_up else EndKind.INTERRUPTED)
        self.place.close()

    def with_pace(self, progress: Progress) -> Progress:
        """The progress, with how often a save is made if that was left to us."""
        return replace(progress, metrics={**progress.metrics, **self.pace.chosen})

    def _may_be_in_background(self, size_bytes: int) -> bool:
        wanted = self._saves.in_background
        if wanted is False or (wanted is None and size_bytes < BACKGROUND_BYTES):
            return False
        if self._has_memory is None:
            lack = self._lack_of_memory(size_bytes)
            self._has_memory = not lack
            if lack:
                self._say(f"no async checkpoints, saves stop the training: not enough free memory for {lack}")
        return self._has_memory

    def _note_saved(self, seconds: float, stall_seconds: float | None = None) -> None:
        """A save took so long; the training stood still for all of it, or for `stall_seconds`."""
        self.pace.saved(seconds, stall_seconds)
        self._tell_interval()

    def _tell_interval(self) -> None:
        """Says it in the log, if it follows from something new."""
        interval, before = self.pace.interval_seconds, self._told_interval
        if self.pace.chosen and not (before / TOLD_CHANGE < interval < before * TOLD_CHANGE):
            self._told_interval = interval
            self._say(
                f"a save stops the training for {self.pace.stall_seconds:.3g} s; with a failure every "
                f"{self._saves.mtbf_hours:g} h it is best to save every {interval:.3g} s"
            )

    def _say(self, line: str) -> None:
        say(line)

    def _wait_at_exit(self) -> None:
        """What `wait` does, at the end of a training that ends by an error."""
        self.wait()

    def _at_exit(self) -> None:
        """A training that ends by an error still keeps what it saved before."""
        if os.getpid() != self._pid:
            return  # a fork has no thread that writes, and would wait for it for ever
        try:
            self._wait_at_exit()
        except Exception as error:  # noqa: BLE001  (the process ends with an error of its own already)
            say(f"the last save failed: {error}")
