"""Programs that save in the ways that programs do, and have never heard of unbroken; the standard library alone.

    savers.py WAY GOAL STEP_SECONDS STOP [HURRY]

Each step hangs on all steps before.  It resumes from what it finds in its folder.  Exit code 3: told to stop by a file
(STOP), there is more to do.  Once the file HURRY is there, no step rests any more.
"""

import hashlib
import os
import sqlite3
import sys
import time
from pathlib import Path

SAVE_STEPS, PAUSED = 5, 3
FILLING = "".join(f"filling {number}\n" for number in range(200))
TORN, APART, EMPTY = 4, 5, 6


def following(value: int, step: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{value} {step}".encode()).digest()[:6])


class Saver:
    """Writes one state file in place, and a table that stays open."""

    def __init__(self) -> None:
        self.step, self.value = 0, 1
        self.load()
        self.begin()

    def text(self) -> str:
        return f"step {self.step}\nvalue {self.value}\n{FILLING}end\n"

    def take(self, text: str) -> None:
        """Exit code 4 for a torn state."""
        if not text.endswith("end\n"):
            sys.exit(TORN)
        step, value = text.splitlines()[:2]
        self.step, self.value = int(step.split()[1]), int(value.split()[1])

    def write(self, path: Path, text: str) -> None:
        """Writes slowly, so that a kill or a look comes in between."""
        with path.open("w") as file:
            for begin in range(0, len(text), 1000):
                file.write(text[begin : begin + 1000])
                file.flush()
                time.sleep(0.0005)

    def load(self) -> None:
        if Path("state.txt").exists():
            self.take(Path("state.txt").read_text())

    def save(self) -> None:
        self.write(Path("state.txt"), self.text())

    def begin(self) -> None:
        self.table = open("table.csv", "a", buffering=1)  # noqa: SIM115

    def row(self) -> None:
        self.table.write(f"{self.step},{self.value}\n")

    def end(self) -> None:
        self.table.close()


class Renamed(Saver):
    """Replaces the state by a rename."""

    def save(self) -> None:
        self.write(Path("state.tmp"), self.text())
        os.replace("state.tmp", "state.txt")


class Alternating(Saver):
    """Writes two names in turns, and resumes from the newer one by its time."""

    def load(self) -> None:
        found = sorted(Path().glob("?.chk"), key=lambda path: path.stat().st_mtime_ns)
        if found:
            self.take(found[-1].read_text())

    def save(self) -> None:
        self.write(Path("ab"[self.step // SAVE_STEPS % 2] + ".chk"), self.text())


class Snapshots(Renamed):
    """Leaves a file for every step."""

    def row(self) -> None:
        super().row()
        Path(f"snap_{self.step:04d}.txt").write_text(self.text())


class Appended(Renamed):
    """Keeps a binary trajectory open too."""

    def begin(self) -> None:
        super().begin()
        self.frames = open("frames.bin", "ab", buffering=0)  # noqa: SIM115

    def row(self) -> None:
        super().row()
        self.frames.write(self.step.to_bytes(4) + hashlib.sha256(self.value.to_bytes(8)).digest() * 40)


class Buffered(Renamed):
    """Has rows in its buffer when it saves, as C programs do."""

    def begin(self) -> None:
        self.table = open("table.csv", "a", buffering=4096)  # noqa: SIM115


class Log(Saver):
    """Begins its log again at each start."""

    def begin(self) -> None:
        super().begin()
        self.log = open("run.log", "w", buffering=1)  # noqa: SIM115
        self.log.write(f"resumed at {self.step}\n")

    def row(self) -> None:
        super().row()
        self.log.write(f"step {self.step}\n")


class Latest(Saver):
    """Saves into a folder for each save; a link leads to the newest."""

    def load(self) -> None:
        if os.path.lexists("latest"):
            self.take(Path("latest/state.txt").read_text())

    def save(self) -> None:
        folder = Path(f"save_{self.step:05d}")
        folder.mkdir(exist_ok=True)
        self.write(folder / "state.txt", self.text())
        os.symlink(folder, "latest.tmp")
        os.replace("latest.tmp", "latest")
        for old in sorted(Path().glob("save_*"))[:-3]:
            (old / "state.txt").unlink(missing_ok=True)
            old.rmdir()


class Burst(Saver):
    """Saves three files one after another; exit code 5 if they are of different steps."""

    NAMES = ("coordinates.txt", "velocities.txt", "box.txt")

    def load(self) -> None:
        steps = set()
        for name in self.NAMES:
            if Path(name).exists():
                self.take(Path(name).read_text())
                steps.add(self.step)
        if len(steps) > 1 or (steps and not all(map(os.path.exists, self.NAMES))):
            sys.exit(APART)

    def save(self) -> None:
        for name in self.NAMES:
            self.write(Path(name), self.text())


class Times(Saver):
    """Saves into a folder for each time, and resumes from the latest one; exit code 6 if that is empty."""

    def load(self) -> None:
        found = sorted((path for path in Path().iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
        if found and not all((found[-1] / name).exists() for name in "Up"):
            sys.exit(EMPTY)
        if found:
            for name in "pU":
                self.take((found[-1] / name).read_text())

    def save(self) -> None:
        folder = Path(str(self.step))
        folder.mkdir(exist_ok=True)
        for name in "Up":
            (folder / name).write_text(self.text())


class Status(Renamed):
    """Writes a small file again and again, in place."""

    def row(self) -> None:
        super().row()
        Path("status.txt").write_text(f"{self.step}\n")


class Database(Saver):
    """Has its state in a database that stays open."""

    MODE = "delete"

    def load(self) -> None:
        self.book = sqlite3.connect("book.db", isolation_level=None)
        self.book.execute(f"PRAGMA journal_mode = {self.MODE}")
        self.book.execute("CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, text TEXT)")
        found = self.book.execute("SELECT text FROM states").fetchone()
        if found:
            self.take(found[0])

    def save(self) -> None:
        self.book.execute("REPLACE INTO states VALUES (?, ?)", ("newest", self.text()))

    def end(self) -> None:
        super().end()
        self.book.close()


class Logged(Database):
    """The same with a write-ahead log."""

    MODE = "wal"


_ALL = (Saver, Renamed, Alternating, Snapshots, Appended, Buffered, Log, Latest, Burst, Times, Status, Database, Logged)
WAYS = {each.__name__.lower(): each for each in _ALL}


def main() -> int:
    way, goal, rest, stop, *hurry = sys.argv[1:]
    saver = WAYS[way]()
    while saver.step < int(goal):
        saver.value, saver.step = following(saver.value, saver.step + 1), saver.step + 1
        saver.row()
        is_told = os.path.exists(stop)
        if saver.step % SAVE_STEPS == 0 or is_told or saver.step == int(goal):
            saver.save()
        if is_told:
            break
        time.sleep(0 if hurry and os.path.exists(hurry[0]) else float(rest))
    saver.end()
    return 0 if saver.step >= int(goal) else PAUSED


if __name__ == "__main__":
    sys.exit(main())
