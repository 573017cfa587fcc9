"""A program as one may have it: it knows nothing of unbroken, and keeps its state in `state.json`.

python -m unbroken_walk.walk STEPS SEED PAUSE     goes on where state.json is; SIGTERM: saves and leaves, exit code 0
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STATE = Path("state.json")


def main() -> int:
    steps, seed, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    state = json.loads(STATE.read_text()) if STATE.exists() else {"step": 0, "place": 0, "number": seed}
    while state["step"] < steps and not told:
        state["number"] = (state["number"] * 1103515245 + 12345) % 2**31
        state["place"] += 1 if state["number"] & 2**16 else -1
        state["step"] += 1
        if state["step"] % 10 == 0:
            save(state)
        time.sleep(pause)
    save(state)
    return 0


def save(state: dict[str, int]) -> None:
    """Never half written: another name first."""
    draft = STATE.with_suffix(".tmp")
    draft.write_text(json.dumps(state))
    os.replace(draft, STATE)


if __name__ == "__main__":
    sys.exit(main())
