"""Runs targets of the Makefile side by side, since tests on a cluster wait more than they work: `beside.py TARGET ...`.

What the first one says is seen at once, what the others say when those before them have ended too.  All come to their
end, also beside one that fails; the exit code is that of the first in this order that failed.
"""

import os
import signal
import subprocess
import sys
import tempfile
from types import FrameType

MAKE = os.environ.get("MAKE", "make")


def main(targets: list[str]) -> int:
    """Start all, wait for all, show what each said."""
    targets_at_work, outputs = [], []
    for target in targets:
        output = tempfile.TemporaryFile() if outputs else None  # noqa: SIM115  (gone at our end)
        command = [MAKE, "--no-print-directory", target]
        targets_at_work.append(subprocess.Popen(command, stdout=output, stderr=output))
        outputs.append(output)

    def pass_on(number: int, _: FrameType | None) -> None:
        for process in targets_at_work:
            process.send_signal(number)

    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal tells all of its processes
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    for process, output in zip(targets_at_work, outputs, strict=True):
        process.wait()
        if output is not None:
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return next((process.returncode for process in targets_at_work if process.returncode), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
