"""A program with restart files of its own, which has never heard of unbroken; the standard library alone.

It adds random numbers to a sum. Its table is buffered as any C program's, so a kill takes rows with it; each row and
each restart file depends on all steps before.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

PAUSED = 3


def main() -> int:
    options = parsed()
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    step, value = 0, options.seed
    if options.resume:
        step, value = json.loads(Path(options.resume).read_text())["state"].values()
    began = time.monotonic()
    print("# walk of", options.seed, file=sys.stderr)
    with open("trace.csv", "ab", buffering=options.buffer_bytes) as trace:
        trace.write(b"step,value\n")
        trace.write(b"%d,%d\n" % (step, value))  # again after a restart, as many programs do
        while step < options.goal:
            step, value = step + 1, following(value, step + 1)
            trace.write(b"%d,%d\n" % (step, value))
            time.sleep(0 if options.hurry and os.path.exists(options.hurry) else options.step_seconds)
            is_late = options.limit and time.monotonic() - began > options.limit
            if told or is_late or (options.stop and os.path.exists(options.stop)):
                break
            if step % options.save_steps == 0 and step < options.goal:
                save(step, value, options.style)
    save(step, value, options.style)
    if options.crash_at and step >= options.crash_at:
        return 1
    return 0 if step >= options.goal or options.always_zero else PAUSED


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--hurry", default="", help="once this file is there, no step rests any more")
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--buffer-bytes", type=int, default=256)
    parser.add_argument("--style", choices=["numbered", "rename", "marker"], default="numbered")
    parser.add_argument("--limit", type=float, default=0.0)
    parser.add_argument("--resume", default="")
    parser.add_argument("--stop", default="")
    parser.add_argument("--crash-at", type=int, default=0)
    parser.add_argument("--always-zero", action="store_true")
    return parser.parse_args()


def following(value: int, step: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{value} {step}".encode()).digest()[:6])


def save(step: int, value: int, style: str) -> None:
    """Writes slowly, so that a kill or a look may come in between."""
    text = json.dumps({"state": {"step": step, "value": value}, "filling": "x" * 1000})
    name = {"numbered": f"walk.{step:06d}.json", "rename": "walk.tmp", "marker": "walk.json"}[style]
    with open(name, "w") as file:
        for begin in range(0, len(text), 200):
            file.write(text[begin : begin + 200])
            file.flush()
            time.sleep(0.0005)
    if style == "rename":
        os.replace(name, "walk.json")
    if style == "marker":
        Path("walk.done").write_text("saved\n")


if __name__ == "__main__":
    sys.exit(main())
