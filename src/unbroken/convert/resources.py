"""Read what a job asks of Slurm in its `#SBATCH` lines, and turn it into keys of a run."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbroken.convert.script import Script
from unbroken.slurm.partitions import minutes_in
from unbroken.slurm.sbatch import wrong_words

# The short names, and the long ones that they abbreviate [sbatch(1), Slurm 26.05].
_SHORT = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir"},
    **{"d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name"},
    **{"k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks"},
    **{"O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec"},
    **{"s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude"},
}
# Those that stand alone; a value, where there may be one, follows a `=`.
_FLAGS = {
    *("contiguous", "exclusive", "hold", "ignore-pbs", "no-kill", "no-requeue", "overcommit", "oversubscribe"),
    *("parsable", "quiet", "reboot", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait"),
    *("get-user-env", "nice", "propagate"),
}
_GPUS = ("gpus", "gres", "gpus-per-node", "gpus-per-task")
# What becomes a key, and what unbroken does by itself: names and logs of jobs, the next job, the early signal.
_READ = {
    *("time", "time-min", "partition", "account", "qos", "constraint", "ntasks", "nodes", "cpus-per-task", "mem"),
    *("mem-per-cpu", "output", "error", "open-mode", "requeue", "no-requeue", "signal", "dependency", "quiet"),
    *("job-name", "array", "comment", *_GPUS),
}
_PER_NODE = "ntasks-per-node"
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "": 1.0}
# The values where the script says nothing, and the comment that says so.
_DEFAULTS = {
    "segments": (20, "at most; the script does not say how many jobs, you may raise it at any time"),
    "segment_minutes": (60, "the script names no time: change it if a job may take longer"),
    "mem_mb": (2000, "the script names no memory: this is unbroken's default, raise it if the program needs more"),
}


@dataclass(frozen=True)
class Directive:
    """One option of sbatch: its long name, its value (empty for a flag), the line, and how it was written."""

    name: str
    value: str
    line: int
    written: str


@dataclass(frozen=True)
class Line:
    """A line of the config: its key, its value, and where that comes from."""

    key: str
    value: object
    comment: str = ""


class Resources:
    """Hold what a job asks of Slurm.

    `lines` are those of a run, in the order in which they read well; `last` are the options by name, `no_key` those
    that become no line; `nodes`, `tasks`, `threads` and the numbers of the `array` are what the script refers to.
    """

    def __init__(self, script: Script) -> None:
        self.last = {each.name: each for each in _directives(script)}
        self.lines, self.no_key = list[Line](), list[Directive]()
        self.nodes = self.number("nodes") or 1
        self.tasks = self.number("ntasks") or self.nodes * (self.number("ntasks-per-node") or 1)
        self.threads = self.number("cpus-per-task") or 1
        self.array = tuple(_tasks_in(self.value("array")))
        self._add_lines()

    def value(self, name: str) -> str:
        """Return the value of an option; nothing if it is not there."""
        return self.last[name].value if name in self.last else ""

    def number(self, name: str) -> int:
        """Return the value of an option as a number, of a range the higher one; else 0."""
        text = self.value(name).rpartition("-")[2]
        return int(text) if text.isdecimal() else 0

    @property
    def is_chain(self) -> bool:
        """Return True if the tasks of the array follow each other."""
        return self.value("array").endswith("%1") or len(self.array) == 1

    @property
    def signal(self) -> str:
        """Return the signal that Slurm sends to the program itself, without `B:`."""
        text = self.value("signal").removeprefix("R:").partition("@")[0].removeprefix("SIG")
        return text if text in ("HUP", "INT", "TERM", "USR1", "USR2") else ""

    def _add_lines(self) -> None:
        (gpus, gpu_type), partition, is_many = self._gpus(), self.value("partition"), self.tasks > 1
        self._add("segments", self.is_chain and len(self.array) > 1 and len(self.array), "array")
        self._add("segment_minutes", self._minutes(), "time", "time-min")
        self._add("partition", partition, "partition")
        self._add("place", gpus and not partition and "gpu", *_GPUS)
        for name in ("account", "qos", "constraint"):
            self._add(name, self.value(name), name)
        self._add("nodes", is_many and "nodes" in self.last and self.nodes, "nodes")
        self._add("tasks", is_many and self.tasks, *(["ntasks"] if "ntasks" in self.last else ["nodes", _PER_NODE]))
        self._add("threads", "cpus-per-task" in self.last and self.threads, "cpus-per-task")
        self._add("gpus", gpus, *_GPUS)
        self._add("gpu_type", gpu_type, *_GPUS)
        self._add("mem_mb", self._memory(), "mem", "mem-per-cpu")
        known = _READ if is_many else {*_READ, _PER_NODE}
        words = {name: f"--{name}={self.value(name)}".removesuffix("=") for name in self.last if name not in known}
        wrong = {name for name, word in words.items() if any(wrong_words([word])) and word.upper() != "--EXPORT=ALL"}
        self.no_key += [self.last[name] for name in wrong]
        extra = [name for name in words if name not in wrong and name != "export"]
        self._add("slurm_extra", [words[name] for name in extra], *extra)

    def _add(self, key: str, value: object, *names: str) -> None:
        """Add a line of the config with the options that it comes from, or its default; nothing if it has none."""
        found = [self.last[name] for name in names if name in self.last]
        if value:
            self.lines.append(Line(key, value, "; ".join(f"line {each.line}: {each.written}" for each in found)))
        elif key in _DEFAULTS:
            self.lines.append(Line(key, *_DEFAULTS[key]))

    def _gpus(self) -> tuple[int, str]:
        """Return the number of GPUs, and their type."""
        times = {"gpus": 1, "gres": self.nodes, "gpus-per-node": self.nodes, "gpus-per-task": self.tasks}
        count, kind = 0, ""
        for name in times.keys() & self.last.keys():
            # `gpu:a100:2`; after --gpus `a100:2` is enough.
            gpus = re.fullmatch(r"(gpu:?)?(?:([A-Za-z][\w.-]*):?)?(\d*)", self.value(name))
            if gpus and (name != "gres" or gpus[1]):
                count, kind = int(gpus[3] or 1) * times[name], gpus[2] or ""
            else:
                self.no_key.append(self.last[name])
        return count, kind

    def _minutes(self) -> object:
        """Return how long one segment is; 0 if the script names no time."""
        minutes, least = minutes_in(self.value("time")), minutes_in(self.value("time-min"))
        if minutes == math.inf:
            return 0
        whole = int(minutes) if minutes == int(minutes) else minutes
        return {"at_least": least, "at_most": minutes} if least < math.inf else whole

    def _memory(self) -> int:
        """Return the memory of a node in MB; 0 if the script names none."""
        for name, share in (("mem", 1.0), ("mem-per-cpu", self.threads * self.tasks / self.nodes)):
            size = re.fullmatch(r"(\d+)([KMGT]?)B?", self.value(name).upper())
            if size and int(size[1]):
                return math.ceil(int(size[1]) * _UNITS[size[2]] * share)
            self.no_key += [self.last[name]] if name in self.last else []  # 0: all that a node has
        return 0


def _directives(script: Script) -> Iterator[Directive]:
    """Yield the options in the order of the script: Slurm reads them up to the first command."""
    for number, line in enumerate(script.text.splitlines(), 1):
        if re.match(r"#SBATCH\s", line):
            try:
                yield from _options(shlex.split(line.removeprefix("#SBATCH"), comments=True), number)
            except ValueError as error:
                raise script.refused(number, f"this #SBATCH line cannot be read: {error}") from error
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _options(words: Sequence[str], line: int) -> Iterator[Directive]:
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
        else:
            name, value = _SHORT.get(word[1:2], word[1:2]), word[2:].removeprefix("=")
        if not value and "=" not in word and name not in _FLAGS:
            value = next(left, "")
            word = f"{word} {value}"
        if not word.endswith("="):  # a template that was never filled in
            yield Directive(name, value, line, word)


def _tasks_in(array: str) -> Iterator[int]:
    """Yield the numbers of an array's tasks, such as `1-10%1` or `0,4-8:2`."""
    for piece in filter(None, array.partition("%")[0].split(",")):
        if numbers := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", piece):
            first, last, step = int(numbers[1]), int(numbers[2] or numbers[1]), int(numbers[3] or 1)
            yield from range(first, last + 1, step)
