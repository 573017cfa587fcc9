"""Connect a training to the destination of its checkpoints: when to save, and what is on its way there.

This module needs the standard library alone.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Imported, read_import
from unbroken.store.history import EndKind
from unbroken.store.progress import Progress, write_progress
from unbroken.store.trackers import note_mlflow
from unbroken.system.memory import available_bytes
from unbroken.training.core.environment import (
    WAIT_POLL_SECONDS,
    Contract,
    SavePlace,
    Signals,
    manifest_of,
    say,
)
from unbroken.training.core.point import NonFiniteState, Point
from unbroken.training.core.process_group import Processes
from unbroken.training.core.run_directory import note_begun
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase, SaveSchedule

Part = TypeVar("Part")
AnyPoint = TypeVar("AnyPoint", bound=Point)

# Before the first save nothing is known: 100 MB/s is a slow disk.
GUESSED_BYTES_PER_SECOND = 100e6
# What is smaller is written in less time than a thread takes to come to work.
BACKGROUND_BYTES = 16_000_000
# A copy, and as much for whatever else the training takes until its next step.
NEEDED_MEMORY = 2
# Launchers kill the ranks that are left after 10 s, and others may never come.
RANKS_EXIT_SECONDS = 5.0
REPORT_SECONDS = 1.0
# What of the environment changes the last digits; ranks are reported where their states take another form.
_CHANGING_DIGITS = ["torch", "tensorflow", "keras", "jax", "optax", "compiled"]
_CHANGING_DIGITS += ["devices", "threads", "gpus", "gpu", "cudnn", "tf32"]


def in_thread(work: Callable[[], Part]) -> Future[Part]:
    """Let a thread work that begins at once and does not outlive the process; return what its result will be."""
    future: Future[Part] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  (raised again where the result is taken)
            future.set_exception(error)

    threading.Thread(target=run, name="unbroken-save", daemon=True).start()
    return future


class Connection:
    """Hold what this process received at its start, its clock, and the destination of its checkpoints.

    `guessed_bytes` is how much the first save may write; `ranks` are all processes of the training, of which the first
    hands over.  Make it before any worker process, because those inherit the signal handlers.
    """

    background_bytes = BACKGROUND_BYTES  # what is smaller is written while the training waits
    _async_save: Future[tuple[float, float | None]] | None = None
    _is_import_read = False
    _has_stepped = False

    def __init__(
        self, contract: Contract, place: SavePlace, saves: Saves, guessed_bytes: int, ranks: Processes | None = None
    ) -> None:
        self.contract, self.place = contract, place
        self.saves = saves if contract.mtbf_hours is None else replace(saves, mtbf_hours=contract.mtbf_hours)
        self.ranks = ranks or Processes()
        self.signals = Signals()
        self.signals.install()
        self.pace = SaveSchedule(contract, self.saves, self.signals, guessed_bytes / GUESSED_BYTES_PER_SECOND)
        self._pid = os.getpid()
        origin = contract.resume
        self.import_note: Imported | None = read_import(origin)
        self._imported = origin / self.import_note.path if origin and self.import_note else None
        self.resumed = origin is not None and self._imported is None  # from a checkpoint
        self._has_memory: bool | None = None
        self._next_report = -math.inf
        self.give_up: Callable[[str], NoReturn] = sys.exit  # ends a training whose state must not be saved
        atexit.register(self._at_exit)

    # --- what frameworks differ in ---

    def _made_with(self) -> Mapping[str, str]:
        """Return what a manifest says of the means of this process."""
        return {}

    # --- between two steps ---

    def note_step(self) -> bool:
        """Note that a step is done, and see how the save in the background is doing; return True for the first one."""
        is_first, self._has_stepped = not self._has_stepped, True
        if is_first:
            self.place.note("first_step")
        self.poll()
        return is_first

    def is_save_due(self, step: int) -> bool:
        """Return True if it is time, and the save before is done: to continue is better than to wait."""
        return self.pace.is_save_due(step) and not self.pace.is_saving and self.place.has_room

    def report(self, progress: Callable[[], Progress]) -> bool:
        """Write the progress if the last report is old, with how often a save is made if that was left to us."""
        if (now := time.monotonic()) < self._next_report:
            return False
        self._next_report = now + REPORT_SECONDS
        shown = progress()
        write_progress(self.contract.progress, replace(shown, metrics={**shown.metrics, **self.pace.chosen}))
        note_mlflow(self.contract.live)
        return True

    def poll(self) -> None:
        """See how the save in the background is doing, and raise what went wrong with it."""
        if self._async_save and self._async_save.done():
            self.wait()

    def wait(self) -> None:
        """Return when no save is on its way any more; raise what went wrong with it."""
        with self._giving_up():
            self._end_async_save()

    def wait_for_room(self, following: Phase) -> None:
        """Return when one more checkpoint may be handed over, or when there is no time to wait."""
        self.wait()
        while not self.place.has_room and not self.pace.must_stop(following):
            time.sleep(WAIT_POLL_SECONDS)

    # --- at the start and the end ---

    def resume(self, restore: Callable[[Path], str]) -> str:
        """Restore the newest checkpoint that can be trusted, if there is one; return why none can be trusted.

        `restore` returns why one is not to be trusted, "" if it is.
        """
        self._say_what_changed()
        origin = self.contract.resume if self.resumed else None
        while origin and (error := restore(origin)):
            origin = self.place.reject(error)
            if origin is None or self.ranks.size > 1:  # several ranks end, and start again from there
                return error
        note_begun(self.contract)
        return ""

    @property
    def imported(self) -> Path | None:
        """Return the file or folder that `unbroken import` took, for the script to load."""
        self._is_import_read = True
        return self._imported

    def unread_import(self, loading: str) -> str:
        """Return an error message if the script does not load what was imported; `loading` says how to do it."""
        if self._imported is None or self._is_import_read:
            return ""
        return f"the run resumes from {self._imported}, which was imported, and the script does not load it; {loading}"

    def _say_what_changed(self) -> None:
        """Say with what the checkpoint was made that we resume from, where that shows in the result."""
        versions = manifest_of(self.contract.resume).get("versions") if self.contract.resume else None
        if other := differences(versions or {}, self._made_with()):
            self.ranks.say(
                f"environment changed since this checkpoint ({other}): training continues but is not bit-identical"
            )

    def close_place(self, *, is_paused: bool) -> None:
        """Let other processes continue: the last checkpoint of this process is published."""
        if is_paused:
            self.place.note_end(EndKind.PAUSED if self.pace.is_time_up else EndKind.INTERRUPTED)
        self.place.close()

    def _at_exit(self) -> None:
        """Keep what was saved before a training ends by an error."""
        if os.getpid() != self._pid:
            return  # a fork has no thread that writes, and would wait for it forever
        try:
            self._end_async_save(RANKS_EXIT_SECONDS if self.ranks.size > 1 else None)
        except Exception as error:  # noqa: BLE001  (the process ends with an error of its own already)
            say(f"the last save failed: {error}")

    # --- saves ---

    def begin(self, point: AnyPoint) -> AnyPoint:
        """Return the point, whose save begins now on all ranks, with a draft; wait for the save before."""
        self.wait()
        began = time.monotonic()
        draft = self.ranks.by_first(self._new_draft)
        self.pace.begin_save(point.step)
        return replace(point, draft=draft, began=began)

    def complete(
        self,
        point: AnyPoint,
        write: Callable[[AnyPoint], object],
        hold: Callable[[AnyPoint], AnyPoint] | None = None,
        size_bytes: int = 0,
    ) -> None:
        """Save a point of `begin`: let `write` fill its draft on all ranks, and `hand_over`; a kill leaves a draft.

        With `hold`, which returns a copy of `size_bytes` that does not change, it is written in the background if the
        training continues and has memory for the copy.
        """
        if hold and not point.is_over and self._may_be_in_background(size_bytes):
            held = hold(point)
            held = replace(held, stall_seconds=time.monotonic() - point.began)
            self._async_save = in_thread(lambda: self._written(held, write))
            self.pace.is_saving = True
            return
        with self._giving_up():
            self.pace.saved(*self._written(point, write))
        if point.is_last or point.results is not None:
            self.close_place(is_paused=point.is_last)

    def hand_over(self, point: Point, **more: Any) -> None:
        """Give the draft away, which is complete; only the first rank does it.  `more` are fields of Handover."""
        self.place.hand_over(point.draft, point.handover(**{"versions": self._made_with(), **more}))

    def _new_draft(self) -> Path:
        # Other ranks wait as well, so there is no clock to watch; unbroken takes folders as long as it lives.
        while self.ranks.size > 1 and not self.place.has_room:
            time.sleep(WAIT_POLL_SECONDS)
        return self.place.new_draft()

    def _written(self, point: AnyPoint, write: Callable[[AnyPoint], object]) -> tuple[float, float | None]:
        """Write a point; return the seconds that its save took, and for how long the training has paused if less."""
        try:
            write(point)
        except BaseException:
            if self.ranks.size == 1:  # else the ranks would not learn of it at the same time
                shutil.rmtree(point.draft, ignore_errors=True)
            raise
        return time.monotonic() - point.began, point.stall_seconds

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """End the training if its state must not be saved."""
        try:
            yield
        except NonFiniteState as non_finite:
            self.give_up(str(non_finite))

    def _may_be_in_background(self, size_bytes: int) -> bool:
        """Return, on all ranks the same, if a copy of this size is wanted and there is memory for it."""
        wanted = self.saves.in_background
        if wanted is False:
            return False
        on_this_node = int(os.environ.get("LOCAL_WORLD_SIZE") or self.ranks.size)
        has_memory = available_bytes() > NEEDED_MEMORY * size_bytes * on_this_node
        offers = self.ranks.all_gather((size_bytes, has_memory))
        largest = max(size for size, _ in offers)
        if wanted is None and largest < self.background_bytes:
            return False
        if self._has_memory is None:
            self._has_memory = all(has for _, has in offers)
            if not self._has_memory:
                lack = f"{'a copy' if self.ranks.size == 1 else 'copies'} of {largest / 1e6:,.0f} MB"
                self.ranks.say(f"no async checkpoints, saves stop the training: not enough free memory for {lack}")
        return self._has_memory

    def _end_async_save(self, patience_seconds: float | None = None) -> None:
        save, self._async_save, self.pace.is_saving = self._async_save, None, False
        if save is None:
            return
        if save not in wait([save], patience_seconds).done:
            raise CheckpointError(f"it was not complete {patience_seconds:g} s after the training had ended")
        self.pace.saved(*save.result())


def together(state: Mapping[str, Part], per_rank: Mapping[str, Part]) -> dict[str, Part]:
    """Return all parts; raise TypeError for what is no mapping, or a name in both."""
    for option, given in (("state", state), ("per_rank", per_rank)):
        if not isinstance(given, Mapping):
            raise TypeError(
                f"Training({option}=...) is a {type(given).__name__}, allowed: a dictionary of parts by name, such as "
                "{'model': model, 'optimizer': optimizer}"
            )
    if twice := sorted(state.keys() & per_rank.keys()):
        raise TypeError(f"Training(state=..., per_rank=...): {', '.join(twice)} stands in both, allowed: one of them")
    return {**state, **per_rank}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return what has changed since the checkpoint was made, as `torch 2.6 -> 2.7`; empty if nothing has."""
    changed = [name for name in _CHANGING_DIGITS if name in before and name in now and before[name] != now[name]]
    return ", ".join(f"{name} {before[name]} -> {now[name]}" for name in changed)
