"""Trainings killed at every file event of their saves, then resumed, judged by a tool of somebody else's: ckpt-chaos.

It runs a program once to see every file that is made, renamed or removed; then it ends a fresh copy at each of these
events (before it, with the file cut in half, after SIGTERM, with what was not flushed undone), starts the program again
and compares what came back. HARD_FAIL: the resume failed; SILENT_DIVERGENCE: another result; LOST_WORK: resumed from an
older checkpoint than the newest whole one.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from support.measure import EVIDENCE, machine, options, publish, table

PROGRAMS = Path(__file__).with_name("killed")
CHAOS = [sys.executable, "-m", "ckpt_chaos"]
STEP = r"resumed from step (\d+)"

# Name on the page, where the result is, where the checkpoints are.
TRAININGS = {
    "by_hand": ("`torch.save` over the file before", "final.pt", ""),
    "with_unbroken": ("unbroken", "run/final/final.pt", "checkpoint-*"),
    "with_zero": ("unbroken, ZeRO-2 on two ranks", "run/final/final.pt", "checkpoint-*"),
    "with_lightning": ("Lightning, `ModelCheckpoint`", "final.pt", "checkpoint-*.ckpt"),
    "with_trainer": ("transformers' `Trainer`", "final.pt", "checkpoint-*"),
    "with_jax": ("unbroken, JAX", "run/final/final.txt", "checkpoint-*"),
}
LIBRARIES = {"with_jax": "jax", "with_zero": "deepspeed"}
SHOWN = {"jax": ("jax", "orbax-checkpoint"), "deepspeed": ("accelerate", "deepspeed")}
RANKS = {"with_zero": 2}


def installed() -> list[str]:
    return [name for name in TRAININGS if name not in LIBRARIES or find_spec(LIBRARIES[name])]


def killed(name: str, points: int, modes: str, work: Path) -> None:
    """Kills one training at up to so many events; its verdicts are in `work`.  SystemExit if it could not be tried."""
    _, result, checkpoints = TRAININGS[name]
    command = [*CHAOS, "run", f"--work={work}", f"--max-points={points}", f"--modes={modes}"]
    command += [f"--jobs={os.cpu_count()}", f"--ranks={RANKS.get(name, 1)}"]
    command += [f"--result-file={{out}}/{result}", f"--step-regex={STEP}", "--fail-on=CONTROL_FAIL"]
    command += [f"--checkpoint-glob={{out}}/{checkpoints}"] if checkpoints else []
    done = subprocess.run([*command, "--", sys.executable, PROGRAMS / f"{name}.py", "--out={out}"], stdout=sys.stderr)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}, see above")


if __name__ == "__main__":
    chosen = options(
        __doc__,
        points=(int, 200, "at most so many kills of a training"),
        modes=(str, "before,torn,term,unsynced", "these ways to end it"),
        programs=(str, ",".join(installed()), "these trainings"),
    )
    needed = {LIBRARIES[name] for name in chosen.programs.split(",") if name in LIBRARIES}
    others = [name for library in sorted(needed) for name in SHOWN[library]]
    where = machine("ckpt-chaos", "torch", "pytorch-lightning", "transformers", *others)
    with tempfile.TemporaryDirectory(prefix="killed-saves-") as folder:
        names = chosen.programs.split(",")
        for name in names:
            killed(name, chosen.points, chosen.modes, Path(folder, name))
        runs = [f"{TRAININGS[name][0]}={Path(folder, name)}" for name in names]
        text = subprocess.run([*CHAOS, "scoreboard", *runs], capture_output=True, text=True, check=True).stdout
    # The versions are said once, above the table.
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-2]] for line in text.strip().splitlines())
    publish("killed_saves", f"{where}\n\n{table(header, rows)}", chosen.write, EVIDENCE)
