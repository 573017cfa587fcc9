"""The run that one call of `unbroken exec` stands for: from its options, and from the file of `--settings`.

A file, or an engine with settings of its own, is checked as a run of a config is, which loads YAML and jsonschema; a
call without them loads the standard library alone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unbroken.config.found import absent
from unbroken.errors import ConfigError
from unbroken.exec.options import Options
from unbroken.runs.exec_note import ATTEMPTS_WITHOUT_PROGRESS
from unbroken.runs.run import Run
from unbroken.segment.deadline import NO_LIMIT_MINUTES

NAME = "exec"
# What else a run of a config can say is said elsewhere here.
_ALLOWED = ("settings", "milestone_every", "mtbf_hours", "stall_minutes", "first_margin_seconds")
_ELSEWHERE = {
    "engine": "--engine",
    "keep": "--checkpoints",
    "save_minutes": "--save-minutes",
    "segment_minutes": "--minutes",
    "segments": "the rule's `retries` or `segments`",
    "threads": "the program's own words",
}
_OF_THE_JOB = "the rule, or the batch script"


def run_of(options: Options) -> Run:
    """The run of a call that has neither a file nor an engine with settings."""
    return Run(
        name=options.name, engine=NAME, segments=0, segment_minutes=NO_LIMIT_MINUTES, place="", tasks=1, nodes=None,
        note=shlex.join(options.program), threads=len(os.sched_getaffinity(0)), mem_mb=0, memory_growth=1.0, gpus=0,
        partition=None, account=None, qos=None, constraint=None, gpu_type=None, slurm_extra=(),
        keep=options.checkpoints, milestone_every=0, save_minutes=options.save_minutes, mtbf_hours=None,
        stall_minutes=None, first_margin_seconds=None, attempts_without_progress=ATTEMPTS_WITHOUT_PROGRESS,
        modules=(), enter=(), settings={"goal": options.goal, "goal_unit": options.unit},
    )  # fmt: skip


def with_file(run: Run, options: Options, folder: Path) -> Run:
    """The same with what the file of --settings says; ConfigError with all that is wrong in it."""
    if not options.settings:
        return run
    found = _checked({"engine": NAME, **read_settings(options.settings, folder)}, folder, options.settings)
    return replace(run, **{name: getattr(found, name) for name in _ALLOWED if name != "settings"})


def with_engine(
    run: Run, options: Options, folder: Path, settings: Mapping[str, object], threads: int | None = None
) -> Run:
    """The run of an engine that has settings: those of the command line, and above them those of the file."""
    from unbroken.engines.found import engine_of

    values = read_settings(options.settings, folder) if options.settings else {}
    told = values.get("settings", {})
    if not isinstance(told, dict):
        raise ConfigError([f"exec: {options.settings}: settings: found {told!r}, allowed: keys and values"])
    merged = {**values, "engine": options.engine, "settings": {**settings, **told}}
    found = _checked(merged, folder, options.settings or f"--engine {options.engine}")
    made = replace(
        found, name=run.name, note=run.note, segments=0, segment_minutes=run.segment_minutes, keep=run.keep,
        save_minutes=run.save_minutes, threads=threads or run.threads, mem_mb=0, gpus=0, memory_growth=1.0,
        attempts_without_progress=run.attempts_without_progress,
    )  # fmt: skip
    # How ranks are started is a matter of the rule, or of the batch script.
    wrong = [(name, text) for name, text in engine_of(made, folder).mistakes(made) if name != "launcher"]
    if wrong:
        raise ConfigError([f"exec: --engine {options.engine}: {name}: {text}" for name, text in wrong])
    return made


def read_settings(file: str, folder: Path) -> dict[str, object]:
    """What the file says; ConfigError if it cannot be read, or says what is said elsewhere."""
    from unbroken.config import yaml_file

    try:
        values = yaml_file.read(folder / file)
    except OSError as error:
        raise ConfigError([f"exec: --settings: {absent(file, folder)}"]) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"exec: --settings: {file}: found {values!r}, allowed: keys and values"])
    mistakes = []
    for name in values:
        if name not in _ALLOWED:
            place = _ELSEWHERE.get(str(name), _OF_THE_JOB)
            mistakes.append(f"exec: {file}: found {name}, allowed: {', '.join(_ALLOWED)}; {name} is said by {place}")
    if mistakes:
        raise ConfigError(mistakes)
    return {str(name): value for name, value in values.items()}


def _checked(values: Mapping[str, object], folder: Path, where: str) -> Run:
    """A run of a config that says this."""
    from unbroken.config.load import read_runs
    from unbroken.config.package_files import workflow_folder
    from unbroken.config.schema import load_schemas
    from unbroken.engines.found import found_engines

    schemas = {name: engine.schema for name, engine in found_engines().items()}
    schemas[NAME] = Path(__file__).with_name("schema.yaml")
    book = load_schemas(workflow_folder() / "schemas", schemas)
    run = {"segments": 1, "segment_minutes": 60, **values}
    try:
        (found,) = read_runs({"runs": {NAME: run}}, book, folder)
    except ConfigError as error:
        lines = str(error).splitlines()
        raise ConfigError([f"exec: {where}: {line.removeprefix(f'runs.{NAME}.')}" for line in lines]) from error
    return found
