"""A program's outputs: passed on to where it was called, and kept in the attempt's log; or appended to a result."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unbroken.program.process import Streams

_BLOCK_BYTES = 1 << 16


@contextmanager
def streams(log: Path, result: Path | None) -> Iterator[Streams]:
    """Streams for a program; both outputs are passed on and kept in `log`.

    Standard output goes to `result` instead if there is one, and stays where it is if that is a file of its own.
    Standard input is passed on if it is a file: of a terminal or a pipe a program that goes on would not see the rest.
    """
    with ExitStack() as stack:
        nothing = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, nothing)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        stack.callback(os.close, descriptor)
        error = stack.enter_context(_passed_on(2, descriptor))
        if result is not None:
            output = os.open(result, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            stack.callback(os.close, output)
        elif is_file(1):
            output = 1
        else:
            output = stack.enter_context(_passed_on(1, descriptor))
        yield Streams(0 if is_file(0) else nothing, output, error)


def is_file(descriptor: int) -> bool:
    """True if it leads to a plain file, as `> FILE` makes it."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def is_empty_file(descriptor: int) -> bool:
    """True if `> FILE` has just made it, or emptied it; what a driver writes into a log of its own has lines before."""
    return is_file(descriptor) and os.fstat(descriptor).st_size == 0


@contextmanager
def _passed_on(target: int, log: int) -> Iterator[int]:
    """The write end of a pipe; what comes is written to both, and all of it has been when the block is left."""
    out, into = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(out, target, log), name="passes-on", daemon=True)
    thread.start()
    try:
        yield into
    finally:
        os.close(into)  # the program and all that it started are gone
        thread.join()
        os.close(out)


def _pass_on(out: int, target: int, log: int) -> None:
    """Whoever reads there may be gone, or the disk full: the program is not to hear of it."""
    while block := os.read(out, _BLOCK_BYTES):
        for descriptor in (log, target):
            with suppress(OSError):
                view = memoryview(block)
                while view:
                    view = view[os.write(descriptor, view) :]
