"""Run the program of a preset whole, and in segments that are really killed, and compare what it leaves."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from unbroken.engines.files.states import glob_of, matches
from unbroken.presets.expand import Case as Computation
from unbroken.presets.preset import presets
from unbroken.system.file_events import FileEvents, Happened

CASES = Path(__file__).parents[1] / "presets" / "cases"
# Programs of PyPI have an environment of their own.
PROGRAMS = Path(__file__).parents[2] / ".venv-presets" / "bin"
# Of programs that cannot be had.
STAND_INS = CASES.parent / "stand_ins"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
PATIENCE_SECONDS = 600.0
MOST_SECONDS = 30.0  # of a segment that is to save once
_GONE_SECONDS = 20.0


@dataclass
class Case:
    """One case as its case.yaml describes it: docs/presets.md."""

    name: str
    preset: str
    words: list[str]
    seconds: float
    needs: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    close: dict[str, float | dict[str, float]] = field(default_factory=dict)  # relative, or {absolute: 1e-5}
    last: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a file, the last number that `find` finds
    blank: dict[str, list[int]] = field(default_factory=dict)  # bytes that are not compared: from, to
    without: list[str] = field(default_factory=list)
    compare: str = ""  # a script of the case that prints what differs between two folders
    torn: list[str] = field(default_factory=list)
    version: list[str] = field(default_factory=list)
    kills: int = 3
    saves: int = 40  # a kill comes at one of so many
    first_save_seconds: float = 1.5  # of a segment that is to save once
    disk_mb: int = 200  # more than the run needs
    files_of: str = ""  # another case whose files it has too
    pip: bool = False  # its program is in .venv-presets
    is_long: bool = False  # not in CI: it takes minutes
    more: list[str] = field(default_factory=list)  # what only a run in segments has
    rows: list[str] = field(default_factory=list)  # each segment has its own file of a table, under its {progress}
    input: str = ""  # the case whose input it has too
    prepare: list[str] = field(default_factory=list)  # a command that makes more of the input
    environment: dict[str, str] = field(default_factory=dict)
    must_leave_well: bool = False  # a kill loses the segment: only a clean stop saves

    @property
    def folder(self) -> Path:
        return CASES / (self.input or self.name)

    def files(self) -> dict[str, Path]:
        """Return the files of the case by their names, those of another one (`files_of`) included."""
        folders = [*([CASES / self.files_of] if self.files_of else []), self.folder]
        found = {
            path.relative_to(each).as_posix(): path for each in folders for path in each.rglob("*") if path.is_file()
        }
        return {name: path for name, path in found.items() if name != "case.yaml"}

    def copied(self, target: Path) -> Path:
        """Return a new folder with the input of the case."""
        for name, path in self.files().items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
            shutil.copymode(path, target / name)
        if self.prepare:
            subprocess.run(self.prepare, cwd=target, env=environment(self), check=True, stdout=subprocess.DEVNULL)
        return target

    def version_said(self) -> str:
        """Return the first number like a version in what the program says of itself."""
        if not self.version:
            return ""
        done = subprocess.run(self.version, capture_output=True, text=True, env=environment(self), check=False)
        found = re.search(r"\d{4}-\d\d-\d\d|\d+ [A-Z][a-z]{2} \d{4}|\d+(?:\.\d+)+|\b\d{4}\b", done.stdout + done.stderr)
        return found[0] if found else ""


def read_case(name: str) -> Case:
    return Case(name=name, **yaml.safe_load((CASES / name / "case.yaml").read_text()))


def environment(case: Case) -> dict[str, str]:
    path = os.pathsep.join([str(PROGRAMS), str(STAND_INS), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **case.environment}


def whole(case: Case, folder: Path) -> float:
    """Run the program alone, without unbroken, and return the seconds that it took."""
    computation = Computation(presets(folder)[case.preset], folder, words=tuple(case.words))
    settings = computation_settings(case, folder)
    name = settings.get("stdout") or "stdout.txt"
    began = time.monotonic()
    with (folder / name).open("wb") as printed:
        done = subprocess.run(
            case.words, cwd=folder, stdout=printed, stderr=subprocess.STDOUT, env=environment(case), check=False
        )
    assert done.returncode == 0, (folder / name).read_text(errors="replace")[-3000:]
    if not settings.get("stdout"):
        (folder / name).unlink()
    _ = computation
    return time.monotonic() - began


def computation_settings(case: Case, folder: Path) -> dict[str, Any]:
    """Return the settings that the preset stands for."""
    preset = presets(folder)[case.preset]
    name = preset.input_in(folder, case.words) if preset.has_input else ""
    return Computation(preset, folder, name, tuple(case.words)).settings()


class Pieces:
    """The same in a folder where `unbroken exec --preset` is called again and again."""

    def __init__(self, case: Case, folder: Path, rng: random.Random) -> None:
        self.case, self.folder, self.rng = case, folder, rng
        self.states = list(computation_settings(case, folder)["files"])
        self.kills = self.kills_in_a_save = self.segments = self._started = 0
        self.log = folder.with_name(f"{folder.name}.log")

    @property
    def store(self) -> Path:
        return self.folder / ".unbroken" / "case"

    def call(self, *, minutes: float = 60.0) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "unbroken", "exec", "--name", "case", "--preset", self.case.preset]
        words += [*self.case.options, "--minutes", f"{minutes:.5f}", "--save-minutes", "0.001", "--", *self.case.words]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                words, cwd=self.folder, stdout=log, stderr=log, env=environment(self.case), start_new_session=True
            )

    def paused(self, seconds: float) -> int:
        """Let one segment come to its limit; return the exit code."""
        self.segments += 1
        code = self.call(minutes=seconds / 60).wait(PATIENCE_SECONDS)
        # One that ends before its first save has failed, as it should; on a busy machine that is later.
        return self.paused(2 * seconds) if code == 1 and seconds < MOST_SECONDS and not self._has_saved() else code

    def _has_saved(self) -> bool:
        return any((self.store / "checkpoints").glob("0*"))

    def killed(self, most_seconds: float, *, in_a_save: bool) -> bool:
        """Kill a segment, at a random moment or while it saves; return False if it had ended before."""
        self.segments += 1
        self._started = self._starts()
        (self.folder / ".unbroken").mkdir(exist_ok=True)
        with FileEvents(self.folder / ".unbroken") as events:
            process = self.call()
            if in_a_save:
                self._await_save(events, process, most_seconds)
                time.sleep(self.rng.uniform(0, 0.02))
            else:
                give_up = time.monotonic() + self.rng.uniform(0.5, most_seconds)
                while process.poll() is None and time.monotonic() < give_up:
                    time.sleep(0.01)
        if process.poll() is not None:
            return False
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._await_gone()
        self.kills += 1
        self.kills_in_a_save += in_a_save
        return True

    def _await_save(self, events: FileEvents, process: "subprocess.Popen[bytes]", most_seconds: float) -> None:
        skip = self.rng.randrange(self.case.saves)
        give_up = time.monotonic() + 3 * most_seconds + 30
        while process.poll() is None and self._starts() == self._started:
            time.sleep(0.01)
        events.next(0)  # those of the state that was put back
        while process.poll() is None and time.monotonic() < give_up:
            for event in events.next(0.2):
                name = event.name.partition("/program/")[2]
                is_written = event.what & (Happened.WRITTEN | Happened.MOVED_TO) and name and matches(self.states, name)
                if is_written:
                    skip -= 1
                    if skip < 0:
                        return

    def _starts(self) -> int:
        return self.log.read_bytes().count(b": starting: ") if self.log.exists() else 0

    def _await_gone(self) -> None:
        """Wait until no process works below the folder: the program dies with the call."""
        give_up = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < give_up:
            if not any(_works_below(pid, self.folder) for pid in os.listdir("/proc") if pid.isdecimal()):
                return
            time.sleep(0.02)
        raise AssertionError(f"a process still works below {self.folder}")

    def tear(self) -> list[str]:
        """Cut in half the restart files that a killed program has left, of numbered ones the newest; return names."""
        found = {}
        for path in sorted((self.store / "work").rglob("*")):
            name = path.as_posix().partition("/program/")[2]
            if name and path.is_file() and not path.is_symlink() and matches(self.case.torn, name):
                found[name] = path
        numbers = {name: float(glob_of(name, self.case.torn)[1] or 0) for name in found}
        torn = [name for name, number in numbers.items() if number == max(numbers.values())]
        for name in torn:
            os.truncate(found[name], found[name].stat().st_size // 2)
        return torn

    def ended(self) -> int:
        """Let it come to its end; return the exit code."""
        for _ in range(20):
            self.segments += 1
            code = self.call().wait(PATIENCE_SECONDS)
            if code != 85:
                return code
        return code

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]


def _works_below(pid: str, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return False


def differences(case: Case, one: Path, other: Path) -> list[str]:
    """Return what differs between the results in two folders; every file counts that is no input."""
    inputs = set(case.files())
    found = []
    sides = [{name for name in _names(side) if name not in inputs} for side in (one, other)]
    for name in sorted(sides[0] | sides[1]):
        if any(fnmatchcase(name, glob) for glob in case.without) or matches(case.rows, name):
            continue
        if name not in sides[0] and any(fnmatchcase(name, glob) for glob in case.more):
            continue
        if name not in sides[0] or name not in sides[1]:
            found.append(f"{name}: only {'in pieces' if name in sides[1] else 'in the whole run'}")
            continue
        tolerance = next((value for glob, value in case.close.items() if fnmatchcase(name, glob)), None)
        begin, end = next((span for glob, span in case.blank.items() if fnmatchcase(name, glob)), (0, 0))
        whole_texts = (one / name).read_bytes(), (other / name).read_bytes()
        texts = tuple(text[:begin] + text[end:] for text in whole_texts)
        if name in case.last:
            found += [f"{name}: {why}" for why in _last_apart(texts, **case.last[name])]
            continue
        if tolerance is None:
            if texts[0] != texts[1]:
                found.append(f"{name}: other bytes ({len(texts[0])} and {len(texts[1])}){_first_line(*texts)}")
        elif texts[0].startswith(b"CDF"):
            found += [f"{name}: {why}" for why in _arrays_apart(one / name, other / name, **tolerance)]
        elif why := _apart(texts[0].decode(errors="replace"), texts[1].decode(errors="replace"), tolerance):
            found.append(f"{name}: {why}")
    tables = [(_joined(one, sides[0], glob), _joined(other, sides[1], glob), glob) for glob in case.rows]
    found += [f"{glob}: other rows{_first_line(a, b)}" for a, b, glob in tables if a != b or not a]
    return [*found, *_said_of(case, one, other)]


def _joined(folder: Path, names: set[str], glob: str) -> bytes:
    """Return the rows of a table without its comments, from the files of all segments."""
    of_glob = [name for name in names if matches([glob], name)]
    texts = [(folder / name).read_bytes() for name in sorted(of_glob, key=lambda name: float(glob_of(name, [glob])[1]))]
    return b"".join(line for text in texts for line in text.splitlines(keepends=True) if not line.startswith(b"#"))


def _said_of(case: Case, one: Path, other: Path) -> list[str]:
    """Return what the script of the case says against the results in two folders."""
    if not case.compare:
        return []
    words = [sys.executable, str(case.files()[case.compare]), str(one), str(other)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return [*done.stdout.splitlines(), *([done.stderr] if done.returncode else [])]


def _last_apart(texts: tuple[bytes, bytes], find: str, absolute: float) -> list[str]:
    """Return what is wrong if the last numbers that a pattern finds in two texts are further apart."""
    found = [re.findall(find, text.decode(errors="replace"), re.MULTILINE)[-1:] for text in texts]
    if not all(found):
        return [f"nothing matches {find}"]
    one, other = (float(each[0]) for each in found)
    return [] if abs(one - other) <= absolute else [f"{one} and {other}"]


def _first_line(one: bytes, other: bytes) -> str:
    for number, (a, b) in enumerate(zip(one.splitlines(), other.splitlines(), strict=False), 1):
        if a != b:
            return f", first at line {number}: {a[:120]!r} and {b[:120]!r}"
    return ", one goes on"


def _names(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if not name.startswith(".unbroken")]


def _arrays_apart(one: Path, other: Path, absolute: float) -> list[str]:
    """Return the arrays of two netCDF files of the classic kind that are further apart, or of another shape."""
    netcdf_file = import_module("scipy.io").netcdf_file
    sides = [
        {name: array.data.copy() for name, array in netcdf_file(path, mmap=False).variables.items()}
        for path in (one, other)
    ]
    found = []
    for name, values in sides[0].items():
        others = sides[1].get(name)
        if others is None or others.shape != values.shape:
            found.append(f"{name}: {values.shape} and {None if others is None else others.shape}")
        elif values.dtype.kind == "f" and values.size and not (far := abs(values - others).max()) <= absolute:
            found.append(f"{name}: {far:.3g} apart")
    return found


def _apart(one: str, other: str, tolerance: float | dict[str, float]) -> str:
    absolute = float(tolerance["absolute"]) if isinstance(tolerance, dict) else 0.0
    relative = 0.0 if isinstance(tolerance, dict) else float(tolerance)
    lines = one.splitlines(), other.splitlines()
    if len(lines[0]) != len(lines[1]):
        return f"{len(lines[0])} and {len(lines[1])} lines"
    for number, (a, b) in enumerate(zip(*lines, strict=True), 1):
        if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
            return f"line {number}: {a!r} and {b!r}"
        for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True):
            p, q = (float(re.sub("[dD]", "e", each)) for each in (x, y))
            if abs(p - q) > max(absolute, relative * max(abs(p), abs(q), 1e-12)):
                return f"line {number}: {x} and {y}"
    return ""


def note(case: Case, rounds: list[Pieces]) -> None:
    """Add a line to the file that UNBROKEN_PRESET_RESULTS names."""
    if path := os.environ.get("UNBROKEN_PRESET_RESULTS"):
        row = {
            "case": case.name,
            "preset": case.preset,
            "version": case.version_said(),
            "kills": sum(each.kills for each in rounds),
            "in_a_save": sum(each.kills_in_a_save for each in rounds),
            "segments": sum(each.segments for each in rounds),
            "runs": len(rounds),
            "day": datetime.now(UTC).date().isoformat(),
        }
        with Path(path).open("a") as file:
            file.write(json.dumps(row) + "\n")
