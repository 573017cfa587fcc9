"""Segments of a toy run in a test's own folder, in this process or as processes of their own, without Snakemake."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from unbroken.engines.base import Engine, Task
from unbroken.engines.testing.kills import programs_of
from unbroken.job.attempt import Job
from unbroken.job.lifecycle import run_segment
from unbroken.store.checkpoint import FILE_NAME, Checkpoint
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, History
from unbroken.store.record import Record
from unbroken.store.run import CopySettings, IdentityKeys, RunSpec

ROOT = Path(__file__).parents[2]
# For processes of their own: the same code as in this one.
PYTHONPATH = f"{ROOT / 'tests'}:{ROOT / 'src'}"
KEYS = IdentityKeys(("seed",), (), ("threads",))
SETTINGS = {"goal": 20, "seed": 1, "step_seconds": 0.0, "save_steps": 5}
PATIENCE_SECONDS = 600.0


def toy_run(name: str = "demo", **changes: object) -> RunSpec:
    """A quick run; changes may name keys of the run or of the toy's settings."""
    settings = {**SETTINGS, **{key: value for key, value in changes.items() if key in SETTINGS}}
    keys: dict[str, object] = {
        "engine": "toy",
        "segments": 5,
        "segment_minutes": 1.0,
        "place": "short",
        "note": "a test",
        "threads": 1,
        "tasks": 1,
        "nodes": None,
        "mem_mb": 100,
        "memory_growth": 1.5,
        "gpus": 0,
        "partition": None,
        "account": None,
        "qos": None,
        "constraint": None,
        "gpu_type": None,
        "slurm_extra": (),
        "keep": 2,
        "milestone_every": 0,
        "save_minutes": 10.0,
        "mtbf_hours": None,
        "stall_minutes": None,
        "first_margin_seconds": None,
        "attempts_without_progress": 2,
        "modules": (),
        "enter": (),
    }
    keys.update({key: value for key, value in changes.items() if key not in SETTINGS})
    if isinstance(copies := keys.get("copies"), dict):
        keys["copies"] = CopySettings(**{"keep": 2, "every_minutes": 0, **copies})
    return RunSpec.of({"name": name, "settings": settings, **keys})


def toy_job(base: Path, segment: int = 1, driver_attempt: int = 1, **changes: object) -> Job:
    """A job as Snakemake would hand it over."""
    return Job(toy_run(**changes), KEYS, segment, driver_attempt, base)  # type: ignore[arg-type]


class ProgramEngine(Engine):
    """Any program that keeps the environment contract, well or badly."""

    name = "toy"

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    def command(self, task: Task) -> list[str]:
        return self._command


def program(name: str, *words: object) -> list[str]:
    """The command of one of the small programs in programs.py."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("programs.py")), name, *map(str, words)]


def toy_script() -> ModuleType:
    """Return scripts/segment.py as a module."""
    spec = importlib.util.spec_from_file_location("segment_script", ROOT / "scripts" / "segment.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def toy(base: Path, segment: int = 1, driver_attempt: int = 1, **changes: object) -> Record:
    """One segment of the toy in this process."""
    return toy_script().segment(toy_job(base, segment, driver_attempt, **changes))  # type: ignore[no-any-return]


def run_program(base: Path, command: Sequence[str], segment: int = 1, attempt: int = 1, **changes: object) -> Record:
    """One segment of any program in this process."""
    return run_segment(toy_job(base, segment, attempt, **changes), ProgramEngine(command))


@dataclass(frozen=True)
class Ended:
    """How a segment's process ended; `error` is `Name: text` of the UnbrokenError, `record` the outcome it wrote."""

    code: int
    error: str
    record: Mapping[str, object]
    screen: str


