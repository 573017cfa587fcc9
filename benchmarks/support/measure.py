"""Side by side: runs variants in turns, counts what each costs, and writes the medians as a table."""

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from random import Random
from statistics import median
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
EVIDENCE = ROOT / "docs" / "evidence.md"
SNAKEMAKE = [sys.executable, "-m", "snakemake"]

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What a process and all its children took; `peak_mb` is the largest of them."""

    wall_seconds: float
    cpu_seconds: float
    peak_mb: float


def cost_of(command: Sequence[str], folder: Path, log: Path | None = None) -> Cost:
    """Runs a command to its end in `folder`; SystemExit with its last lines if it fails."""
    log = log or folder / "output.log"
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        last = log.read_text(errors="replace")[-2000:]
        sys.exit(f"{' '.join(command)} (in {folder}) ended with {process.returncode}:\n{last}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def in_turns(variants: dict[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Runs all variants once a round, so that what else the machine does meets all alike; progress goes to stderr.

    Each round has another order: what a variant leaves in the memory and on its way to the disk meets the next one.
    """
    found: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}, {len(variants)} variants", file=sys.stderr, flush=True)
        for name in Random(number).sample(list(variants), len(variants)):
            found[name].append(variants[name]())
    return found


def spread(values: Iterable[float], digits: int = 2) -> str:
    """`1.20 (1.15-1.31)`: the median, the least and the most."""
    numbers = list(values)
    if not numbers:
        return "-"
    if len(numbers) == 1:
        return f"{numbers[0]:.{digits}f}"
    return f"{median(numbers):.{digits}f} ({min(numbers):.{digits}f}-{max(numbers):.{digits}f})"


def ratios(values: Sequence[float], bases: Sequence[float]) -> list[float]:
    """Round by round, so that both were measured within the same minute."""
    return [value / base for value, base in zip(values, bases, strict=True)]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine(*packages: str) -> str:
    """One line: when, on what, with which versions, and how busy it is otherwise."""
    names = (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name"))
    cpu = f"{len(os.sched_getaffinity(0))} cores of {next(names, platform.machine())}"
    versions = ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)])
    load = os.getloadavg()[0]
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{today}, {cpu}, {versions}; load {load:.1f} before the start."


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def options(description: str | None, **extra: tuple[type, object, str]) -> argparse.Namespace:
    """The command line of a benchmark: `--write`, and what it names (type, default, help)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md as well")
    for name, (kind, default, text) in extra.items():
        flag = f"--{name.replace('_', '-')}"
        if kind is bool:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, type=kind, default=default, help=f"{text} (default: {default})")
    return parser.parse_args()


def publish(place: str, text: str, is_written: bool, on: Path = PAGE) -> None:
    """Prints a result; writes it between the marks `<!-- bench: place -->` and `<!-- /bench -->` of the page."""
    print(f"\n{text}\n", flush=True)
    if not is_written:
        return
    page = on.read_text()
    pattern = rf"(<!-- bench: {re.escape(place)} -->\n).*?(<!-- /bench -->)"
    changed, count = re.subn(pattern, lambda found: f"{found[1]}{text}\n{found[2]}", page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{on}: {count} places marked <!-- bench: {place} -->, one is needed")
    on.write_text(changed)
