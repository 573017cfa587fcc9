"""A run in the making: the keys of a config with their reasons, and what is asked of the user."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from unbroken.convert.bash import Script
from unbroken.convert.command_line import CommandLine, taken_apart
from unbroken.convert.job import Job, Line
from unbroken.convert.seen import Launched, Remark, SavedFile, Seen, Step
from unbroken.convert.words import Kind, Word, needs_shell, shell_line
from unbroken.engines.starter import as_yaml

# `#!/bin/bash -l`, `#!/bin/bash -e`
_LOGIN, _STRICT = re.compile(r"#!.*\s(?:-\w*l\w*|--login)\b"), re.compile(r"#!.*\s-\w*e\w*\b")
_OUTPUTS = ("--output", "--error", "-o", "-e")
_COUNTS = ("-n", "-np", "--ntasks", "-c", "--cpus-per-task", "--ntasks-per-node", "-N", "--nodes")
# What an engine sets by itself, or has no use for.
_NO_VARIABLES = ("DMTCP_COORD_PORT", "DMTCP_COORD_HOST", "DMTCP_CHECKPOINT_DIR")


@dataclass
class Source:
    """All that an engine is told: the script as read for a first job and for a later one."""

    script: Script
    job: Job
    first: Seen
    later: Seen
    run: str
    keys: Collection[str] = ()  # of a run, that this release knows

    @property
    def start(self) -> Launched:
        return self.first.programs[0]

    @property
    def resume(self) -> Launched:
        return self.later.programs[0] if self.later.programs else self.start

    @property
    def line(self) -> CommandLine:
        return taken_apart(self.start.words)

    @property
    def facts(self) -> dict[str, str]:
        """What stands for placeholders where the engine knows none."""
        return {"tasks": str(self.job.tasks), "threads": str(self.job.threads), "run": self.run}

    def is_file(self, name: str) -> bool:
        return bool(name) and os.path.isfile(self.folder / name)

    @property
    def folder(self) -> Path:
        """Where the program would run: where the script has gone to, if that is one of its own folders."""
        return self.script.folder / self.first.place

    def below(self, name: str) -> str:
        """A path of the script as a path from where snakemake is started."""
        return name if PurePath(name).is_absolute() else str(PurePath(self.first.place) / name)

    def literal(self, word: Word, line: int) -> str:
        """A word for a place where nothing can be left open; ConfigError by line if something is."""
        text = word.with_facts({**self.facts, "base": "."}).text
        if (part := word.find(Kind.UNSURE) or word.find(Kind.ARGUMENT)) is not None:
            raise self.script.refused(part.line or line, part.text)
        if text is None:
            raise self.script.refused(line, f"`{word.source}` is known in the job alone; write out what it comes to")
        return text.removeprefix("./") if text.startswith("./") and self.is_file(text) else text


@dataclass
class Draft:
    """Lines of the run, lines of its settings, and questions."""

    engine: str
    why: str
    lines: list[Line] = field(default_factory=list)
    settings: list[Line] = field(default_factory=list)
    asked: list[Remark] = field(default_factory=list)

    def set(self, key: str, value: object, comment: str = "", is_asked: bool = False) -> None:
        """A line of the settings."""
        self.settings.append(Line(key, as_yaml(value), f"? {comment}" if is_asked else comment, is_asked))

    def suggest(self, line: str, comment: str) -> None:
        """A line of the settings that is commented out, to be filled in."""
        self.settings.append(Line("", line, f"? {comment}", is_asked=True))


def modules(source: Source, draft: Draft) -> None:
    """The key `modules`, in the order of the script; steps where another line about modules has to come first."""
    if any(step.text.startswith("module ") for step in source.first.prologue):
        loads = [Step(f"module load {name}", line) for name, line in source.first.modules]
        source.first.prologue = sorted([*source.first.prologue, *loads], key=lambda step: step.line)
        return
    names = [name for name, _ in source.first.modules]
    if names:
        numbers = sorted({line for _, line in source.first.modules})
        draft.lines.append(Line("modules", as_yaml(names), _lines(numbers)))


def enter(source: Source, draft: Draft, with_launcher: bool = True, with_variables: bool = True) -> None:
    """The key `enter`: steps before the program, what starts its tasks, its container."""
    pieces = source.line
    steps = [*_without_keys(source, draft), *(_exports(source) if with_variables else ())]
    steps.sort(key=lambda step: step.line)
    words: list[str] = []
    numbers = [step.line for step in steps]
    if steps:
        is_login = _LOGIN.match(source.script.text) or any(step.text.startswith("module ") for step in steps)
        strict = ["set -e"] if source.first.is_strict or _STRICT.match(source.script.text) else []
        text = "; ".join([*strict, *(step.text for step in steps), 'exec "$@"'])
        words = ["bash", "-lc" if is_login else "-c", text, "bash"]
    container = [] if _has_container(source, draft) or needs_shell(pieces.container) else pieces.container
    launcher = _launcher(source, pieces, bool(steps or container)) if with_launcher else []
    launcher += [_container_word(source, word) for word in container if launcher or source.job.tasks == 1]
    if launcher:
        numbers.append(source.start.line)
    if words or launcher:
        draft.lines.append(Line("enter", as_yaml([*words, *launcher]), _lines(numbers)))
    elif source.job.tasks > 1 and with_launcher and not pieces.launcher:
        why = f"line {source.start.line}: the script starts the program once, without srun or mpirun"
        draft.lines.append(Line("enter", "[]", why))


def _without_keys(source: Source, draft: Draft) -> list[Step]:
    """The steps before the program but those that a key of the run says."""
    left: list[Step] = []
    for step in source.first.prologue:
        if step.key in source.keys and step.value and not any(line.key == step.key for line in draft.lines):
            draft.lines.append(Line(step.key, as_yaml(step.value), f"line {step.line}"))
        else:
            left.append(step)
    return left


def _has_container(source: Source, draft: Draft) -> bool:
    """Writes the keys of a container where the run has such keys; False where it has none, or no container."""
    words = source.line.container
    if not words or "container" not in source.keys or any(word.text is None for word in words):
        return False
    texts = [word.text or "" for word in words]
    where = f"line {source.start.line}"
    draft.lines.append(Line("container", as_yaml(source.below(texts[-1])), where))
    own = [text for text in texts[2:-1] if text not in ("--nv", "--rocm")]
    if own:
        draft.lines.append(Line("container_options", as_yaml(own), where))
    return True


def in_words(source: Source) -> list[Word]:
    """The container's words where they have to stand before the program's own."""
    pieces = source.line
    if "container" in source.keys and all(word.text is not None for word in pieces.container):
        return []
    return pieces.container if needs_shell(pieces.container) or is_once(source) else []


def is_once(source: Source) -> bool:
    """True if the script starts the program once although its job has several tasks."""
    return source.job.tasks > 1 and not source.line.launcher


def _launcher(source: Source, pieces: CommandLine, is_needed: bool) -> list[str]:
    """Empty where unbroken's own srun is as good."""
    if not pieces.launcher:
        return []
    job, line = source.job, source.start.line
    name = PurePath(pieces.launcher[0].source).name
    words = [source.literal(word, line) for word in _without_outputs(source, pieces.launcher)]
    if name == "srun":
        if job.tasks == 1:
            source.first.drop(line, shell_line(pieces.launcher), "a single task needs no srun")
            return []
        options = list(_without_counts(words[1:], job))
        numbers = [f"--ntasks={job.tasks}", f"--cpus-per-task={job.threads}"] if is_needed else []
        return [words[0], *numbers, *options] if options or is_needed else []
    if job.tasks > 1 and not any(word in ("-n", "-np", "-c") for word in words):
        words = [words[0], "-n", str(job.tasks), *words[1:]]
    return words


