"""What the job asks of Slurm, as keys of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unbroken.convert.directives import Directive, array_of, gpus_of, megabytes_of, minutes_of
from unbroken.engines.starter import as_yaml

if TYPE_CHECKING:
    from unbroken.convert.seen import Seen

_LOGS = "logs/<run>/<segment>.log has it"
_STOP = "unbroken tells the program to save, and stops it, in time by itself"
_DROPPED = {
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": _LOGS,
    "requeue": "the same segment goes on in the next job by itself",
    "no-requeue": "the same segment goes on in the next job by itself",
    "signal": _STOP,
    "dependency": "segments follow each other by themselves",
    "parsable": "unbroken reads what sbatch says",
    "workdir": "type snakemake in that folder",
    "chdir": "type snakemake in that folder",
    "quiet": "unbroken reads what sbatch says",
    "verbose": "unbroken reads what sbatch says",
}
_REFUSED = {
    "export": "a program gets the environment of its job",
    "get-user-env": "a program gets the environment of its job",
    "clusters": "unbroken submits to the cluster that it is started on",
    "wait": "the driver waits",
    "wrap": "the config says what runs",
    "test-only": "snakemake -n",
    "ntasks-per-gpu": "type tasks and gpus",
    "hold": "a held job would hold the whole run",
}
_WITH_VALUE = ("account", "partition", "qos", "constraint", "job-name", "time", "mem")
_PLACES = ("short", "gpu")


@dataclass(frozen=True)
class Line:
    """A line of the config: its key, its value as YAML, and where that comes from."""

    key: str
    value: str
    comment: str = ""
    is_asked: bool = False


@dataclass
class Job:
    """The keys, and the numbers that the rest of the script speaks of."""

    script: str
    lines: list[Line] = field(default_factory=list)
    tasks: int = 1
    threads: int = 1
    nodes: int | None = None
    gpus: int = 0
    name: str = ""
    is_requeued: bool = False
    signal: tuple[str, int] | None = None  # that Slurm sends the program itself
    array: tuple[list[int], int | None, int] | None = None  # numbers, how many at a time, line
    minutes: float | None = None


def job_of(directives: Sequence[Directive], seen: Seen, script: str) -> Job:
    """The keys in the order in which they read well; what has no key is noted in `seen`."""
    last = {each.name: each for each in directives if each.value or each.name not in _WITH_VALUE}
    job = Job(script)
    extra: list[Directive] = []
    _numbers(job, last, extra, seen)
    for name, directive in last.items():
        if name in _DROPPED:
            seen.drop(directive.line, directive.written, _DROPPED[name])
        elif directive.name == "export" and directive.value.upper() == "ALL":
            seen.drop(directive.line, directive.written, "a program gets the environment of its job")
        elif name in _REFUSED:
            seen.lose(directive.line, directive.written, _REFUSED[name])
        elif name not in _KNOWN and name not in ("comment", "job-name", "array"):
            extra.append(directive)
    _time(job, last, seen)
    _place(job, last)
    for name, key in (("account", "account"), ("qos", "qos"), ("constraint", "constraint")):
        if name in last:
            job.lines.append(Line(key, as_yaml(last[name].value), _from(last[name])))
    _size(job, last)
    _memory(job, last, seen)
    if extra:
        words = as_yaml([_long(directive) for directive in extra])
        job.lines.append(Line("slurm_extra", words, "; ".join(_from(directive) for directive in extra)))
    job.name = last["job-name"].value if "job-name" in last else ""
    job.is_requeued = "requeue" in last
    _signal(job, last)
    if "array" in last and (found := array_of(last["array"].value)):
        job.array = *found, last["array"].line
    return job


_KNOWN = {
    *("time", "time-min", "partition", "account", "qos", "constraint", "ntasks", "nodes", "cpus-per-task", "mem"),
    *("mem-per-cpu", "mem-per-gpu", "gres", "gpus", "gpus-per-node", "gpus-per-task", "ntasks-per-node"),
    *("cpus-per-gpu",),
}


def _from(directive: Directive) -> str:
    return f"line {directive.line}: {directive.written}" if directive.line else directive.written


def _long(directive: Directive) -> str:
    return f"--{directive.name}={directive.value}" if directive.value else f"--{directive.name}"


def _numbers(job: Job, last: Mapping[str, Directive], extra: list[Directive], seen: Seen) -> None:
    """Nodes, tasks, threads and GPUs: later lines need them."""
    nodes = _whole(last, "nodes", lambda text: text.partition("-")[2] or text)
    per_node = _whole(last, "ntasks-per-node")
    job.nodes = nodes
    job.tasks = _whole(last, "ntasks") or (nodes or 1) * (per_node or 1)
    job.threads = _whole(last, "cpus-per-task") or 1
    if per_node and job.tasks > 1 and "ntasks-per-node" in last:
        extra.append(last["ntasks-per-node"])
    for name, times in (("gpus", 1), ("gres", nodes or 1), ("gpus-per-node", nodes or 1), ("gpus-per-task", job.tasks)):
        if name not in last:
            continue
        for piece in last[name].value.split(","):
            is_gpu = name != "gres" or piece.strip().startswith("gpu")
            if is_gpu and (found := gpus_of(piece)) is not None:
                job.gpus = found[1] * times
            else:
                seen.lose(last[name].line, f"--{name}={piece}", "the config has no key for this; ask your site")
    if (per_gpu := _whole(last, "cpus-per-gpu")) and "cpus-per-task" not in last:
        job.threads = max(1, per_gpu * job.gpus // job.tasks)


def _whole(last: Mapping[str, Directive], name: str, change: Callable[[str], str] = lambda text: text) -> int | None:
    text = change(last[name].value) if name in last else ""
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _time(job: Job, last: Mapping[str, Directive], seen: Seen) -> None:
    directive = last.get("time")
    job.minutes = minutes_of(directive.value) if directive else None
    if directive is None or not job.minutes:
        why = f"{_from(directive)} cannot be read" if directive else "the script has no --time; how long is one job?"
        job.lines.append(Line("segment_minutes", "60", f"? {why}", is_asked=True))
        return
    least = minutes_of(last["time-min"].value) if "time-min" in last else None
    value = f"{job.minutes:.10g}"
    if least:
        value = f"{{at_least: {least:.10g}, at_most: {value}}}"
        job.lines.append(Line("segment_minutes", value, f"{_from(directive)}; {_from(last['time-min'])}"))
        return
    job.lines.append(Line("segment_minutes", value, _from(directive)))


def _place(job: Job, last: Mapping[str, Directive]) -> None:
    asked = next((last[name] for name in ("gpus", "gres", "gpus-per-node", "gpus-per-task") if name in last), None)
    partition = last.get("partition")
    name = partition.value if partition else ""
    place = "gpu" if job.gpus else "short" if name in ("", "short") else ""
    comments = [_from(each) for each in (partition, asked if job.gpus else None) if each]
    if job.gpus or name == "short":
        job.lines.append(Line("place", place, "; ".join(comments)))
    if partition and name not in _PLACES:
        job.lines.append(Line("partition", as_yaml(name), _from(partition)))
    elif partition and name == "gpu" and not job.gpus:
        job.lines.append(Line("partition", name, _from(partition)))


def _size(job: Job, last: Mapping[str, Directive]) -> None:
    if "nodes" in last and job.nodes and job.tasks > 1:
        job.lines.append(Line("nodes", str(job.nodes), _from(last["nodes"])))
    if job.tasks > 1:
        names = ["ntasks"] if "ntasks" in last else ["nodes", "ntasks-per-node"]
        job.lines.append(Line("tasks", str(job.tasks), "; ".join(_from(last[name]) for name in names if name in last)))
    if job.threads > 1 or "cpus-per-task" in last:
        source = last.get("cpus-per-task") or last.get("cpus-per-gpu")
        job.lines.append(Line("threads", str(job.threads), _from(source) if source else ""))
    asked = next((last[name] for name in ("gpus", "gres", "gpus-per-node", "gpus-per-task") if name in last), None)
    if job.gpus > 1 and asked:
        job.lines.append(Line("gpus", str(job.gpus), _from(asked)))
    pieces = asked.value.split(",") if asked and job.gpus else []
    kind = next((found[0] for piece in pieces if (found := gpus_of(piece))), None)
    if kind and asked:
        job.lines.append(Line("gpu_type", as_yaml(kind), _from(asked)))


def _memory(job: Job, last: Mapping[str, Directive], seen: Seen) -> None:
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        if name not in last:
            continue
        size, nodes = megabytes_of(last[name].value), job.nodes or 1
        if not size:
            why = "a whole node's memory has no key; mem_mb is asked"
            seen.lose(last[name].line, last[name].written, why)
            job.lines.append(Line("mem_mb", "2000", f"? {_from(last[name])}: how much memory has a node?", True))
            return
        times = {"mem": 1, "mem-per-cpu": job.threads * job.tasks / nodes, "mem-per-gpu": job.gpus / nodes}[name]
        note = f" x {times:g}" if name != "mem" else ""
        job.lines.append(Line("mem_mb", str(math.ceil(size * times)), f"{_from(last[name])}{note}"))
        return


def _signal(job: Job, last: Mapping[str, Directive]) -> None:
    """`--signal=USR1@60` goes to the program; with `B:` it goes to the script, whose trap says what it does."""
    if "signal" in last and not last["signal"].value.startswith(("B:", "R:B:", "BR:")):
        text = last["signal"].value.removeprefix("R:").partition("@")[0].removeprefix("SIG")
        number = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP"}.get(text, text)
        if number in ("HUP", "INT", "TERM", "USR1", "USR2"):
            job.signal = number, last["signal"].line
