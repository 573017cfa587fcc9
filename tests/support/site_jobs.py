"""A program as site scripts start it, which knows nothing of unbroken, and what to do with a conversion."""

import re
import subprocess
import sys
from pathlib import Path

# Walks to a step, a pace at a time, and writes a restart file every ten steps; goes on from one that it is given.
WALK = """import os, sys, time
goal, seconds = int(sys.argv[1]), float(sys.argv[2])
step, place = 0, 12345
if len(sys.argv) > 3:
    step, place = map(int, open(sys.argv[3]).read().split())
while step < goal:
    time.sleep(seconds)
    step, place = step + 1, (place * 1103515245 + 12345) % 2**31
    if step % 10 == 0 or step == goal:
        with open("draft", "w") as file:
            file.write(f"{step} {place}\\n")
        os.rename("draft", f"walk.{step:06d}.rst")
print("walked to", goal)
"""


def whole_walk(folder: Path, goal: int) -> bytes:
    """The last restart file of one walk without a break."""
    folder.mkdir()
    (folder / "walk.py").write_text(WALK)
    subprocess.run([sys.executable, "walk.py", str(goal), "0"], cwd=folder, check=True, capture_output=True)
    return (folder / f"walk.{goal:06d}.rst").read_bytes()


def answer(config: Path, **answers: str) -> None:
    """Types the answers to what a conversion asked, at its lines with `# ?`, and at no other line."""
    text = config.read_text()
    for key, value in answers.items():
        asked = re.compile(rf"^( *)(?:# )?{key}: \S.*?  +# [?].*$", re.MULTILINE)
        text, count = asked.subn(rf"\g<1>{key}: {value}", text)
        assert count == 1, f"{key} is not asked:\n{text}"
    config.write_text(text)