def _without_outputs(source: Source, words: Sequence[Word]) -> Iterator[Word]:
    """The launcher's words but where its outputs go."""
    skip = False
    for word in words:
        option, mark, _ = word.source.partition("=")
        if skip:
            skip = False
        elif option in _OUTPUTS and words[0].source.endswith("srun"):
            skip = not mark
            source.first.drop(source.start.line, option, "what it prints is in logs/<run>/<segment>.log")
        else:
            yield word


def _without_counts(words: Sequence[str], job: Job) -> Iterator[str]:
    """The options of srun but those that say again what the job has."""
    same = {str(job.tasks), str(job.threads), str(job.nodes)}
    skip = False
    for number, word in enumerate(words):
        option, _, value = word.partition("=")
        following = words[number + 1] if number + 1 < len(words) else ""
        if skip:
            skip = False
        elif option in _COUNTS and (value or following) in same:
            skip = not value
        elif not (word[:2] in _COUNTS and word[2:] in same):
            yield word


def _container_word(source: Source, word: Word) -> str:
    """An image by its whole path: the program's folder is another one."""
    text = source.literal(word, source.start.line)
    is_image = PurePath(text).suffix in (".sif", ".simg", ".img") and ":" not in text
    return str((source.folder / text).resolve()) if is_image else text


