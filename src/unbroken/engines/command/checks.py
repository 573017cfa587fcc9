"""Check the settings of a run of this engine against each other before anything is queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from unbroken.config.found import found as shown
from unbroken.config.tasks import PASSED_ON, is_launcher, starts_tasks
from unbroken.engines.command.placeholders import ALWAYS, OF_CHECKPOINT, OF_GOAL, named, strange, strange_in_template
from unbroken.engines.files.settings import Program, SavedBy, record_of, texts
from unbroken.engines.files.states import is_progress_file_kept, matches
from unbroken.runs.run import RunSpec

# A setting, and what is wrong with it.
Mistake = tuple[str, str]

_NAME = re.compile(r"(?!UNBROKEN_)[A-Za-z_][A-Za-z0-9_]*")
# What the engine needs its own folder for.
_NEEDS_OWN_FOLDER = ("inputs", "templates", "files", "outputs", "discard", "finished_file", "live_file")
# What says something of restart files, and nothing without them.
_OF_FILES = ("saved_marker", "progress_file", "progress_pattern", "progress_json", "progress_command", "check_command")
_OURS = ("parts", "final", "unbroken-output", "manifest.json")
_WAYS = "type {progress} into their names, or progress_file, or progress_command"
_NO_NUMBER = f"but nothing says how far the restart files are; {_WAYS}"


def mistakes(run: RunSpec, program: Program, base: Path) -> Iterator[Mistake]:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    yield from _placeholder_mistakes(run, program)
    yield from _template_mistakes(run, program, base)
    yield from _name_mistakes(program)
    yield from _saving_mistakes(program)
    yield from _progress_mistakes(run, program)
    yield from _folder_mistakes(program, base)
    yield from _ending_mistakes(run, program)
    yield from _launcher_mistakes(run, program)


def pattern_mistakes(run: RunSpec) -> Iterator[Mistake]:
    """Yield each regular expression of the settings that is none; without them there is no program."""
    written = [("outputs", kind) for kind in texts(run.settings["outputs"]).values()]
    written += [(name, str(run.settings[name])) for name in ("progress_pattern", "live_pattern")]
    for where, text in written:
        try:
            groups = record_of(text).groups
        except re.error as error:
            yield where, f"found {shown(text)}, which is no regular expression: {error}"
            continue
        if text and groups != 1:
            yield where, f"found {shown(text)} with {groups} groups (...), allowed: one, around the number"


# --- words and names ---


def _placeholder_mistakes(run: RunSpec, program: Program) -> Iterator[Mistake]:
    at_start = [name for name in ALWAYS if name not in OF_GOAL or run.goal is not None]
    resumed = [*at_start, *(name for name in OF_CHECKPOINT if name != "file" or program.files)]
    own_resume = _own_resume(program)
    for setting, words, known in (
        ("start", program.start, at_start if own_resume else resumed),
        ("resume", own_resume, resumed),
        ("environment", program.environment.values(), resumed),
        ("stop_text", (program.stop_text,), resumed),
        ("progress_command", program.progress_command, ["base"]),
        ("check_command", program.check_command, ["base"]),
    ):
        for text in words:
            for found in strange(text, known):
                yield setting, f"found '{found}' in {shown(text)}, {_what_is_known(found, known, run)}"
    for name in program.environment:
        if not _NAME.fullmatch(name):
            yield "environment", f"found '{name}', allowed: the name of a variable that does not begin with UNBROKEN_"


def _own_resume(program: Program) -> tuple[str, ...]:
    return () if program.resume == program.start else program.resume


def _what_is_known(found: str, known: Collection[str], run: RunSpec) -> str:
    word = found.strip("{}")
    if word in OF_GOAL and run.goal is None:
        return "but there is no `goal`; type for example `goal: 5000`"
    if word in OF_CHECKPOINT and "run" in known and "checkpoint" not in known:
        return "but at the start there is no checkpoint; use it in `resume`"
    if word == "file" and "run" in known:
        return "but `files` is empty; name the restart file there"
    return f"allowed: {', '.join(f'{{{name}}}' for name in known)}; a brace itself is typed twice"


def _template_mistakes(run: RunSpec, program: Program, base: Path) -> Iterator[Mistake]:
    known = [*(name for name in ALWAYS if name not in OF_GOAL or run.goal is not None), *OF_CHECKPOINT]
    allowed = ", ".join(f"@@{each}@@" for each in known)
    for name in program.templates:
        try:
            text = (base / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            yield "templates", f"found '{name}', which cannot be read as text: {error}"
            continue
        for found in strange_in_template(text, known):
            yield "templates", f"found '{found}' in {name}, allowed: {allowed}"
    for name, count in sorted(Counter(Path(each).name for each in (*program.inputs, *program.templates)).items()):
        if count > 1:
            yield "inputs", f"found two files called '{name}', which have one place in the program's folder; rename one"


def _name_mistakes(program: Program) -> Iterator[Mistake]:
    """Yield names that lie outside of the program's own folder, or that unbroken uses in a checkpoint."""
    tables = [output.name for output in program.outputs]
    named_files = {"files": program.files, "outputs": tables, "put_back_as": program.put_back_as.values()}
    singles = ("saved_marker", "progress_file", "live_file", "finished_file", "stop_file")
    for setting, names in {**named_files, **{each: [getattr(program, each)] for each in singles}}.items():
        for name in names:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                yield setting, f"found '{name}', allowed: a name in the program's own folder"
            elif setting in ("files", "outputs") and path.parts and path.parts[0] in _OURS:
                yield setting, f"found '{name}', but that name in a checkpoint belongs to unbroken; rename yours"
    for name in program.files:
        if found := next(strange(name, ("progress",)), ""):
            yield "files", f"found '{found}' in '{name}', allowed: {{progress}}"
        elif name.count("{progress}") > 1:
            yield "files", f"found {{progress}} twice in '{name}', allowed: once"
    for name in program.put_back_as:
        if name not in program.files:
            yield "put_back_as", f"found '{name}', allowed: {', '.join(program.files) or 'nothing without `files`'}"
    for name in tables:
        if not program.says_progress:
            yield "outputs", f"found '{name}', {_NO_NUMBER}"
        if matches(program.files, name):
            yield "outputs", f"found '{name}', which is one of `files` too; allowed: one of them"


