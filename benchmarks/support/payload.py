"""The payload of chains made by hand: sleeps, and notes when it began and ended."""

import json
import sys
import time

if __name__ == "__main__":
    start = time.time()
    sys.path.insert(0, __file__.rpartition("/")[0])  # not there by itself: python -I
    from marks import phase_seconds

    with open(sys.argv[1], "a+") as file:
        file.seek(0)
        segment = 1 + len(file.readlines())
        time.sleep(float(sys.argv[2]) - phase_seconds(segment))
        print(json.dumps({"start": start, "end": time.time()}), file=file)