def variables(source: Source) -> dict[str, tuple[Word, int]]:
    """The environment variables that the script sets for the program and that no shell has to expand."""
    found = {name: value for name, value in source.first.environment.items() if _is_kept(source, name, value)}
    found |= {name: (word, source.start.line) for name, word in (*source.start.environment, *source.line.environment)}
    return {name: each for name, each in found.items() if name not in _NO_VARIABLES}


def _is_kept(source: Source, name: str, value: tuple[Word, int]) -> bool:
    word, line = value
    if name == "OMP_NUM_THREADS":
        told = word.with_facts(source.facts).text
        if told == str(source.job.threads):
            source.first.drop(line, f"export {name}={word.source}", "unbroken tells the program its `threads`")
            return False
    if word.has(Kind.UNSURE):
        source.first.lose(line, f"export {name}=...", "what it comes to is known in the job alone")
        return False
    return True


def _exports(source: Source) -> list[Step]:
    """Steps that set what a shell has to expand, such as PATH; for engines without a key for variables, all."""
    found = []
    for name, (word, line) in variables(source).items():
        if word.has(Kind.SHELL):
            text = shell_line([word.with_facts({**source.facts, "base": str(source.script.folder.resolve())})])
            found.append(Step(f"export {name}={text}".replace("{{", "{").replace("}}", "}"), line))
    return found


def export_all(source: Source) -> None:
    """Makes steps of the variables, for an engine that has no key for them."""
    for name, (word, line) in variables(source).items():
        if not word.has(Kind.SHELL):
            source.first.prologue.append(Step(f"export {name}={shlex.quote(source.literal(word, line))}", line))


def pattern_text(pattern: Word) -> str | None:
    """A file's pattern as a name in the program's own folder; None if it lies elsewhere."""
    text = "".join(part.text for part in pattern.parts if not (part.kind is Kind.PLACEHOLDER and part.text == "base"))
    unknown = (Kind.UNSURE, Kind.COUNT, Kind.ARGUMENT)
    if "$" in text or any(part.kind in unknown for part in pattern.parts):
        return None
    text = text.removeprefix("./") if not pattern.has(Kind.PLACEHOLDER) else text.lstrip("/")
    return None if text.startswith(("/", "~")) or ".." in PurePath(text).parts else text


def own_names(files: Sequence[SavedFile]) -> list[tuple[str, int]]:
    """Those that can lie in the program's own folder, each once."""
    found = {text: each.line for each in reversed(files) if (text := pattern_text(each.pattern))}
    return list(reversed(found.items()))


def _lines(numbers: Sequence[int]) -> str:
    each = sorted({number for number in numbers if number})
    return f"line{'s' if len(each) > 1 else ''} {', '.join(map(str, each))}" if each else ""
