#!/usr/bin/env python3
"""A gmx whose mdrun takes -plumed, for a GROMACS without PLUMED: the real mdrun, and tables as PLUMED leaves them.

METAD reads the hills that are in HILLS and continues there; PRINT writes COLVAR, at the step of a restart once more.
The rows are there before mdrun reaches their times, so a kill leaves rows from behind the checkpoint; mdrun that leaves
by itself leaves none.  Each start is noted in $PLUMED_STARTS: how many hills it read, and from which time it resumed.
"""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

GMX = "/usr/bin/gmx"
STEP_PS, HILL_PS, LAST_PS = 0.1, 0.2, 400.0
KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def time_in(cpt: str) -> float:
    said = subprocess.run([GMX, "-quiet", "dump", "-cp", cpt], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(?m)^t = ([0-9.]+)", said)
    assert found is not None
    return float(found[1])


def append(name: str, first: int, every_ps: float, columns: str, constant: str) -> None:
    is_new = not Path(name).exists()
    with open(name, "a") as table:
        if is_new:
            table.write(f"#! FIELDS time {columns}\n")
        table.writelines(f" {n * every_ps:.6f} {constant}\n" for n in range(first, int(LAST_PS / every_ps)))


def cut(name: str, time_ps: float) -> None:
    lines = Path(name).read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.startswith("#") or float(line.split()[0]) <= time_ps + 1e-9]
    Path(name).write_text("".join(kept))


def main(words: list[str]) -> int:
    at = words.index("-plumed")
    assert Path(words[at + 1]).is_file(), words[at + 1]
    begun = time_in(words[words.index("-cpi") + 1]) if "-cpi" in words else 0.0
    lines = Path("HILLS").read_text().splitlines() if Path("HILLS").exists() else []
    hills = sum(not line.startswith("#") for line in lines)
    with open(os.environ["PLUMED_STARTS"], "a") as starts:
        starts.write(f"{hills} {begun:.3f}\n")
    append("COLVAR", math.ceil(begun / STEP_PS - 1e-9), STEP_PS, "phi", "1.5")
    append("HILLS", int(begun / HILL_PS + 1e-9) + 1, HILL_PS, "phi height", "1.5 0.3")
    mdrun = subprocess.Popen(
        [GMX, *words[:at], *words[at + 2 :]],
        preexec_fn=lambda: ctypes.CDLL(None).prctl(KILL_WITH_PARENT, signal.SIGKILL),
    )
    signal.signal(signal.SIGTERM, lambda number, frame: mdrun.send_signal(number))
    code = mdrun.wait()
    for name in ("COLVAR", "HILLS"):
        cut(name, time_in("md.cpt"))
    return code


if __name__ == "__main__":
    if "-plumed" in sys.argv:
        sys.exit(main(sys.argv[1:]))
    os.execv(GMX, [GMX, *sys.argv[1:]])
