"""Count, and keep the environment contract without importing anything of unbroken: the toy program.

It represents any program with restart files of its own: `state.json` is its position, `trace.csv` is its result, a
row a step.  Each step's value depends on all steps before, so a lost or doubled step shows in every later row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

EXIT_FINISHED = 0
EXIT_PAUSED = 85


def main() -> int:
    """Count to the goal, save now and then, leave in time; return the exit code."""
    options = _options()
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))  # Slurm sends it to every process of a job
    resume = os.environ["UNBROKEN_RESUME"]
    step, value, rows = _load(Path(resume)) if resume else (0, options.seed, [])
    saved_at, saved_step = time.monotonic(), step
    while step < options.goal:
        step, value = step + 1, _next(value, step + 1)
        rows.append(f"{step},{value}")
        time.sleep(options.step_seconds)
        _report(step, options.goal)
        if told or os.path.exists(os.environ["UNBROKEN_STOP"]) or time.time() > _deadline() - 0.2:
            _save(step, value, rows, options.goal)
            return EXIT_FINISHED if step == options.goal else EXIT_PAUSED
        is_time = time.monotonic() - saved_at >= float(os.environ["UNBROKEN_SAVE_SECONDS"])
        is_due = is_time or (options.save_steps and step - saved_step >= options.save_steps)
        if is_due and step < options.goal:  # the last state is saved below
            _save(step, value, rows, options.goal)
            saved_at, saved_step = time.monotonic(), step
    _save(step, value, rows, options.goal)
    return EXIT_FINISHED


def _deadline() -> float:
    """Return the current deadline; the file is rewritten when the job's end is moved."""
    path = os.environ.get("UNBROKEN_DEADLINE_FILE")
    return float(Path(path).read_text() if path else os.environ["UNBROKEN_DEADLINE"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.01)
    parser.add_argument("--save-steps", type=int, default=0, help="0: by time alone")
    return parser.parse_args()


def _next(value: int, step: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{value} {step}".encode()).digest()[:8])


def _load(folder: Path) -> tuple[int, int, list[str]]:
    state = json.loads((folder / "state.json").read_text())
    return state["step"], state["value"], (folder / "trace.csv").read_text().splitlines()[1:]


def _save(step: int, value: int, rows: list[str], goal: int) -> None:
    """Fill a draft folder and hand it over by one rename."""
    save = Path(os.environ["UNBROKEN_SAVE"])
    draft = save / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    (draft / "state.json").write_text(json.dumps({"step": step, "value": value}) + "\n")
    (draft / "trace.csv").write_text("\n".join(["step,value", *rows]) + "\n")
    (draft / "progress.json").write_text(_progress(step, goal))
    draft.rename(save / f"{step:09d}.ready")


def _report(step: int, goal: int) -> None:
    path = Path(os.environ["UNBROKEN_PROGRESS"])
    draft = path.with_suffix(".tmp")
    draft.write_text(_progress(step, goal))
    draft.replace(path)


def _progress(step: int, goal: int) -> str:
    return json.dumps({"done": step, "goal": goal, "unit": "steps"})


if __name__ == "__main__":
    sys.exit(main())
