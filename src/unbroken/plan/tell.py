"""Lines of the driver's own, on its screen."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from unbroken.runs import driver_screen, elsewhere
from unbroken.runs.layout import NOTES, RESULTS
from unbroken.system import fs

# With a console, the driver's own lines come in their order among Snakemake's.
_SNAKEMAKES_LOGGER = "snakemake.logging"


def tell(lines: Iterable[str]) -> None:
    """Lines of the driver's own, on its screen."""
    for line in map(elsewhere.from_where_it_was_typed, lines):
        if driver_screen.is_taken_over():
            logging.getLogger(_SNAKEMAKES_LOGGER).info("unbroken: %s", line)
        else:
            # In one piece, between two lines of Snakemake's: its threads print too.
            with _no_other_line():
                sys.stderr.write(f"unbroken: {line}\n")


def disks_of(base: Path) -> list[Path]:
    """Return the folders in which a start writes: Snakemake's own and those of the runs may lie on several disks."""
    return [(base / NOTES).parent, base / RESULTS]


def tell_full_disk_at_exit(base: Path, has_ended: Callable[[], bool]) -> None:
    """Tell at the end of this process that a disk is full, if Snakemake has ended by an error in its own files."""

    def tell_last() -> None:
        if not has_ended() and (full := fs.full_disk(disks_of(base))):
            sys.stderr.write(f"unbroken: {full}\n")

    atexit.register(tell_last)


@contextmanager
def _no_other_line() -> Iterator[None]:
    """Nobody else is in the middle of a line: our handler of Snakemake's output, nor Snakemake's own."""
    with ExitStack() as held:
        for handler in logging.getLogger(_SNAKEMAKES_LOGGER).handlers:
            handler.acquire()
            held.callback(handler.release)
        with driver_screen.lock:
            yield
