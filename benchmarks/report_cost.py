"""What the page of all runs costs: seconds and size for 1, 100 and 1,000 runs, beside `unbroken status`."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.many_runs import make_runs

PAGE = Path("results/report.html")


def seconds(command: list[str], folder: Path) -> float:
    """How long the command takes in the folder."""
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, nargs="+", default=[1, 100, 1000])
    asked.add_argument("--segments", type=int, default=20, help="of each run")
    asked.add_argument("--times", type=int, default=5)
    options = asked.parse_args()
    unbroken = [sys.executable, "-m", "unbroken"]
    ways = [[sys.executable, "-m", "unbroken.report", "60", "a driver"], [*unbroken, "report"]]
    ways += [[*unbroken, "status", "--json"], [*unbroken, "--version"]]
    print("| runs | a driver's page | `unbroken report` | `unbroken status --json` | `unbroken --version` | size |")
    print("|---:|---:|---:|---:|---:|---:|")
    for count in options.runs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_runs(folder, count, options.segments)
            row = []
            for words in ways:
                took = [seconds(words, folder) for _ in range(options.times)]
                row.append(f"{statistics.median(took):.2f} s ({min(took):.2f} to {max(took):.2f})")
            size = os.stat(folder / PAGE).st_size
            print(f"| {count:,} | {' | '.join(row)} | {size / 1e6:.2f} MB |", flush=True)


if __name__ == "__main__":
    main()
