"""How long a run's progress has been the same, as those who look at it have noted."""

from __future__ import annotations

import json
import time

from unbroken.runs.layout import NOTES, RunFolder
from unbroken.system import fs, jsontext


def still_seconds(places: RunFolder, done: float) -> float:
    """Since when the looks have found this progress; 0 at the first that finds it."""
    path = places.base / NOTES / "notify" / places.name / "progress.json"
    try:
        seen = jsontext.parse(path.read_text())
        if seen["done"] == done:
            return max(time.time() - float(seen["since"]), 0.0)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the first look, or a note that a kill has torn
    path.parent.mkdir(parents=True, exist_ok=True)
    fs.write_atomic(path, json.dumps({"done": done, "since": time.time()}))
    return 0.0
