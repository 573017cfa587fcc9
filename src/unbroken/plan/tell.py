"""Lines of the driver's own, on its screen."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from unbroken.runs import driver_screen, elsewhere

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


@contextmanager
def _no_other_line() -> Iterator[None]:
    """Nobody else is in the middle of a line: our handler of Snakemake's output, nor Snakemake's own."""
    with ExitStack() as held:
        for handler in logging.getLogger(_SNAKEMAKES_LOGGER).handlers:
            handler.acquire()
            held.callback(handler.release)
        with driver_screen.lock:
            yield