# --- what does not go together ---


def _saving_mistakes(program: Program) -> Iterator[Mistake]:
    how, marker, has_numbers = program.saved_by, program.saved_marker, program.has_numbered_files
    name_them = "name the restart files there"
    if program.keeps_the_contract:
        if name := next((name for name in _OF_FILES if getattr(program, name)), ""):
            yield name, f"does nothing without `files`; {name_them}"
        elif how not in (SavedBy.EXIT, SavedBy.OBSERVED):
            yield "saved_by", f"found '{how.value}', but `files` is empty; {name_them}"
        return
    if how is SavedBy.MARKER and not marker:
        yield "saved_marker", "is missing; type for example `saved_marker: restart.done`"
    if how is not SavedBy.MARKER and marker:
        yield "saved_marker", f"does nothing with `saved_by: {how.value}`; type `saved_by: marker`"
    if "{progress}" in marker and not has_numbers:
        yield "saved_marker", "found {progress} in it, but none in `files`"
    other = "allowed: names such as 'melt.{progress}.rst', or another `saved_by`"
    if how is SavedBy.NEXT and not has_numbers:
        yield "saved_by", f"found 'next', but the names in `files` have no number; {other}"
    if how is SavedBy.RENAME and len(program.files) > 1 and not has_numbers:
        found = "found 'rename' with several `files`, which are not renamed together"
        yield "saved_by", f"{found}; allowed: names with {{progress}}, or `saved_by: observed`"
    if program.put_back_as and not program.puts_back:
        yield "put_back_as", "does nothing with `put_back: false`"


