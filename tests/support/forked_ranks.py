"""Ranks that are forks of one process which has imported torch: an attempt begins at once."""

import atexit
import multiprocessing
import os
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.training_parent import TrainingParent

from unbroken.training.launch.rendezvous import reserve_port

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["unbroken.training.torch", "torch.distributed.fsdp"])
PATIENCE_SECONDS = 600


@dataclass
class ForkedRanks(TrainingParent):
    """A stand-in for unbroken's own process and for the launcher, which ends nobody: for ranks that leave together."""

    def run(self, kill_after: float | None = None) -> int:
        """One attempt; returns the exit code, on which all ranks agree."""
        (self.attempt_folder / "save").mkdir(parents=True)
        with reserve_port() as reserved:
            told = {**self.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.getsockname()[1])}
            processes = [self._rank(number, told) for number in range(self.ranks)]
            until = time.monotonic() + PATIENCE_SECONDS
            while any(process.is_alive() for process in processes):
                self.take()
                assert time.monotonic() < until, self.log
                time.sleep(0.005)
        self.take()
        codes = {process.exitcode for process in processes}
        assert len(codes) == 1, f"{codes}: {self.log}"
        self.codes.append(codes.pop())
        return self.codes[-1]

    def _rank(self, number: int, told: Mapping[str, str]) -> multiprocessing.Process:
        own = {**os.environ, **told, "RANK": str(number), "WORLD_SIZE": str(self.ranks)}
        process = FORKS.Process(target=_train, args=(self.root, self.arguments, own), daemon=True)
        process.start()
        return process


def _train(root: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    log = os.open(root / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()  # it is that of the moment in which the server of forks was started
    os.environ.update(environment)
    sys.argv[1:] = arguments
    try:
        runpy.run_path(str(root / "program.py"), run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # as at the end of a process that is no fork
