"""Run a stage: one coordinator and the program under it, from launch or restart to its checkpoint or its end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from unbroken.engines.dmtcp.checkpoint import images_in
from unbroken.engines.dmtcp.programs import ENDED, LEAVING_SECONDS, LOOK_SECONDS, Coordinator, Programs
from unbroken.errors import SegmentError
from unbroken.program import process as child
from unbroken.program.process import Child
from unbroken.system import fs

# A request that comes while an earlier checkpoint is being written is silently lost (4.1.1).
ASK_AGAIN_SECONDS = 5.0
_SCRIPT = "dmtcp_restart_script*"
_UTIME, _STIME = 11, 12  # of the fields after the name, in proc(5)'s stat


class Vitals(NamedTuple):
    """Hold the memory and the CPU time of several processes together; `ticks` grow only while they compute."""

    memory_bytes: int = 0
    ticks: int = 0


class DmtcpSession:
    """Run the program in `live`; `images` is a new folder, empty until a checkpoint is requested."""

    def __init__(self, programs: Programs, folder: Path, images: Path, live: Path, log: Path) -> None:
        folder.mkdir(parents=True)
        images.mkdir(parents=True)
        self.images = images
        self._programs, self._folder, self._live, self._log = programs, folder, live, log
        self._coordinator = Coordinator(programs, folder, images)
        self._main: Child | None = None
        self._running_at = time.monotonic()

    def launch(self, options: Sequence[str], command: Sequence[str]) -> None:
        """Start the program from the beginning."""
        self._start(self._programs.launch(self._coordinator.port, self.images, options, command))

    def restart(self, images: Sequence[Path], limit_seconds: float) -> None:
        """Restart the processes of a checkpoint, and wait until all run together.

        Raise SegmentError if they do not all run within the limit: DMTCP waits forever at a truncated image.
        """
        self._start(self._programs.restart(self._coordinator.port, self.images, images))
        end, most = time.monotonic() + limit_seconds, 0
        while time.monotonic() < end:
            peers = self._coordinator.peers()
            if peers.is_running:  # all ran together; some may have ended since
                return
            most = max(most, peers.count)
            if 0 < peers.count < most:
                raise SegmentError("a process died while dmtcp_restart brought it back; its words stand in the log")
            if self.has_ended(LOOK_SECONDS):
                if self._has_noted_its_end():  # it was faster; the exit code of dmtcp_restart does not show it
                    return
                raise SegmentError(
                    f"dmtcp_restart ended with exit code {self.dmtcp_code()} before the program was at work again"
                )
        raise SegmentError(
            f"dmtcp_restart did not bring the program back within {limit_seconds:.0f} s (settings.restart_seconds); "
            "it was killed"
        )

    def _start(self, command: Sequence[str]) -> None:
        self._main = child.start(command, {}, self._log, self._live)

    def _has_noted_its_end(self) -> bool:
        return (self._live / ENDED).exists()

    # --- while it works ---

    def vitals(self, limit_seconds: float) -> Vitals:
        """Return the memory and the CPU time of the processes.

        Raise SegmentError if the processes have not all run together for `limit_seconds`, which is a hang that DMTCP
        does not end, or if the shell that was to record the program's end is gone.
        """
        peers, now = self._coordinator.peers(), time.monotonic()
        if peers.count and self._is_without_shell():
            raise SegmentError(
                f"the shell around the program was ended from outside (exit {self.dmtcp_code()}); its end could not be "
                "told any more, so it was killed"
            )
        if peers.is_running:
            self._running_at = now
        elif now - self._running_at > limit_seconds:
            raise SegmentError(
                f"the program hangs: DMTCP says for {now - self._running_at:.0f} s that its {peers.count} processes "
                "are not all at work (settings.restart_seconds); it was killed"
            )
        return vitals(self._coordinator.pids())

    def _is_without_shell(self) -> bool:
        """Return True if the shell alone was killed; if all processes are killed, the coordinator leaves too."""
        is_killed = self.dmtcp_code() is not None and not self._has_noted_its_end()
        return is_killed and not self._coordinator.is_gone(LEAVING_SECONDS)

    def has_ended(self, wait_seconds: float) -> bool:
        """Return True if the program has ended, whatever the cause."""
        if self._coordinator.is_gone():
            return True
        if self._main is not None and self._main.wait(wait_seconds) is not None:
            return self._coordinator.is_gone(LOOK_SECONDS) or self._coordinator.peers().count == 0
        return False

    # --- its end ---

    @property
    def exit_code(self) -> int | None:
        """Return the program's own exit code, recorded by its shell; None if it was killed, or by its coordinator."""
        try:
            text = (self._live / ENDED).read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.endswith("\n") and not self._coordinator.has_killed() else None

    def dmtcp_code(self, wait_seconds: float = 0) -> int | None:
        """Return the exit code of DMTCP's process, where 0 means nothing; None while it runs.

        The coordinator leaves with the last connection, which a process closes a little before its end.
        """
        return self._main.wait(wait_seconds) if self._main else None

    def checkpoint(self, patience_seconds: float) -> bool:
        """Checkpoint and kill; return True once all images are complete, False if the program was faster and ended.

        Raise SegmentError if neither happens in time, or if an image is missing.
        """
        end = time.monotonic() + patience_seconds
        ask_again, has_asked = 0.0, False
        while not self.has_ended(LOOK_SECONDS):
            now = time.monotonic()
            if now > end:
                raise SegmentError(f"DMTCP made no checkpoint within {patience_seconds:.0f} s; {self._left()}")
            if now > ask_again and self._coordinator.peers().is_running:  # not while it is at it
                # Images of a checkpoint that another process requested do not match the current files.
                for path in [*self.images.glob(_SCRIPT), *images_in(self.images)]:
                    path.unlink()
                self._coordinator.save_and_kill()
                ask_again, has_asked = time.monotonic() + ASK_AGAIN_SECONDS, True
        self._coordinator.is_gone(LEAVING_SECONDS)
        if has_asked and self.is_complete():
            return True
        # Where a checkpoint has begun, an exit code may be that of a process which died of it.
        has_begun = has_asked and (images_in(self.images) or self._drafts())
        if self.exit_code is not None and not has_begun:
            return False
        code = self.dmtcp_code(LEAVING_SECONDS)
        raise SegmentError(f"the program is gone (exit code {code}) without a whole checkpoint; {self._left()}")

    def is_complete(self) -> bool:
        """Return True if every process has written its image.

        Only then the coordinator writes its restart script.  Release 3.2 does not write it if it must kill as well, but
        reports, as all releases do, how many processes there were.
        """
        images = len(images_in(self.images))
        has_script = any(self.images.glob(f"{_SCRIPT}.sh"))
        return images > 0 and not self._drafts() and (has_script or images == self._coordinator.saved_count())

    def _drafts(self) -> list[Path]:
        return list(self.images.glob("*.temp"))

    def _left(self) -> str:
        names = sorted(path.name for path in self.images.iterdir())
        free_mb = shutil.disk_usage(self.images).free / 1e6
        return f"it left {', '.join(names) or 'nothing'} in {self.images}, where {free_mb:.0f} MB are free"

    def close(self) -> None:
        """End all processes of this stage, and remove its folders."""
        if self._main is not None:
            self._main.end(LEAVING_SECONDS)
        self._coordinator.close()
        for folder in (self._folder, self.images):
            fs.remove_tree(folder)


def vitals(pids: Iterable[int]) -> Vitals:
    """Return the sums over these processes, as the kernel says (proc(5)); a process that has ended counts as zero."""
    memory_bytes = ticks = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            continue
        memory_bytes += sum(int(line.split()[1]) * 1024 for line in status if line.startswith(("VmRSS:", "VmSwap:")))
        fields = stat.rpartition(")")[2].split()  # the program's name, in brackets, may hold blanks and brackets
        ticks += int(fields[_UTIME]) + int(fields[_STIME])
    return Vitals(memory_bytes, ticks)
