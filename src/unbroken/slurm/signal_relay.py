"""Listen for the signals that Slurm sends to a job, in a step of the job's own, and pass them on.

With control groups, as on nearly every cluster, a signal reaches only the first process of each step (measured with
Slurm 22.05: `proctrack/cgroup` signals a step's tasks, not their children).  Of a segment's job that is the Snakemake
around us, which keeps it to itself.  So a step is started that does nothing but listen.

Run as a program it is that step: it prints the names of the signals that it gets, until its standard input ends, or the
process is gone that it listens for.  A step that outlives its job's script would hold up the next job: Slurm takes two
to three seconds to end it (measured, 22.05).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

# Standard library and no import of unbroken: the step starts on a machine that may have to fetch each file.
LOOK_SECONDS = 2.0
LEAVING_SECONDS = 2.0
# A step next to the others: no processor, memory or device of its own, and nothing bound.
STEP = ("srun", "--overlap", "--ntasks=1", "--nodes=1", "--mem=0", "--gres=none", "--cpu-bind=none", "--quiet")


class SignalListener:
    """Call `hear` inside the `with` block, from a thread, with each signal that the job gets."""

    def __init__(
        self,
        numbers: Sequence[signal.Signals],
        hear: Callable[[signal.Signals], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._numbers, self._hear, self._environment = numbers, hear, environment
        self._step: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def __enter__(self) -> SignalListener:
        job, node = self._environment.get("SLURM_JOB_ID"), self._environment.get("SLURMD_NODENAME")
        if not job or not node or shutil.which("srun") is None:
            return self
        words = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *(number.name for number in self._numbers)]
        # What the step around us asked for is not for the new one [man srun, INPUT ENVIRONMENT VARIABLES].
        outside = {
            name: value
            for name, value in self._environment.items()
            if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SRUN_"))
        }
        with contextlib.suppress(OSError):  # without it the clock is the only alarm
            self._step = subprocess.Popen(
                [*STEP, f"--jobid={job}", f"--nodelist={node}", *words],
                env=outside,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self._thread.start()
            if self._step.stdin:
                self._step.stdin.write("\n")
                self._step.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._step is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self._step.stdin:
                self._step.stdin.close()
            self._step.wait(LEAVING_SECONDS)
        # Else its step leaves by itself when we are gone; srun passes INT on to it and is patient.
        # With what it started: where a site's srun is a script around the real one, that would keep our pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._step.pid, signal.SIGKILL)
        self._step.wait()
        self._thread.join(1.0)
        if self._step.stdout:
            self._step.stdout.close()

    def _listen(self) -> None:
        if self._step is None or self._step.stdout is None:
            return
        with contextlib.suppress(ValueError):  # closed by __exit__
            for line in self._step.stdout:
                if (name := line.strip()) in signal.Signals.__members__:
                    self._hear(signal.Signals[name])


def main(parent: int, names: Sequence[str]) -> None:
    """Print each signal's name; leave when the process `parent` is gone."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.write(1, f"{signal.Signals(number).name}\n".encode())

    for name in names:
        signal.signal(signal.Signals[name], pass_on)
    # A site's srun may hand on no input: one that ends before anything came is none.
    streams, has_come = [0], False
    while os.path.exists(f"/proc/{parent}"):
        ready, _, _ = select.select(streams, [], [], LOOK_SECONDS)
        if ready and not os.read(0, 1):
            if has_come:
                break
            streams = []
        has_come = has_come or bool(ready)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
