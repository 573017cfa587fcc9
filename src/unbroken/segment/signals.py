"""Signals that ask a segment to leave: noted by a handler, acted on by the loop that watches."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from unbroken.errors import InterruptedSegment
from unbroken.program.leaving import StopReason
from unbroken.slurm.signal_relay import SignalListener

# URG: Slurm's early warning, see profiles/slurm.  USR1: what `sbatch --signal` scripts are used to.
WARNINGS = {signal.SIGURG, signal.SIGUSR1}
# TERM: preemption or the limit itself.  HUP: the terminal is closed, the connection lost.
INTERRUPTIONS = {
    signal.SIGTERM: StopReason.TAKEN_AWAY,
    signal.SIGINT: StopReason.CTRL_C,
    signal.SIGHUP: StopReason.HUNG_UP,
}


class Alarm:
    """Count these signals inside the `with` block, where they no longer end the process.

    Those that Slurm sends to the job but that do not reach this process count too.
    """

    def __init__(self) -> None:
        self.heard: list[signal.Signals] = []
        self._listener = SignalListener(sorted(WARNINGS | INTERRUPTIONS.keys()), self.heard.append)
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Alarm:
        for number in WARNINGS | INTERRUPTIONS.keys():
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # it was asked for, such as by nohup
            self._before[number] = signal.signal(number, self._hear)
        self._listener.__enter__()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.__exit__()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @property
    def interruption(self) -> StopReason | None:
        """Return why the machine is wanted back, by the first signal that says so; None if it is not."""
        return next((INTERRUPTIONS[number] for number in self.heard if number in INTERRUPTIONS), None)

    def leave_if_heard(self, run: str, meanwhile: str) -> None:
        """Raise InterruptedSegment if a signal has come."""
        if self.heard:
            raise InterruptedSegment(f"stopped by a signal ({self.heard[-1].name}) while {meanwhile}", run=run)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(signal.Signals(number))
