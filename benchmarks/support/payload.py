"""The payload of chains made by hand: sleeps, and notes when it began and ended."""

import json
import sys
import time

if __name__ == "__main__":
    start = time.time()
    time.sleep(float(sys.argv[2]))
    with open(sys.argv[1], "a") as file:
        print(json.dumps({"start": start, "end": time.time()}), file=file)
