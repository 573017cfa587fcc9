"""Spares a segment the half second that Python's collector takes at the end of a process; standard library alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping


def keep_what_is_loaded(environment: Mapping[str, str] = os.environ) -> None:
    """In a segment, takes all that is loaded by now out of the collector's sight.

    A framework has some 500,000 objects that stay to the end, and at the end all are looked through once more.  What
    the program makes from here on is collected as ever.
    """
    if environment.get("UNBROKEN_SAVE"):
        gc.freeze()
