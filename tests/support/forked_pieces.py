"""Runs a training script whole, then in pieces: each start is a fork of one process that has imported torch.

`python forked_pieces.py SCRIPT EVENT...`: an event is SIGNAL@N, sent at the N-th forward pass of a start.
"""

import os
import runpy
import signal
import sys
import warnings
from pathlib import Path

import torch

_forwards = 0


def _send(event: str) -> None:
    """Lets the N-th forward pass of a start send the signal to this process."""
    kind, _, at = event.partition("@")

    def count(module: torch.nn.Module, given: object) -> None:
        global _forwards
        if not getattr(module, "is_counted", False):
            return
        _forwards += 1
        if _forwards == int(at):
            os.kill(os.getpid(), getattr(signal, f"SIG{kind}"))

    if kind:
        torch.nn.modules.module.register_module_forward_pre_hook(count)


def _start(script: Path, name: str, event: str) -> int:
    if (pid := os.fork()) == 0:
        folder = Path(name).absolute()
        (folder / "cwd").mkdir(parents=True, exist_ok=True)
        os.chdir(folder / "cwd")
        os.environ["UNBROKEN_FOLDER"] = str(folder)
        sys.argv = [str(script)]
        _send(event)
        runpy.run_path(str(script), run_name="__main__")
        sys.exit(0)  # as an error does, it ends this process alone
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = Path(sys.argv[1]).absolute()
    print("ends:", _start(path, "whole", ""), *(_start(path, "pieces", event) for event in [*sys.argv[2:], ""]))
