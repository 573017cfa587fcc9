"""A user's work as real jobs that only sleep: what support/ways.py simulates; the standard library alone.

    replayed_work.py FOLDER GOAL LIMIT MARGIN CUT HANDOVER [AFTER_MINUTES]

All in seconds.  FOLDER/work.jsonl holds a line for each start and each end.  With AFTER_MINUTES the job submits its
successor, and ends the job before if that is still at work.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    folder, numbers = Path(sys.argv[1]), [float(word) for word in sys.argv[2:7]]
    goal, limit, margin, cut, handover = numbers
    after, me, began = sys.argv[7:], os.environ["SLURM_JOB_ID"], time.time()
    book = folder / "work.jsonl"
    spans = read(book)
    before = [job for job, (_, end) in spans.items() if end is None]
    if before:
        time.sleep(handover)
        for job in before:
            note(book, job=job, end=time.time())
            subprocess.run(["scancel", job], check=True)
    starts = time.time()
    spans = read(book)
    left = goal - sum(max(end - start - cut, 0.0) for start, end in spans.values() if end is not None)
    if left <= 0:
        return
    note(book, job=me, start=starts)
    most = limit - margin - cut
    if after and left > most:
        words = [f"--dependency=afterany:{me}?after:{me}+{after[0]}", *sys.argv[1:]]
        subprocess.run([folder / "submit", *words], check=True)
    time.sleep(max(min(began + limit - margin - time.time(), cut + left), 0.0))
    end = time.time()
    note(book, job=me, end=end)
    if end - starts - cut >= left - 0.05:
        note(book, job=me, done=end)


def read(book: Path) -> dict[str, tuple[float, float | None]]:
    spans: dict[str, tuple[float, float | None]] = {}
    for line in book.read_text().splitlines() if book.exists() else ():
        entry = json.loads(line)
        if "start" in entry:
            spans[entry["job"]] = (entry["start"], None)
        elif "end" in entry:
            spans[entry["job"]] = (spans[entry["job"]][0], entry["end"])
    return spans


def note(book: Path, **entry: object) -> None:
    with book.open("a") as file:
        print(json.dumps(entry), file=file)


if __name__ == "__main__":
    main()
