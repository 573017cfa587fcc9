"""What `unbroken exec` calls: rests, saves and leaves when it is told to, and ends by itself at its last call."""

import json
import os
import signal
import sys
import time
from pathlib import Path

marks, calls, start = sys.argv[1], int(sys.argv[2]), time.time()
told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
done = int(Path("state").read_text()) if os.path.exists("state") else 0
while not told and done + 1 < calls:
    time.sleep(0.02)
with open(marks, "a") as file:
    print(json.dumps({"start": start, "end": time.time()}), file=file)
with open("state.draft", "w") as file:
    print(done + 1, file=file)
os.replace("state.draft", "state")
if done + 1 == calls:
    Path("done").touch()
