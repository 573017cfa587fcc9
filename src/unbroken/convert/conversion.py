"""Make a run of a script: a config where every line is understood, else the script with `unbroken exec` in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from unbroken.convert.configs import Config, config_of
from unbroken.convert.launch import long_commands, options_of
from unbroken.convert.names import names_in, numbered
from unbroken.convert.reading import Reading, read
from unbroken.convert.resources import Resources
from unbroken.convert.script import Script, parse
from unbroken.convert.to_exec import exec_script
from unbroken.engines.starter import run_name
from unbroken.errors import ConfigError

_MOST_RUNS = 1000
_NUMBER = (
    "the command contains the number of the array's task, and what it comes to is not known: `unbroken exec` would "
    "refuse task 2; write the value out, or a table of runs (runs_table)"
)
_OURS = re.compile(r"^\s*(?:from|import)\s+unbroken\b", re.MULTILINE)


@dataclass(frozen=True)
class Conversion:
    """A run as configs, or as a script; `unread` are the lines that convert did not look into."""

    script: Script
    program: str
    arguments: tuple[str, ...]
    configs: tuple[Config, ...] = ()
    exec_text: str = ""
    unread: tuple[tuple[int, str], ...] = ()
    keep: tuple[str, ...] = ()
    lacks_state: bool = False  # nothing says which files the program resumes from
    engine: str = ""
    submitter: str = ""
    under_way: str = ""  # the checkpoint of GROMACS that lies here

    @property
    def exec_name(self) -> str:
        """Return the name of the script with `unbroken exec`."""
        path = PurePath(self.script.name)
        return f"{path.stem}.unbroken{path.suffix}"

    @property
    def submit_line(self) -> str:
        """Return what submits the script with `unbroken exec`."""
        if self.submitter:
            return f"bash {self.submitter}, after you have written {self.exec_name} for {self.script.name} in it"
        return shlex.join(["sbatch", self.exec_name, *self.arguments])

    def config_text(self, is_in_workflow: bool = False) -> str:
        """Return the config; below a key of its own where it belongs to another workflow."""
        lines = ["runs:", *(line for config in self.configs for line in config.text(self.script.name))]
        lines = ["unbroken:", *(f"  {line}" for line in lines)] if is_in_workflow else lines
        return "\n".join(["# All keys: docs/config.md. What would be done: snakemake -n", *lines, ""])

    def notes(self) -> Iterator[str]:
        """Yield what its user has to know."""
        if self.unread:
            yield "not looked into:"
            yield from (f"    {self.script.name} line {line}: {text}" for line, text in self.unread)
        for name in self.keep:
            if "{progress}" in name:
                yield f"taken for a number that grows: the * of {name.replace('{progress}', '*')}"
        if self.engine in ("", "command"):
            yield f"done: when {self.program} exits with 0 and was not told to stop"
        if self.under_way and self.configs:
            line = f"unbroken adopt {self.configs[0].run} --from {self.script.folder}"
            yield f"a run is under way ({self.under_way} is here); to continue it, type before the first start: {line}"
        if self.lacks_state:
            where = "`files: [...]` below `settings:`" if self.configs else f"--keep in {self.exec_name}"
            yield f"nothing says from which files {self.program} resumes: name them by {where}"
            yield "    without them only a program that keeps the contract (docs/contract.md) saves anything"


def convert(script: Script, arguments: Sequence[str] = (), name: str = "", submitter: str = "") -> Conversion:
    """Return what a script comes to; ConfigError by line where it can be nothing that runs."""
    statements = parse(script)
    launches = long_commands(statements)
    if not launches:
        return _of_submitter(script, name)
    numbers = numbered(statements)
    is_numbered = any(names_in(word) & numbers for _, launch in launches for word in launch.words)
    first = read(script, statements, arguments)
    resources, launch = first.resources, launches[0][1]
    run = run_name(name or resources.value("job-name"), "") or run_name(PurePath(script.name).stem, "run")
    tasks = _tasks(script, resources) if is_numbered else [None]
    found = [
        config_of(
            read(script, statements, arguments, task),
            run if len(tasks) == 1 else f"{run}_{task}",
            _segments(resources),
            is_numbered=is_numbered,
        )
        for task in tasks
    ]
    done = Conversion(script, " ".join(launch.words[:2]), tuple(arguments), engine=launch.engine, submitter=submitter)
    if configs := tuple(config for config in found if config):
        done = replace(done, configs=configs, engine=configs[0].engine, under_way=_cpt(first) if launch.mdrun else "")
        return replace(done, unread=tuple(first.unread), lacks_state=is_numbered)
    if is_numbered:
        raise script.refused(launch.command.line, _NUMBER)
    text, keep, unread = exec_script(first, launches, run, is_chain=bool(submitter) or resources.is_chain)
    saves = keep or launch.engine or _OURS.search(first.text_of(launch.words))
    return replace(done, exec_text=text, unread=tuple(unread), keep=tuple(keep), lacks_state=not saves)


def _cpt(reading: Reading) -> str:
    """Return the checkpoint of mdrun that lies here; nothing if there is none."""
    name = dict(options_of(reading.launches[0].words)).get("-cpi") or "state"
    path = f"{(reading.names.text(name) or '').removesuffix('.cpt')}.cpt"
    return path if reading.script.is_file(path) else ""


def _tasks(script: Script, resources: Resources) -> list[int | None]:
    """Return the tasks of an array that are runs: all that may run at the same time, or the last of a chain."""
    if len(resources.array) > _MOST_RUNS and not resources.is_chain:
        why = f"an array of {len(resources.array)} tasks; write a table of runs (runs_table)"
        raise script.refused(resources.last["array"].line, why)
    return [*(resources.array[-1:] if resources.is_chain else resources.array or (None,))]


def _segments(resources: Resources) -> tuple[int, str]:
    if len(resources.array) > 1 and resources.is_chain:
        return len(resources.array), f"line {resources.last['array'].line}: tasks of the array, one after the other"
    return 20, "at most; the script does not say how many jobs, you may raise it at any time"


def _of_submitter(script: Script, name: str) -> Conversion:
    """Return the run of the job that a script for the login node submits again and again."""
    texts = re.findall(r"\bsbatch\s[^\n;)]*", script.text)
    jobs = {word for text in texts for word in text.split() if script.is_file(word)}
    if len(jobs) != 1:
        what = (
            f"it submits {', '.join(sorted(jobs)) or 'no script of this folder'}" if texts else "it starts no program"
        )
        raise ConfigError([f"{script.name}: {what}; convert takes the script of one job"])
    job = jobs.pop()
    inner = Script(job, (script.folder / job).read_text(errors="replace"), script.folder)
    return convert(inner, (), name or PurePath(script.name).stem, script.name)
