"""A working directory in which real snakemake processes run: its config, its drivers, and what they leave."""

import base64
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.prefork import Started, start_command
from support.toyrun import PATIENCE_SECONDS, ROOT, until, whole_toy

from unbroken.program import guard
from unbroken.store.checkpoint import Passport
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, History
from unbroken.store.layout import RunFolder
from unbroken.store.record import Record, read_record

__all__ = ["PATIENCE_SECONDS", "ROOT", "until"]
BIN = Path(sys.executable).parent
COUNTER = Path(__file__).with_name("counter.py")
# Every process that a test starts inherits it, so all of them can be found whatever their parents are.
MARKER = "UNBROKEN_TEST_DIRECTORY"
# Most tests read what each segment says, which the console leaves to the logs; its own tests are in test_console.py.
PLAIN_OUTPUT = {"UNBROKEN_CONSOLE": "off", "UNBROKEN_REPORT": "off"}
NOT_REHEARSED = "unbroken: not rehearsed: "


@dataclass(frozen=True)
class Done:
    """What a program that has ended said, both outputs together."""

    code: int
    text: str

    def lines(self, start: str) -> list[str]:
        """The lines that begin so, without the one that a first start says of each run."""
        # Snakemake's thread writes a line and its end one after the other: ours may stand between.
        text = self.text.replace(f"/bash{start}", f"/bash\n{start}")
        lines = (line for line in text.splitlines() if not line.startswith(NOT_REHEARSED))
        return [line for line in lines if line.startswith(start)]

    @property
    def planned(self) -> int:
        """How many segments the printed table of jobs counts."""
        rows = [line.split() for line in self.text.partition("Job stats:")[2].split("\n\n")[0].splitlines()]
        return sum(int(row[1]) for row in rows if len(row) == 2 and row[0].endswith("_segment"))


@dataclass
class Driver:
    """A running snakemake, first of a session and a process group of its own, as at a terminal."""

    process: Started
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text()

    def kill(self) -> None:
        """KILL to the driver alone; its segments live on as orphans."""
        self.process.kill()
        self.process.wait()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """What a Ctrl-C does: INT to the whole foreground group; a terminal that is closed sends HUP."""
        os.killpg(self.process.pid, number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> Done:
        return Done(self.process.wait(seconds), self.text)


@dataclass
class WorkDir:
    """A working directory below a test's temporary folder."""

    root: Path
    snakefile: Path = ROOT / "Snakefile"
    profile: Path | None = None
    words: tuple[str, ...] = ()  # that every driver gets
    added_environment: dict[str, str] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)

    # --- configuration ---

    def configure(self, runs: dict[str, object], **defaults: object) -> None:
        """Writes config/config.yaml anew."""
        path = self.root / "config" / "config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"defaults": defaults, "runs": runs}, sort_keys=False))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def copy_workflow(self) -> Path:
        """From now on a copy of the workflow's files is driven, which a test may edit; the package stays."""
        copy = self.root / "clone"
        for name in ("workflow", "scripts", "profiles"):
            shutil.copytree(ROOT / name, copy / name)
        self.snakefile = copy / "Snakefile"
        shutil.copy(ROOT / "Snakefile", self.snakefile)
        return copy

    # --- processes ---

    def start(self, *words: str, before: Sequence[str] = ()) -> Driver:
        """Starts snakemake, with `before` in front of its command, and returns at once."""
        output = self.root / f"driver_{len(self.drivers) + 1}.txt"
        with output.open("wb") as stream:
            process = start_command([*before, *self._snakemake(words)], self.root, self.environment(), stream)
        driver = Driver(process, output)
        self.drivers.append(driver)
        return driver

    def snakemake(self, *words: str) -> Done:
        """Runs snakemake to its end."""
        return self.start(*words).wait()

    def plan(self, *words: str) -> int:
        """How many segments a dry run says are still to do; 0 only if it says that nothing is."""
        done = self.snakemake("-n", *words)
        assert done.code == 0, done.text
        assert (done.planned == 0) == ("Nothing to be done" in done.text), done.text
        return done.planned

    def unbroken(self, *words: str, columns: int = 80) -> Done:
        """Runs the command line, as on a terminal of that width."""
        environment = {**self.environment(), "COLUMNS": str(columns), "TERM": "dumb"}
        with tempfile.TemporaryFile() as output:
            code = start_command([str(BIN / "unbroken"), *words], self.root, environment, output).wait(PATIENCE_SECONDS)
            output.seek(0)
            return Done(code, output.read().decode())

    def _snakemake(self, words: tuple[str, ...]) -> list[str]:
        profile = ["--profile", str(self.profile)] if self.profile else []
        return [str(BIN / "snakemake"), "--snakefile", str(self.snakefile), *profile, *self.words, *words]

    def environment(self) -> dict[str, str]:
        """Ours without what would make Snakemake or unbroken behave otherwise, with the mark of this directory."""
        foreign = ("SLURM_", "SNAKEMAKE_", "UNBROKEN_")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return {**clean, **PLAIN_OUTPUT, MARKER: str(self.root), **self.added_environment}

    def processes(self, needle: str = "") -> list[int]:
        """Living processes that were started from here, with `needle` in their command line; then without guards."""
        mark = f"{MARKER}={self.root}".encode()
        # The environment in /proc of a driver that was forked is that of whoever forked it.
        driving = [driver.process for driver in self.drivers if needle in " ".join(map(str, driver.process.args))]
        found = [process.pid for process in driving if process.poll() is None]
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                is_ours = folder.name.isdecimal() and mark in (folder / "environ").read_bytes().split(b"\0")
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                is_guard = bool(needle) and guard.__file__ in words
                if is_ours and needle in words and not is_guard:
                    found.append(int(folder.name))
        return sorted(set(found))

    def snakemakes_note(self, output: str) -> dict[str, Any]:
        """What Snakemake has noted about an output."""
        name = base64.urlsafe_b64encode(output.encode()).decode()
        return json.loads((self.root / ".snakemake" / "metadata" / name).read_text())  # type: ignore[no-any-return]

    def claim(self, run: str) -> dict[str, Any]:
        """The lease of a run as its holder, or the last one, wrote it."""
        while True:
            claims = sorted(RunFolder(run, self.root).lease.glob("*.json"))
            with suppress(FileNotFoundError):  # a successor has just removed it
                return json.loads(claims[-1].read_text())

    def holder(self, run: str) -> int:
        """The process that holds, or last held, the lease of a run."""
        return int(self.claim(run)["pid"])

    def kill_everything(self) -> None:
        """KILL to all that was started from here."""
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for driver in self.drivers:
            driver.process.wait()

    # --- what is left ---

    def places(self, run: str) -> RunFolder:
        return RunFolder(run, self.root)

    def history(self, run: str) -> list[Attempt]:
        return History(self.places(run).history).attempts()

    def records(self, run: str) -> list[Record]:
        """All records in order, each readable."""
        paths = sorted(self.places(run).segments.glob("*.json"))
        found = [record for path in paths if (record := read_record(path)) is not None]
        assert len(found) == len(paths)
        return found

    def passports(self, run: str) -> list[Passport]:
        """The passports of what is in the store, oldest first."""
        return [checkpoint.passport for checkpoint in Store(self.places(run).checkpoints).readable()]

    def log(self, run: str, segment: int) -> str:
        return self.places(run).log(segment).read_text()

    def final(self, run: str) -> dict[str, bytes]:
        """Return the files below results/<run>/final by path, without the summary, which names times and hosts."""
        final = self.places(run).final
        assert final.is_dir(), f"{run} has no result"
        found = {path.relative_to(final).as_posix(): path for path in sorted(final.rglob("*")) if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if name != "summary.json"}

    def reported(self, run: str) -> int:
        """How far the program at work says it is; 0 where none says anything."""
        try:
            (path,) = (self.places(run).work).glob("*/progress.json")
            return int(json.loads(path.read_text())["done"])
        except (ValueError, OSError):
            return 0

    def saved(self, run: str) -> int:
        """How far the newest checkpoint of a run is."""
        return int(max((passport.progress.done for passport in self.passports(run)), default=0))


