"""Says when a stage took a quarter longer than the number kept for it: `stage_times.py STAGE SECONDS EXIT-CODE`.

tests/times.json keeps the seconds of each stage on two idle cores; UNBROKEN_KEEP_TIMES=1 writes them. It runs with any
python3, because it also speaks of the set-up of the one that is wanted.
"""

import fcntl
import json
import os
import sys
from pathlib import Path

KEPT = Path(__file__).parents[1] / "tests" / "times.json"
# A stage of a second or two is not slow because it took three.
LEAST_SECONDS = 5


def tell(stage: str, seconds: int, code: int, table: Path = KEPT) -> None:
    """Keep the seconds of a green stage where that is asked for; else say if they are many."""
    if os.environ.get("UNBROKEN_KEEP_TIMES") == "1":
        if code == 0:
            _keep(stage, seconds, table)
        return
    kept = _read(table).get(stage)
    if kept is not None and seconds > kept * 1.25 and seconds - kept >= LEAST_SECONDS:
        print(f"== {stage:<14} slower than kept: {seconds} s, not {kept} (tests/times.json)", flush=True)


def _read(table: Path) -> dict:
    return json.loads(table.read_text()) if table.exists() else {}


def _keep(stage: str, seconds: int, table: Path) -> None:
    with table.open("a+") as file:
        # Stages may run side by side.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        times = json.loads(file.read() or "{}")
        times[stage] = seconds
        file.truncate(0)
        file.write(json.dumps(times, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    tell(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
