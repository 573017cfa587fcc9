"""A segment as a process of its own, killed when its checkpoint is whole and only has to be renamed into the store.

A program that keeps the contract (`command`), or the engine `command` with its settings.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.command_jobs import command_segment
from support.toyrun import PYTHONPATH, run_program


def killed_while_publishing(base: Path, segment: int = 1, attempt: int = 1, **what: object) -> None:
    """Returns when the process is dead; AssertionError if it ended otherwise."""
    asked = json.dumps({"base": str(base), "segment": segment, "attempt": attempt, **what})
    around = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, __file__, asked],
        cwd=base,
        env={**around, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def dies_while_publishing() -> None:
    """From now on this process kills itself where it would rename a folder into a store."""
    rename = os.rename

    def or_die(source: str, target: str, **more: int) -> None:
        if Path(target).parent.name == "checkpoints":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **more)

    os.rename = or_die  # type: ignore[assignment]


def _main(asked: str) -> None:
    what = json.loads(asked)
    base, segment, attempt = Path(what.pop("base")), what.pop("segment"), what.pop("attempt")
    command: Sequence[str] = what.pop("command", ())
    dies_while_publishing()
    if command:
        run_program(base, command, segment, attempt, **what)
    else:
        command_segment(base, what.pop("settings"), segment, attempt, **what)


if __name__ == "__main__":
    _main(sys.argv[1])
