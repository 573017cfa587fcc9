"""Make a run of a script: a config where every line is understood, else the script with `unbroken exec` in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from unbroken.convert.configs import config_of
from unbroken.convert.launch import long_commands
from unbroken.convert.names import names_in, numbered
from unbroken.convert.reading import Reading
from unbroken.convert.script import Script, parse
from unbroken.convert.to_exec import ExecScript
from unbroken.engines.starter import run_name
from unbroken.errors import ConfigError

_MOST_RUNS = 1000
_TABLE = "a table of runs (runs_table)"
_NUMBER = (
    "the command contains the number of the array's task, and what it comes to is not known: `unbroken exec` would "
    f"refuse task 2; write the value out, or {_TABLE}"
)
_OURS = re.compile(r"^\s*(?:from|import)\s+unbroken\b", re.MULTILINE)


@dataclass(frozen=True)
class Conversion:
    """A run, or several, as lines of a config, or as a script with `unbroken exec`.

    `is_ready` if it can start as it is.
    """

    script: str
    run: str
    notes: list[str]
    is_ready: bool
    config: tuple[str, ...] = ()
    exec_name: str = ""
    exec_text: str = ""
    submit_line: str = ""


def convert(script: Script, arguments: Sequence[str] = (), name: str = "", submitter: str = "") -> Conversion:
    """Return what a script comes to; ConfigError by line where it can be nothing that runs."""
    statements = parse(script)
    launches = long_commands(statements)
    if not launches:
        return _of_submitter(script, name)
    first, numbers, command = Reading(script, statements, arguments), numbered(statements), launches[0][1].command
    resources = first.resources
    is_numbered = any(names_in(word) & numbers for _, each in launches for word in each.words)
    run = run_name(name or resources.value("job-name"), "") or run_name(PurePath(script.name).stem, "run")
    # Tasks that may run at the same time are a run each; of a chain the last one is the run.
    tasks = resources.array[-1 if resources.is_chain else 0 :] if is_numbered else ()
    if len(tasks) > _MOST_RUNS:
        raise script.refused(resources.last["array"].line, f"an array of {len(tasks)} tasks; write {_TABLE}")
    lines, notes = list[str](), first.unread_lines(first.unread)
    for task in tasks or [None]:
        name = f"{run}_{task}" if len(tasks) > 1 else run
        config = config_of(Reading(script, statements, arguments, task), command.line, is_numbered=is_numbered)
        if config is None:
            break
        notes += [] if lines else config.notes
        lines += config.text(name, script.name)
    else:
        notes = [note.replace("RUN", run) for note in notes]
        return Conversion(script.name, name, notes, not is_numbered, tuple(lines))
    if is_numbered:
        raise script.refused(command.line, _NUMBER)
    return _with_exec(
        ExecScript(first, launches, run, is_chain=bool(submitter) or resources.is_chain), arguments, submitter
    )


def _with_exec(made: ExecScript, arguments: Sequence[str], submitter: str) -> Conversion:
    """Return the script with `unbroken exec`, and what its user has to know."""
    launch, path = made.launches[0], PurePath(made.reading.script.name)
    program, exec_name, lacks = " ".join(launch.words[:2]), f"{path.stem}.unbroken{path.suffix}", ""
    if launch.engine == "dmtcp":
        lacks = "which files are results: name them by --outputs"
    elif not (made.keep or launch.engine or _OURS.search(made.reading.text_of(launch.words))):
        lacks = f"from which files {program} resumes, unless it keeps the contract: name them by --keep"
    notes = made.reading.unread_lines(made.unread)
    if made.is_one_of_many:
        notes.append(f"taken for the long command: line {launch.command.line}: {launch.command.written}")
    numbered_names = [name.replace("{progress}", "*") for name in made.keep if "{progress}" in name]
    notes += [f"taken for a number that grows: the * of {name}" for name in numbered_names]
    notes += [f"nothing says {lacks} in {exec_name}"] if lacks else []
    notes += [] if launch.engine else [f"done: when {program} exits with 0 and was not told to stop"]
    line = shlex.join(["sbatch", exec_name, *arguments])
    line = f"bash {submitter}, after you have written {exec_name} for {path} in it" if submitter else line
    return Conversion(path.name, made.run, notes, not lacks, (), exec_name, made.text, line)


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
