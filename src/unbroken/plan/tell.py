"""Lines of the driver's own, on its screen."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from unbroken.runs import driver_screen, elsewhere

# With a console, the driver's own lines come in their order among Snakemake's.
_SNAKEMAKES_LOGGER = "snakemake.logging"


def tell(lines: Iterable[str]) -> None:
    """Lines of the driver's own, on its screen."""
    for line in map(elsewhere.from_where_it_was_typed, lines):
        if driver_screen.is_taken_over():
            logging.getLogger(_SNAKEMAKES_LOGGER).info("unbroken: %s", line)
        else:
            # In one piece: Snakemake's threads print too.
            sys.stderr.write(f"unbroken: {line}\n")