def _progress_mistakes(run: RunSpec, program: Program) -> Iterator[Mistake]:
    names = ("progress_pattern", "progress_json", "progress_command")
    ways, file = [name for name in names if getattr(program, name)], program.progress_file
    if program.has_numbered_files and ways:
        yield ways[0], "found beside {progress} in `files`; allowed: one of them"
    elif len(ways) > 1:
        yield ways[1], f"found beside `{ways[0]}`; allowed: one of progress_pattern, progress_json and progress_command"
    elif program.progress_command and file:
        yield "progress_file", "found beside `progress_command`, which finds the number by itself; remove one of them"
    elif file and not ways:
        yield "progress_file", "says not where the number is; add `progress_pattern` or `progress_json`"
    elif ways and not program.progress_command and not file:
        yield "progress_file", f"is missing beside `{ways[0]}`; name the restart file that has the number"
    elif file and program.saved_by not in (SavedBy.EXIT, SavedBy.OBSERVED) and not is_progress_file_kept(program):
        why = "while the program runs it says another number than they; name it in `files` too"
        yield "progress_file", f"found '{file}', which is none of `files`: {why}"
    if program.live_file and not program.live_pattern:
        yield "live_pattern", "is missing beside `live_file`"
    if program.live_pattern and not program.live_file:
        yield "live_file", "is missing beside `live_pattern`"
    if run.goal is not None and not program.says_progress and not program.finished_file:
        yield "goal", f"found {run.goal:.10g}, {_NO_NUMBER}"


def _folder_mistakes(program: Program, base: Path) -> Iterator[Mistake]:
    folder = program.folder
    if extra := next((name for name in _NEEDS_OWN_FOLDER if folder and getattr(program, name)), ""):
        allowed = "so that the program has one of its own ({base} in its words is where snakemake was started)"
        yield "folder", f"found '{folder}' beside `{extra}`; allowed: no `folder`, {allowed}"
    if folder and not (base / folder).is_dir():
        yield "folder", f"found '{folder}', but there is no such folder"


def _ending_mistakes(run: RunSpec, program: Program) -> Iterator[Mistake]:
    if program.stop_text and not program.stop_file:
        yield "stop_text", "does nothing without `stop_file`"
    both = sorted(program.exit_finished & program.exit_paused)
    if both and not program.finished_file:
        found = f"found {both[0]}, which is in `exit_finished` too"
        if program.keeps_the_contract:
            yield "exit_paused", f"{found}; allowed: one of them"
        elif run.goal is None:
            yield "exit_paused", f"{found}, and nothing else says which it is; add `goal` or `finished_file`"
    is_told = any(named(word) & set(OF_CHECKPOINT) for word in program.resume) or program.templates
    if program.files and not program.puts_back and not is_told:
        yield "resume", "says nothing of the checkpoint; type {checkpoint} or {file} into it, or `put_back: true`"


def _launcher_mistakes(run: RunSpec, program: Program) -> Iterator[Mistake]:
    """Yield mistakes of launchers: srun and mpirun start the program once a task, and decide which signals it gets."""
    enters = [word for word in run.environment.enter if is_launcher(word)]
    for setting, command in (("start", program.start), ("resume", _own_resume(program))):
        if enters and command and is_launcher(command[0]):
            found = f"found '{command[0]}', which {enters[0]} would start in each task"
            yield setting, f"{found}; type enter: [] in the run, or leave {command[0]} out"
    if program.stop_signal and program.stop_signal not in PASSED_ON and starts_tasks(run, program.start):
        yield (
            "stop_signal",
            f"found '{program.stop_signal}', on which srun and mpirun kill the program, or do nothing; allowed: "
            f"{' or '.join(PASSED_ON)}, which they pass on to each task, or `stop_file`, or a time limit of its own",
        )
