"""A program of several ranks that keeps the environment contract: each leaves its part, rank 0 saves for all."""

import json
import os
import time
from pathlib import Path

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
resume, save = os.environ["UNBROKEN_RESUME"], Path(os.environ["UNBROKEN_SAVE"])
stop, goal = Path(os.environ["UNBROKEN_STOP"]), int(os.environ["UNBROKEN_GOAL"])
done = int(Path(resume, "rank_0").read_text().split()[0]) if resume else 0
while done < goal and not stop.exists():
    time.sleep(0.1)
    done += 1
(save / f"draft_{rank}").write_text(f"{done} {os.environ['SLURMD_NODENAME']} of {size}\n")
(save / f"draft_{rank}").rename(save / f"rank_{rank}")
if rank == 0:
    while len(list(save.glob("rank_*"))) < size:
        time.sleep(0.01)
    (save / "progress.json").write_text(json.dumps({"done": done, "goal": goal, "unit": "steps"}))
raise SystemExit(0 if done >= goal else 85)
