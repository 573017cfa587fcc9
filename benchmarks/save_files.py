"""What publishing a checkpoint of very many small files costs, beside `cp -a` of them and one flush of the file system.

The program has just written them: nothing is on the disk yet.  Publishing digests each file, flushes all, writes the
passport and renames the folder; `cp -a` reads and writes each and digests none.
"""

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from save import passport
from support.measure import in_turns, machine, options, publish, ratios, spread, table

from unbroken.store.checkpoints import Store

IN_A_FOLDER = 1000
Variants = dict[str, Callable[[Path], object]]


@dataclass(frozen=True)
class Spent:
    wall_seconds: float
    cpu_seconds: float


def write_files(folder: Path, count: int, size_bytes: int) -> None:
    for number in range(count):
        if number % IN_A_FOLDER == 0:
            below = folder / f"part_{number // IN_A_FOLDER:04d}"
            below.mkdir(parents=True)
        (below / f"file_{number:06d}").write_bytes(os.urandom(size_bytes))


def cpu_seconds() -> float:
    """Return the time of this process and its children, to the microsecond; times(2) counts hundredths."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def timed(work: Callable[[Path], object], count: int, size_bytes: int) -> Spent:
    """Of work on a folder `draft` of new files; nothing older is still on its way to the disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
        base = Path(name)
        os.sync()
        write_files(base / "draft", count, size_bytes)
        began, began_cpu = time.perf_counter(), cpu_seconds()
        work(base)
        return Spent(time.perf_counter() - began, cpu_seconds() - began_cpu)


def copy(base: Path) -> None:
    subprocess.run(["cp", "-a", base / "draft", base / "copy"], check=True)
    subprocess.run(["sync", "-f", base], check=True)


def make_checkpoint(base: Path) -> None:
    Store(base / "checkpoints").publish(base / "draft", passport({}), lambda: None)


VARIANTS: Variants = {
    "`cp -a` and one `sync -f`": copy,
    "unbroken: digests, flushed one by one, passport, rename": make_checkpoint,
}


def measure(variants: Variants, count: int, size_bytes: int, rounds: int) -> str:
    found = in_turns({name: partial(timed, work, count, size_bytes) for name, work in variants.items()}, rounds)
    walls = {name: [spent.wall_seconds for spent in all_spent] for name, all_spent in found.items()}
    cpus = {name: [spent.cpu_seconds for spent in all_spent] for name, all_spent in found.items()}
    (plain, *_), (plain_cpu, *_) = walls.values(), cpus.values()
    rows = [
        [
            name,
            spread(walls[name]),
            spread(ratios(walls[name], plain)),
            spread(cpus[name]),
            spread(ratios(cpus[name], plain_cpu)),
        ]
        for name in variants
    ]
    header = ["variant", "seconds", "times `cp -a`", "CPU seconds", "times `cp -a`"]
    return f"**{count:,} files of {size_bytes:,} bytes**, rounds: {rounds}\n\n{table(header, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        files=(int, 100_000, "how many"),
        size=(int, 1000, "of each, in bytes"),
        rounds=(int, 5, "how often"),
    )
    where = machine("xxhash")
    publish("save_files", f"{where}\n\n{measure(VARIANTS, chosen.files, chosen.size, chosen.rounds)}", chosen.write)
