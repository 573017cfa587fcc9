"""The rehearsal: two short segments of a run by the very keeper of the real ones, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.dmtcp.command import HWLOC, keeper_command
from unbroken.engines.dmtcp.files import size_bytes
from unbroken.engines.dmtcp.protocol import WHY
from unbroken.engines.dmtcp.state import IMAGES, read_state
from unbroken.errors import SegmentError
from unbroken.program import process as child
from unbroken.program.contract import EXIT_FINISHED, READY, AttemptFolder
from unbroken.program.entering import entered
from unbroken.runs.layout import RESULTS
from unbroken.runs.progress import Progress, read_progress
from unbroken.runs.run import Run

LIMIT_SECONDS = 600.0
LOOK_SECONDS = 0.1


def rehearse(run: Run, base: Path, seconds: float) -> str:
    """Saved in mid-work, brought back, saved, brought back as by another job; SegmentError if it does not survive."""
    root = base / RESULTS / ".rehearsal" / run.name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    first = _Act(run, base, root, 1, None, seconds)
    first.play()
    if first.last is None:
        raise SegmentError(
            f"{run.name}: the program came to its end within {seconds:g} s, before it was saved; rehearse one that "
            "works longer, or type a smaller --seconds"
        )
    state, mb = read_state(first.last), size_bytes(first.last / IMAGES) / 1e6
    _Act(run, base, root, 2, first.last, seconds).play()
    shutil.rmtree(root)
    save, back = state.pace.saves[-1][1], first.restart_seconds
    share = (save + back) / (run.save_minutes * 60)
    return (
        f"survives on this machine: {len(state.images)} processes, images of {mb:.1f} MB, saved in {save:.1f} s, "
        f"brought back in {back:.1f} s; with save_minutes: {run.save_minutes:g} that is {share:.1%} of the time"
    )


@dataclass
class _Act:
    """One keeper at work until it was told to stop."""

    run: Run
    base: Path
    root: Path
    number: int
    resume: Path | None
    seconds: float
    last: Path | None = None
    restart_seconds: float = 0.0
    back_at: float = 0.0

    def play(self) -> None:
        attempt_folder = AttemptFolder(self.root / "work" / f"{self.number:06d}")
        attempt_folder.prepare()
        attempt_folder.write_deadline(time.time() + LIMIT_SECONDS)
        log = self.root / f"{self.number}.log"
        command = entered(keeper_command(self.run, self.base, self.root), self.run, self.base)
        program = child.start(command, self._environment(attempt_folder), log)
        try:
            code = self._watch(program, attempt_folder)
        finally:
            program.end(child.LEAVING_SECONDS)
        why = attempt_folder.root / WHY
        if code is None or why.exists():
            text = why.read_text().strip() if why.exists() else f"no end within {LIMIT_SECONDS:g} s"
            raise SegmentError(f"{self.run.name}: does not survive: {text}; read {log}")
        found = [path for path in sorted(attempt_folder.save.glob(f"*{READY}")) if (path / IMAGES).is_dir()]
        self.last = found[-1] if found else None
        if self.last is None and code != EXIT_FINISHED:
            raise SegmentError(f"{self.run.name}: does not survive: exit code {code}, nothing saved; read {log}")

    def _watch(self, program: child.Child, attempt_folder: AttemptFolder) -> int | None:
        """Tells it to stop once it has worked, been saved and brought back, and worked again."""
        end = time.monotonic() + LIMIT_SECONDS
        while (code := program.wait(LOOK_SECONDS)) is None and time.monotonic() < end:
            progress = read_progress(attempt_folder.progress)
            if progress is not None and self._is_enough(progress):
                attempt_folder.stop.touch()
        return code

    def _is_enough(self, progress: Progress) -> bool:
        """By a clock: a program that only waits makes no progress that could be seen."""
        back = progress.metrics.get("restart_seconds")
        if not isinstance(back, (int, float)):
            return False
        self.restart_seconds = max(self.restart_seconds, back)
        self.back_at = self.back_at or time.monotonic()
        return time.monotonic() - self.back_at > self.seconds / 2

    def _environment(self, attempt_folder: AttemptFolder) -> dict[str, str]:
        return {
            **{name: os.environ.get(name, value) for name, value in HWLOC.items()},
            "UNBROKEN_RESUME": str(self.resume.resolve()) if self.resume else "",
            "UNBROKEN_SAVE": str(attempt_folder.save.resolve()),
            "UNBROKEN_STOP": str(attempt_folder.stop.resolve()),
            "UNBROKEN_DEADLINE_FILE": str(attempt_folder.deadline.resolve()),
            "UNBROKEN_PROGRESS": str(attempt_folder.progress.resolve()),
            "UNBROKEN_SAVE_SECONDS": f"{self.seconds if self.resume is None else LIMIT_SECONDS:g}",
            "OMP_NUM_THREADS": str(self.run.threads),
        }
