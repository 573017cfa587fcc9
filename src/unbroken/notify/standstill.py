"""How long a run's progress has been the same, as those who look at it have noted."""

from __future__ import annotations

import json

from unbroken.runs.layout import NOTES, RunFolder
from unbroken.system import fs, jsontext


def still_seconds(places: RunFolder, done: float) -> float:
    """Return how long the looks have found this progress; 0 at the first that finds it.

    By the file server's clock: the looks are made on several machines.
    """
    path = places.base / NOTES / "notify" / places.name / "progress.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    now = fs.now_of(path.parent)
    try:
        seen = jsontext.parse(path.read_text())
        if seen["done"] == done:
            return max(now - float(seen["since"]), 0.0)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the first look, or a note that a kill has torn
    fs.write_atomic(path, json.dumps({"done": done, "since": now}))
    return 0.0