def uninterrupted(folder: Path, goal: int, seed: int = 0) -> dict[str, bytes]:
    """Return what the toy program leaves when it counts to its goal in one piece, without unbroken around it."""
    return whole_toy(folder, goal=goal, seed=seed)


def overlaps(attempts: list[Attempt]) -> Iterator[str]:
    """Every pair of attempts that cannot have been made by one writer after the other."""
    for before, after in itertools.pairwise(attempts):
        left = before.to_checkpoint or before.from_checkpoint
        if after.token <= before.token or after.started_utc < before.ended_utc or after.from_checkpoint != left:
            yield f"{before} | {after}"


def one_step_segments(segments: int, goal: int, **more: object) -> dict[str, object]:
    """A toy run whose segments are too short for more than one step each, so that every number is known beforehand."""
    settings = {"goal": goal, "step_seconds": 0}
    return {"engine": "toy", "segments": segments, "segment_minutes": 0.001, "settings": settings, **more}


def one_long_segment(goal: int, **more: object) -> dict[str, object]:
    """A toy run that counts for seconds inside one segment and saves every 20 steps, so that it can be killed there."""
    settings = {"goal": goal, "step_seconds": 0.01, "save_steps": 20}
    return {"engine": "toy", "segments": 3, "segment_minutes": 2, "settings": settings, **more}


def in_no_time(run: dict[str, object]) -> dict[str, object]:
    """The same run, of which the rest is counted at once."""
    return {**run, "settings": {**run["settings"], "step_seconds": 0, "save_steps": 0}}  # type: ignore[dict-item]


def counting(*options: str, inputs: Sequence[str] = (), **more: object) -> dict[str, object]:
    """A run of counter.py, which takes these options, to 300."""
    settings = {
        "start": [sys.executable, "-I", "-S", str(COUNTER), "--goal", "{goal}", *options],
        "files": ["state.txt"],
        "saved_by": "rename",
        "progress_file": "state.txt",
        "progress_pattern": r"^step (\d+)$",
        "inputs": list(inputs),
        "goal": 300,
    }
    return {"engine": "command", "settings": settings, **more}