class SegmentProcess:
    """A segment in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], base: Path) -> None:
        self.process, self.base = process, base

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def end(self, seconds: float = PATIENCE_SECONDS) -> Ended:
        """Waits for the end of the process; kills it and fails if it does not come."""
        try:
            out, screen = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, screen = self.process.communicate()
            raise AssertionError(f"the segment did not end in {seconds} s:\n{out}\n{screen}") from None
        said = dict(line.split(" ", 1) for line in out.splitlines())
        return Ended(self.process.returncode, said.get("error", ""), json.loads(said.get("record", "{}")), screen)

    def child_pid(self) -> int:
        """The program that this segment started, once it runs."""
        found = until(lambda: programs_of(self.pid) or self.process.poll() is not None)
        assert isinstance(found, list), f"the segment has ended: exit code {self.process.returncode}"
        return found[0]


def start_segment(
    base: Path,
    segment: int = 1,
    driver_attempt: int = 1,
    command: Sequence[str] = (),
    patch: Mapping[str, float] = {},
    environment: Mapping[str, str] = {},
    prefix: Sequence[str] = (),
    screen: int = subprocess.PIPE,
    asleep_at: str = "",
    **changes: object,
) -> SegmentProcess:
    """Starts a segment as a process; `patch` sets constants (`{"store.lease.STALE_POLLS": 1}`), `command` is no toy.

    With `asleep_at`, a method as in `store.checkpoints.Store.prune`, it stops itself where it first calls that.
    """
    for name in patch:  # a name that is not there fails here, not as a wait in vain
        module, _, constant = name.rpartition(".")
        getattr(importlib.import_module(f"unbroken.{module}"), constant)
    what = {
        "segment": segment,
        "driver_attempt": driver_attempt,
        "command": list(command),
        "patch": dict(patch),
        "asleep_at": asleep_at,
        "changes": changes,
    }
    around = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    process = subprocess.Popen(
        [*prefix, sys.executable, str(Path(__file__).with_name("one_segment.py")), json.dumps(what)],
        cwd=base,
        env={**around, "PYTHONPATH": PYTHONPATH, **environment},
        stdout=subprocess.PIPE,
        stderr=screen,
        text=True,
    )
    return SegmentProcess(process, base)


def whole_toy(base: Path, **changes: object) -> dict[str, bytes]:
    """What an uninterrupted run of the toy comes to, without unbroken around it."""
    save = base / "save"
    save.mkdir(parents=True)
    settings = {**SETTINGS, **changes}
    environment = {
        "UNBROKEN_RESUME": "",
        "UNBROKEN_SAVE": str(save),
        "UNBROKEN_PROGRESS": str(base / "progress.json"),
        "UNBROKEN_STOP": str(base / "stop"),
        "UNBROKEN_DEADLINE": str(time.time() + 3600),
        "UNBROKEN_SAVE_SECONDS": "3600",
    }
    command = [
        sys.executable,
        "-m",
        "unbroken.engines.toy.program",
        "--goal",
        str(settings["goal"]),
        "--seed",
        str(settings["seed"]),
    ]
    subprocess.run([*command, "--step-seconds", "0"], env={**os.environ, **environment}, check=True)
    ready = next(save.glob("*.ready"))
    return {name: (ready / name).read_bytes() for name in ("state.json", "trace.csv")}


def final_files(job: Job) -> dict[str, bytes]:
    """The toy's own files in final/."""
    return {name: (job.places.final / name).read_bytes() for name in ("state.json", "trace.csv")}


def until(is_so: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> object:
    """Waits until something is so and returns it; fails if it never comes."""
    give_up = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)
    return found


def guards_of(pid: int) -> list[int]:
    """The outer and the inner guard of a program."""
    inner = parent_of(pid)
    return [parent_of(inner), inner]


def parent_of(pid: int) -> int:
    """The number of a living process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def history(job: Job) -> list[Attempt]:
    """All attempts of the job's run."""
    return History(job.places.history).attempts()


def checkpoints(job: Job) -> list[Checkpoint]:
    """What the job's run has published, oldest first."""
    return Store(job.places.checkpoints).readable()


def hidden(root: Path) -> list[str]:
    """Names of hidden leftovers below a run's folder; the quarantine is none."""
    found = [path.relative_to(root) for path in root.rglob(".*") if path.name != ".quarantine"]
    return sorted(map(str, found))


def flip_byte(path: Path, at: int = 0) -> None:
    """Turns over the bits of one byte, the size unchanged."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def rewrite_passport(folder: Path, **changes: object) -> None:
    """Changes keys of a passport and closes it by a fresh digest, as no bit rot would."""
    from unbroken.store.checkpoint import data_digest

    path = folder / FILE_NAME
    data = {**json.loads(path.read_text()), **changes}
    data.pop("digest")
    path.write_text(json.dumps({**data, "digest": data_digest(data)}))
