"""JSON that somebody else may have written, or spoilt."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The value; ValueError for whatever is wrong with the text, also if it is nested more deeply than Python reads."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
