"""A program with a restart file of its own, of which a config can say the wrong thing; standard library alone.

It counts. Each start does so many steps, whatever the clock says, so that a test knows what is in its files.
"""

import argparse
import os
import sys
import time
from pathlib import Path

PAUSED = 85
STATE = Path("state.txt")


def main() -> int:
    options = parsed()
    step = int(STATE.read_text().split()[-1]) if STATE.exists() else 0
    end = min(step + options.steps, options.goal)
    with open("table.csv", "a") as table:
        table.write("# a comment\nstep,value\n")
        while step < end:
            step += 1
            time.sleep(options.step_seconds)
            if step % options.every == 0:
                table.write(f"{step},{step * step}\n")
            if options.save_every and step % options.save_every == 0:
                table.flush()
                save(step, options.style, options.rest_seconds)
    save(step, options.style, 0.0)
    if options.waits_for:
        give_up = time.monotonic() + 600
        while not Path(options.waits_for).exists() and not os.path.exists(options.stop) and time.monotonic() < give_up:
            time.sleep(0.01)
    return 0 if step >= options.goal else PAUSED


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=int, required=True)
    parser.add_argument("--steps", type=int, default=494)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--style", choices=["rename", "in-place"], default="rename")
    parser.add_argument("--rest-seconds", type=float, default=0.0)
    parser.add_argument("--waits-for", default="")
    parser.add_argument("--stop", default="")
    return parser.parse_args()


def save(step: int, style: str, rest_seconds: float) -> None:
    """The first line is no progress; in place it rests in the middle, so that a look may come in between."""
    lines = [f"0 counters, saved at {step / 1000}\n", f"half {step // 2}\n", f"step {step}\n"]
    name = "state.tmp" if style == "rename" else str(STATE)
    with open(name, "w") as file:
        for line in lines:
            file.write(line)
            file.flush()
            time.sleep(rest_seconds)
    if style == "rename":
        os.replace(name, STATE)


if __name__ == "__main__":
    sys.exit(main())
