"""Run a program under DMTCP in a child process of the segment, and keep unbroken's contract for it.

Every checkpoint ends the processes, so that no file changes between the images and the copies of the files; inside a
segment they are then started again from those very images.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.dmtcp.coordinator import LEAVING_SECONDS
from unbroken.engines.dmtcp.files import link_folder, save_files, size_bytes, take_results
from unbroken.engines.dmtcp.images import compress, images_in
from unbroken.engines.dmtcp.machine import Machine, this_machine
from unbroken.engines.dmtcp.options import Options, read_options
from unbroken.engines.dmtcp.pace import SaveSeconds
from unbroken.engines.dmtcp.processes import Vitals
from unbroken.engines.dmtcp.programs import OUTPUT, clean_environment
from unbroken.engines.dmtcp.protocol import Told, told_by
from unbroken.engines.dmtcp.session import DmtcpSession
from unbroken.engines.dmtcp.state import FILES, FINAL, IMAGES, DmtcpState, read_state
from unbroken.engines.dmtcp.workspace import Ground
from unbroken.errors import SegmentError, UnbrokenError
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.runs.progress import Handover, Metric, Progress, write_progress

POLL_SECONDS = 0.05
LOOK_SECONDS = 1.0
EXIT_FAILED = 1
UNIT = "seconds"
# A restart reads what a save wrote, from a slow file server in the worst case.
RESTART_SECONDS, RESTART_BYTES_PER_SECOND = 60.0, 20e6
# Patience with a save, in times of what it is thought to take; the deadline itself is watched by unbroken.
PATIENCE, LEAST_PATIENCE_SECONDS = 10, 60.0


@dataclass
class DmtcpSupervisor:
    """Run one segment of a program."""

    options: Options
    told: Told
    log: Path
    termed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._machine: Machine
        self._ground = Ground(self.options.live, self.told.attempt_folder)
        self._stage: DmtcpSession | None = None
        self._pace = SaveSeconds()
        self._done = self._shown = self._restart_seconds = 0.0
        self._vitals = Vitals()
        self._size_bytes = self._saves = 0
        self._since = self._saved_at = self._looked_at = time.monotonic()

    def run(self) -> int:
        """Run until the deadline, the stop file or the program's end; return the exit code of the contract."""
        self._stage = self._begin()
        while not self._stage.has_ended(POLL_SECONDS):
            self._look(self._stage)
            if self._must_leave():
                return self._leave(self._stage)
            if self._is_due():
                self._stage = self._save_and_go_on(self._stage)
        return self._end(self._stage)

    def close(self) -> None:
        """End all processes of the program; its folder stays as it is."""
        if self._stage is not None:
            self._stage.close()
        self._stage = None
        self._ground.leave()

    # --- the beginning ---

    def _begin(self) -> DmtcpSession:
        self._machine = this_machine(self.options.programs.version())
        if self.told.resume is None:
            self._ground.clear(self.options.inputs)
            self._stage = stage = self._new_stage()
            stage.launch(self.options.options, self.options.command)
            self._at_work()
            return stage
        state = read_state(self.told.resume)
        if not self.options.machine_may_differ and (why := self._machine.mismatch(state.machine)):
            raise SegmentError(why)
        if (here := str(self.options.live)) != state.live and not self.options.machine_may_differ:
            raise SegmentError(
                f"the images were made for the folder {state.live}, which is now {here}; move the working directory "
                "back, or try it at your own risk with settings.machine_may_differ: true"
            )
        self._done = self._shown = state.done_seconds
        self._pace = state.pace
        return self._restarted(self._ground.bring_back(self.told.resume, state, self.options.inputs))

    def _new_stage(self) -> DmtcpSession:
        folder, images = self._ground.next_stage()
        return DmtcpSession(self.options.programs, folder, images, self.options.live, self.log)

    def _restarted(self, folder: Path) -> DmtcpSession:
        """Restart the program from the images in a folder.

        This happens even if unbroken asks to leave meanwhile: then the program is saved at once, a little further,
        which is progress.
        """
        began, limit = time.monotonic(), self._limit_seconds(size_bytes(folder))
        self._stage = stage = self._new_stage()
        stage.restart(images_in(folder), limit)
        self._restart_seconds = time.monotonic() - began
        self._at_work()
        return stage

    def _limit_seconds(self, size: int) -> float:
        """Return how long DMTCP may suspend a program of this size in bytes."""
        return self.options.restart_seconds or RESTART_SECONDS + size / RESTART_BYTES_PER_SECOND

    def _at_work(self) -> None:
        self._since = self._saved_at = time.monotonic()

    # --- while it works ---

    def _look(self, stage: DmtcpSession) -> None:
        """Check now and then that the program is alive, its progress, and how large a save would be."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS and self._size_bytes:
            return
        self._looked_at = now
        found = stage.vitals(self._limit_seconds(self._size_bytes))
        size = found.memory_bytes + size_bytes(self.options.live)
        # Seconds in which it neither computed nor wrote are no progress; they count with its next one.
        if found.ticks != self._vitals.ticks or size != self._size_bytes:
            self._shown = self._worked()
        self._vitals, self._size_bytes = found, size
        write_progress(self.told.progress, self._progress(self._shown))

    def _worked(self) -> float:
        """Return the seconds of computation so far, without saves and restarts."""
        return round(self._done + time.monotonic() - self._since, 3)

    def _need_seconds(self) -> float:
        return self._pace.seconds_for(self._size_bytes)

    def _must_leave(self) -> bool:
        return bool(self.termed) or self.told.is_stopped() or self.told.left_seconds() <= self._need_seconds()

    def _is_due(self) -> bool:
        """Return True if a save is due, fits into the time left, and the earlier ones are published."""
        if time.monotonic() - self._saved_at < self.told.save_seconds:
            return False
        needed = 2 * self._need_seconds() + self._restart_seconds
        return self.told.may_save() and self.told.left_seconds() > needed

    def _save_and_go_on(self, stage: DmtcpSession) -> DmtcpSession:
        """Save in mid-segment and restart; return the stage as it is if the program ended first."""
        if not self._save(stage, is_last=False):
            return stage
        again = self._restarted(stage.images)
        stage.close()
        return again

    # --- saving and leaving ---

    def _leave(self, stage: DmtcpSession) -> int:
        self.told.say_leaving()
        return EXIT_PAUSED if self._save(stage, is_last=True) else self._end(stage)

    def _save(self, stage: DmtcpSession, is_last: bool) -> bool:
        """Hand over a checkpoint; return False if the program ended by itself meanwhile."""
        began, before, done = time.monotonic(), self._size_bytes, self._worked()
        if not stage.checkpoint(max(LEAST_PATIENCE_SECONDS, PATIENCE * self._need_seconds())):
            return False
        self._done, draft = done, self.told.draft
        draft.mkdir()
        listing = save_files(self.options.live, draft / FILES)
        link_folder(stage.images, draft / IMAGES)
        self._pace.add(before, time.monotonic() - began)
        if is_last and self.options.has_compression:
            compress(draft / IMAGES, self.told.left_seconds())
        machine, live = self._machine.to_versions(), str(self.options.live)
        names = tuple(image.name for image in images_in(stage.images))
        slot = stage.images.name
        DmtcpState(done, listing, self._pace, machine, live, slot, names).write(draft)
        self._hand_over(done, time.monotonic() - began)
        return True

    def _hand_over(self, done: float, save_seconds: float, is_finished: bool = False) -> None:
        self._saves += 1
        handover = Handover(
            self._progress(done),
            is_finished=is_finished,
            versions=self._machine.to_versions(),
            save_seconds=round(save_seconds, 3),
        )
        self.told.hand_over(handover, self._saves)

    def _progress(self, done: float) -> Progress:
        metrics: dict[str, Metric] = {}
        if self._pace.saves:
            size, seconds = self._pace.saves[-1]
            metrics = {"saved_mb": round(size / 1e6, 1), "save_seconds": seconds}
        if self._restart_seconds:
            metrics["restart_seconds"] = round(self._restart_seconds, 3)
        return Progress(done, None, UNIT, metrics)

    # --- the end of the program ---

    def _end(self, stage: DmtcpSession) -> int:
        """Handle the program's end by its own exit code: DMTCP's is 0 for a killed program too."""
        done = self._worked()
        code, dmtcp_code = stage.exit_code, stage.dmtcp_code(LEAVING_SECONDS)
        self.close()
        if code == EXIT_FINISHED:
            self.told.draft.mkdir()
            take_results(self.options.live, self.told.draft / FINAL)
            self._hand_over(done, 0.0, is_finished=True)
            return EXIT_FINISHED
        print(f"the end of {self.options.live / OUTPUT}:", *self._ground.last_words(), sep="\n", flush=True)
        if code is None:
            raise SegmentError(
                f"the program was ended from outside, by a signal or its coordinator (exit {dmtcp_code})"
            )
        raise SegmentError(
            f"the program ended with its own exit code {code}{_signal(code)}; its last lines stand in the log"
        )


def _signal(code: int) -> str:
    """Name the signal in a shell's exit code, which is 128 plus the signal's number; "" if it is none."""
    try:
        return f", as one that {signal.Signals(code - 128).name} ended"
    except ValueError:
        return ""


def main(arguments: list[str]) -> int:
    """Run the supervisor; a failure is written into the attempt folder, in one line for the user."""
    options, told = read_options(arguments), told_by(os.environ)
    clean_environment()
    termed: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: termed.append(number))
    keeper = DmtcpSupervisor(options, told, Path("/proc/self/fd/1"), termed)
    try:
        return keeper.run()
    except (UnbrokenError, OSError) as error:
        print(f"dmtcp: {error}", flush=True)
        told.say_why(str(error))
        return EXIT_FAILED
    finally:
        keeper.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
