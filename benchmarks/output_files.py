"""What keeping a program's output costs: many files for one checkpoint, and observing a program that saves often.

Listing flushes and digests both ends of each new file; putting back looks at both ends again.  `cp -al` makes a second
name of each file and reads none.  The program that is observed writes a row every 5 ms, and ten times a second a state
of 100 KB that it replaces by a rename; what stands beside it is the thread that watches its files, with the journal.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.measure import in_turns, machine, options, publish, ratios, spread, table

from unbroken.engines.files.kinds import FileKinds
from unbroken.engines.files.moments import MomentJournal
from unbroken.engines.files.observer import FileObserver
from unbroken.engines.files.outputs import OutputList
from unbroken.engines.files.settings import Program
from unbroken.engines.files.tracker import OutputTracker
from unbroken.engines.files.workspace import Workspace
from unbroken.engines.files.writers import ProgramLife

IN_A_FOLDER = 1000
PROGRAM = """
import os, sys, time
end, rows, state = time.monotonic() + float(sys.argv[1]), 0, b"x" * 100_000
with open("table", "w", buffering=1) as table:
    while time.monotonic() < end:
        rows += 1
        table.write(f"{rows},{sum(range(20_000))}\\n")
        if rows % 20 == 0:
            with open("state.tmp", "wb") as file:
                file.write(state)
            os.replace("state.tmp", "state")
        time.sleep(0.005)
print(rows)
"""


@dataclass(frozen=True)
class Spent:
    wall_seconds: float
    cpu_seconds: float
    rows: int = 0  # that the program has made


def write_files(folder: Path, count: int, size_bytes: int) -> None:
    for number in range(count):
        if number % IN_A_FOLDER == 0:
            below = folder / f"part_{number // IN_A_FOLDER:04d}"
            below.mkdir(parents=True)
        (below / f"file_{number:06d}").write_bytes(b"x" * size_bytes)


def cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def spent_on(work: Callable[[], object]) -> Spent:
    began, began_cpu = time.perf_counter(), cpu_seconds()
    work()
    return Spent(time.perf_counter() - began, cpu_seconds() - began_cpu)


class Kept:
    """A run whose program has left so many files."""

    def __init__(self, base: Path, count: int, size_bytes: int) -> None:
        self.base, self.folder, self.listed = base, base / "work" / "program", OutputList()
        self._lists = 0
        write_files(self.folder, count, size_bytes)

    def link(self) -> None:
        subprocess.run(["cp", "-al", self.folder, self.base / f"links-{time.monotonic_ns()}"], check=True)

    def list(self) -> None:
        self._lists += 1
        workspace = Workspace(self.base, self.folder)
        tracker = OutputTracker(workspace, 1, 0, self.listed, FileKinds(Program(())))
        tracker.begin()
        tracker.list_into(self.base / f"draft-{self._lists}", None)
        self.listed = tracker.listed

    def restore(self) -> None:
        Workspace(self.base, self.folder).restore(None, self.listed, lambda _: True)


def measure_many(base: Path, count: int, size_bytes: int, rounds: int) -> str:
    found: dict[str, list[Spent]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory(dir=base) as name:
            kept = Kept(Path(name), count, size_bytes)
            for title, work in (
                ("`cp -al`", kept.link),
                ("unbroken: the first list, all files new", kept.list),
                ("unbroken: the next list, no file changed", kept.list),
                ("unbroken: put back after a restart, copies of small files made", kept.restore),
                ("unbroken: put back once more", kept.restore),
            ):
                found.setdefault(title, []).append(spent_on(work))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    walls = {name: [spent.wall_seconds for spent in all_spent] for name, all_spent in found.items()}
    plain = walls["`cp -al`"]
    rows = [[name, spread(walls[name]), spread(ratios(walls[name], plain))] for name in found]
    title = f"**{count:,} output files of {size_bytes:,} bytes**, rounds: {rounds}"
    return f"{title}\n\n{table(['what', 'seconds', 'times `cp -al`'], rows)}"


def run_program(seconds: float, others: int, is_observed: bool) -> Spent:
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
        folder = Path(name) / "program"
        folder.mkdir()
        write_files(folder, others, 1)
        journal = MomentJournal(Path(name) / "moments.jsonl")
        observer = FileObserver(
            folder,
            re.compile("state").fullmatch,  # type: ignore[arg-type]
            ProgramLife(f"UNBROKEN_SAVE={folder}"),
            on_moment=journal.note,
        )
        if is_observed:
            journal.begin({})
            observer.start([path.relative_to(folder).as_posix() for path in folder.rglob("file_*")])
        began = time.process_time()
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, str(seconds)], cwd=folder, capture_output=True, check=True
        )
        observer.close()
        return Spent(seconds, time.process_time() - began, int(done.stdout))


def measure_observing(seconds: float, others: int, rounds: int) -> str:
    variants = {
        "alone": partial(run_program, seconds, others, False),
        "observed": partial(run_program, seconds, others, True),
    }
    found = in_turns(variants, rounds)
    made = {name: [float(spent.rows) for spent in all_spent] for name, all_spent in found.items()}
    rows = [
        [
            name,
            spread([number / seconds for number in made[name]], 1),
            spread(ratios(made[name], made["alone"]), 3),
            spread([100 * spent.cpu_seconds / seconds for spent in found[name]], 1),
        ]
        for name in variants
    ]
    header = ["program", "rows a second", "times alone", "% of a core in our process"]
    return f"**Ten saves a second, {others:,} other files in the folder**, rounds: {rounds}\n\n{table(header, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        files=(int, 100_000, "how many"),
        size=(int, 1000, "of each, in bytes"),
        seconds=(float, 10.0, "how long the program works"),
        rounds=(int, 5, "how often"),
    )
    where = machine("xxhash")
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
        many = measure_many(Path(name), chosen.files, chosen.size, chosen.rounds)
    few = measure_observing(chosen.seconds, 10, chosen.rounds)
    most = measure_observing(chosen.seconds, chosen.files // 10, chosen.rounds)
    publish("output_files", f"{where}\n\n{many}\n\n{few}\n\n{most}", chosen.write)
