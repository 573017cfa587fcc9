"""Run a program under DMTCP in a child process of the segment, and keep unbroken's contract for it.

Every checkpoint ends the processes, so that no file changes between the images and the copies of the files; inside a
segment they are then started again from those very images.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from unbroken.engines.dmtcp.checkpoint import (
    FILES,
    IMAGES,
    DmtcpState,
    compress,
    images_in,
    link_images,
    mismatch,
    read_state,
    save_files,
    seconds_to_allow,
    this_machine,
)
from unbroken.engines.dmtcp.programs import LEAVING_SECONDS, OUTPUT, clean_environment
from unbroken.engines.dmtcp.protocol import Options, Told, read_options, told_by
from unbroken.engines.dmtcp.session import DmtcpSession, Vitals
from unbroken.engines.dmtcp.workspace import Workspace, size_bytes, take_results
from unbroken.errors import SegmentError, UnbrokenError
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, FINAL
from unbroken.store.progress import Handover, Metric, Progress, write_progress

POLL_SECONDS = 0.05
LOOK_SECONDS = 1.0
EXIT_FAILED = 1
UNIT = "seconds"
LOG = Path("/proc/self/fd/1")
# A restart reads what a save wrote, from a slow file server in the worst case.
RESTART_SECONDS, RESTART_BYTES_PER_SECOND = 60.0, 20e6
# Patience with a save, in times of what it is thought to take; the deadline itself is watched by unbroken.
PATIENCE, LEAST_PATIENCE_SECONDS = 10, 60.0
# Only so many saves tell how long the next one takes: a program grows, a file server gets busy.
LEARNED_SAVES = 5


class DmtcpSupervisor:
    """Run one segment of a program."""

    def __init__(self, options: Options, told: Told) -> None:
        self.options, self.told = options, told
        self.is_termed = False
        self._machine: dict[str, str] = {}
        self._workspace = Workspace(options.live, told.attempt.root)
        self._stage: DmtcpSession | None = None
        self._past: Sequence[tuple[int, float]] = ()  # the last saves: bytes before, and seconds
        self._done = self._shown = self._restart_seconds = 0.0
        self._vitals = Vitals()
        self._size_bytes = self._saves = 0
        self._since = self._saved_at = self._looked_at = time.monotonic()

    def run(self) -> int:
        """Run until the deadline, the stop file or the program's end; return the exit code of the contract."""
        self._machine = this_machine(self.options.programs.version())
        stage = self._begin() if self.told.resume is None else self._resume(self.told.resume)
        while not stage.has_ended(POLL_SECONDS):
            self._look(stage)
            if self._must_leave():
                self.told.say_leaving()
                return EXIT_PAUSED if self._save(stage, is_last=True) else self._end(stage)
            if self._is_due() and self._save(stage, is_last=False):
                again = self._restarted(stage.images)
                stage.close()
                stage = again
        return self._end(stage)

    def leave_soon(self, number: int, frame: FrameType | None) -> None:
        """Handle TERM: save and leave."""
        self.is_termed = True

    def close(self) -> None:
        """End all processes of the program; its folder stays as it is."""
        if self._stage is not None:
            self._stage.close()
        self._stage = None
        self._workspace.leave()

    # --- the beginning ---

    def _begin(self) -> DmtcpSession:
        self._workspace.clear(self.options.input)
        stage = self._new_stage()
        stage.launch(self.options.option, self.options.command)
        self._since = self._saved_at = time.monotonic()
        return stage

    def _resume(self, checkpoint: Path) -> DmtcpSession:
        state, here = read_state(checkpoint), str(self.options.live)
        if not self.options.machine_may_differ:
            if why := mismatch(self._machine, state.machine):
                raise SegmentError(why)
            if here != state.live:
                raise SegmentError(
                    f"the images were made for the folder {state.live}, which is now {here}; move the working "
                    "directory back, or try it at your own risk with settings.machine_may_differ: true"
                )
        self._done = self._shown = state.done_seconds
        self._past = state.saves
        return self._restarted(self._workspace.bring_back(checkpoint, state, self.options.input))

    def _new_stage(self) -> DmtcpSession:
        folder, images = self._workspace.next_stage()
        self._stage = DmtcpSession(self.options.programs, folder, images, self.options.live, LOG)
        return self._stage

    def _restarted(self, folder: Path) -> DmtcpSession:
        """Restart the program from the images in a folder.

        This happens even if unbroken asks to leave meanwhile: then the program is saved at once, a little further,
        which is progress.
        """
        began, limit = time.monotonic(), self._limit_seconds(size_bytes(folder))
        stage = self._new_stage()
        stage.restart(images_in(folder), limit)
        self._since = self._saved_at = time.monotonic()
        self._restart_seconds = self._since - began
        return stage

    def _limit_seconds(self, size: int) -> float:
        """Return how long DMTCP may suspend a program of this size in bytes."""
        return self.options.restart_seconds or RESTART_SECONDS + size / RESTART_BYTES_PER_SECOND

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
        write_progress(self.told.attempt.progress, self._progress(self._shown))

    def _worked(self) -> float:
        """Return the seconds of computation so far, without saves and restarts."""
        return round(self._done + time.monotonic() - self._since, 3)

    def _need_seconds(self) -> float:
        return seconds_to_allow(self._past, self._size_bytes)

    def _must_leave(self) -> bool:
        is_asked = self.is_termed or self.told.attempt.stop.exists()
        return is_asked or self.told.left_seconds() <= self._need_seconds()

    def _is_due(self) -> bool:
        """Return True if a save is due, fits into the time left, and the earlier ones are published."""
        if time.monotonic() - self._saved_at < self.told.save_seconds:
            return False
        needed = 2 * self._need_seconds() + self._restart_seconds
        return self.told.may_save() and self.told.left_seconds() > needed

    # --- saving ---

    def _save(self, stage: DmtcpSession, *, is_last: bool) -> bool:
        """Hand over a checkpoint; return False if the program ended by itself meanwhile."""
        began, before, done = time.monotonic(), self._size_bytes, self._worked()
        if not stage.checkpoint(max(LEAST_PATIENCE_SECONDS, PATIENCE * self._need_seconds())):
            return False
        self._done, draft = done, self.told.draft
        draft.mkdir()
        listing = save_files(self.options.live, draft / FILES)
        link_images(stage.images, draft / IMAGES)
        self._past = [*self._past, (before, round(time.monotonic() - began, 3))][-LEARNED_SAVES:]
        if is_last and self.options.compress:
            compress(draft / IMAGES, self.told.left_seconds())
        live, slot = str(self.options.live), stage.images.name
        names = [image.name for image in images_in(stage.images)]
        DmtcpState(done, listing, self._past, self._machine, live, slot, names).write(draft)
        self._hand_over(done, time.monotonic() - began)
        return True

    def _hand_over(self, done: float, save_seconds: float, *, is_finished: bool = False) -> None:
        self._saves += 1
        handover = Handover(
            self._progress(done),
            is_finished=is_finished,
            versions=self._machine,
            save_seconds=round(save_seconds, 3),
        )
        self.told.hand_over(handover, self._saves)

    def _progress(self, done: float) -> Progress:
        metrics: dict[str, Metric] = {}
        if self._past:
            size, seconds = self._past[-1]
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
        print(f"the end of {self.options.live / OUTPUT}:", *self._workspace.last_words(), sep="\n", flush=True)
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
    supervisor = DmtcpSupervisor(options, told)
    signal.signal(signal.SIGTERM, supervisor.leave_soon)
    try:
        return supervisor.run()
    except (UnbrokenError, OSError) as error:
        print(f"dmtcp: {error}", flush=True)
        told.say_why(str(error))
        return EXIT_FAILED
    finally:
        supervisor.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
