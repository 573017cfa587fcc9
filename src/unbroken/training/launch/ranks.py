"""Start the ranks of one training and exit as they did: `python -m unbroken.training.launch.ranks`.

It replaces torchrun, which restarts ranks by itself (here the next segment does that) and exits
with 1 whatever the ranks' exit codes, so that "saved, more to do" (85) would look like a crash.  The ranks get the
variables that torchrun sets.  Standard library alone, so that no second torch is loaded.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from unbroken.errors import SegmentError, UnbrokenError
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED, describe_exit
from unbroken.program.guard import die_with
from unbroken.training.launch.rendezvous import Meeting

# Ranks whose neighbor died mostly fail by themselves, and then their logs say why; one that waits in NCCL does not.
LEAVE_SECONDS = 10.0
POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_TOLD = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
_WELL = (EXIT_FINISHED, EXIT_PAUSED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in all ranks; return 85 or 0 if all of them did, else the code of the first that failed."""
    options = _parser().parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_TOLD, signal.SIGCHLD})
    try:
        with Meeting(options.tasks, options.ranks, os.environ, has_ports=options.tf_config) as meeting:
            environments = meeting.environments(lambda: signal.sigtimedwait(_TOLD, POLL_SECONDS) is not None)
            if environments is None:  # asked to leave before there was anything to save
                return EXIT_PAUSED
            return _RankProcesses(options.command, environments, meeting).wait()
    except UnbrokenError as error:
        print(f"unbroken: {error}", file=sys.stderr, flush=True)
        return 1


class _RankProcesses:
    """Run the processes of this task, from their start to their end."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]], meeting: Meeting) -> None:
        self._meeting = meeting
        self._processes = {told["RANK"]: _start(command, told) for told in environments}
        self._again: int | None = None  # a signal that is repeated
        self._failed: int | None = None  # the code of the first that failed
        self._give_up = 0.0

    def wait(self) -> int:
        """Wait for all ranks, pass signals on, and end the others once one has failed; return the exit code for all."""
        next_look = time.monotonic() + _LOOK_SECONDS
        while self._is_any_left():
            heard = signal.sigtimedwait((*_TOLD, signal.SIGCHLD), POLL_SECONDS)
            if heard and heard.si_signo in _TOLD:
                self._pass_on(heard.si_signo)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_SECONDS
                if self._again:  # a rank that is just starting does not listen yet
                    self._pass_on(self._again)
                self._look_elsewhere()
            self._consider_failure()
        self._consider_failure()
        codes = [process.wait() for process in self._processes.values()]
        if self._failed is None and len(set(codes)) > 1:
            print(f"unbroken: the ranks left with {codes}; they must agree", file=sys.stderr, flush=True)
            return 1
        return codes[0] if self._failed is None else self._failed

    def _is_any_left(self) -> bool:
        return None in [process.poll() for process in self._processes.values()]

    def _pass_on(self, number: int) -> None:
        self._again = number if number == signal.SIGUSR1 else self._again
        for process in self._processes.values():
            process.send_signal(number)  # does nothing to one that is gone

    def _look_elsewhere(self) -> None:
        failed = self._meeting.failed_elsewhere()
        if failed is not None and self._failed is None:
            self._fail(1, f"task {failed} has failed")

    def _consider_failure(self) -> None:
        ended = [(rank, process.poll()) for rank, process in self._processes.items()]
        failed = [(rank, code) for rank, code in ended if code is not None and code not in _WELL]
        if failed and self._failed is None:
            # Of several found at once, one that was ended by a signal did not fail because another was gone.
            rank, code = min(failed, key=lambda each: each[1] > 0)
            self._meeting.say_failed()
            self._fail(code if code > 0 else 128 - code, f"rank {rank} {describe_exit(code)}")
        if self._failed is not None and time.monotonic() >= self._give_up:
            for process in self._processes.values():
                process.kill()

    def _fail(self, code: int, what: str) -> None:
        self._failed, self._give_up = code, time.monotonic() + LEAVE_SECONDS
        if self._is_any_left():
            what += f"; the others here have {LEAVE_SECONDS:g} s to leave by themselves"
        print(f"unbroken: {what}", file=sys.stderr, flush=True)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:  # between fork and exec; safe, because there are no threads here
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it would end a Python that has not come to its handler yet
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_TOLD, signal.SIGCHLD})
        die_with(parent)

    try:
        return subprocess.Popen(command, env={**os.environ, **environment}, preexec_fn=prepare)
    except OSError as error:
        raise SegmentError(f"cannot start {command[0]}: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m unbroken.training.launch.ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True, help="how many to start here")
    parser.add_argument("--tasks", type=int, default=1, help="how many launchers there are, each with as many ranks")
    parser.add_argument("--tf-config", action="store_true", help="tell each rank TF_CONFIG, for workers of TensorFlow")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


if __name__ == "__main__":
    sys.exit(main())
