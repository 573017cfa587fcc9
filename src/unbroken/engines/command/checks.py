"""What can be wrong with the settings of a run of this engine taken together, found before anything is queued."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

from unbroken.config.found import found as shown
from unbroken.config.tasks import PASSED_ON, is_launcher, starts_tasks
from unbroken.engines.command.placeholders import ALWAYS, OF_CHECKPOINT, OF_GOAL, named, strange, strange_in_template
from unbroken.engines.files.settings import OutputSetting, Program, SavedBy, record_of, texts
from unbroken.engines.files.states import glob_pattern, is_progress_file_kept
from unbroken.runs.run import Run

Mistake = tuple[str, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the engine needs its own folder for.
_NEEDS_OWN_FOLDER = ("inputs", "templates", "files", "outputs", "discard", "finished_file", "live_file")
# What says something of restart files, and nothing without them.
_NEEDS_FILES = (
    "saved_marker",
    "progress_file",
    "progress_pattern",
    "progress_json",
    "progress_command",
    "check_command",
)
_OURS = ("parts", "final", "unbroken-output", "manifest.json")


def mistakes(run: Run, program: Program, base: Path) -> Iterator[Mistake]:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    checks: tuple[Callable[[Run, Program, Path], Iterator[Mistake]], ...] = (
        _placeholder_mistakes,
        _template_mistakes,
        _folder_mistakes,
        _file_mistakes,
        _saved_by_mistakes,
        _progress_mistakes,
        _output_mistakes,
        _ending_mistakes,
        _launcher_mistakes,
        _put_back_mistakes,
    )
    for check in checks:
        yield from check(run, program, base)


def pattern_mistakes(run: Run) -> Iterator[Mistake]:
    """Yield each regular expression of the settings that is none; without them there is no program."""
    kinds = texts(run.settings["outputs"])
    written = {name: str(run.settings[name]) for name in ("progress_pattern", "live_pattern")}
    for where, text in [("outputs", kind) for kind in kinds.values()] + list(written.items()):
        try:
            groups = record_of(text).groups
        except re.error as error:
            yield where, f"found {shown(text)}, which is no regular expression: {error}"
            continue
        if text and groups != 1:
            yield where, f"found {shown(text)} with {groups} groups (...), allowed: one, around the number"


def _placeholder_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    has_goal = [name for name in ALWAYS if name not in OF_GOAL or run.goal is not None]
    resumed = [*has_goal, *(name for name in OF_CHECKPOINT if name != "file" or program.files)]
    for setting, texts_, known in (
        ("start", program.start, has_goal if _own_resume(program) else resumed),
        ("resume", _own_resume(program), resumed),
        ("environment", program.environment.values(), resumed),
        ("stop_text", (program.stop_text,), resumed),
        ("progress_command", program.progress_command, ["base"]),
        ("check_command", program.check_command, ["base"]),
    ):
        for text in texts_:
            for found in strange(text, known):
                yield setting, _strange(found, text, known, run)
    for name in program.environment:
        if not _NAME.fullmatch(name) or name.startswith("UNBROKEN_"):
            yield "environment", f"found '{name}', allowed: the name of a variable that does not begin with UNBROKEN_"


def _own_resume(program: Program) -> tuple[str, ...]:
    return () if program.resume == program.start else program.resume


def _strange(found: str, text: str, known: Collection[str], run: Run) -> str:
    word = found.strip("{}")
    if word in OF_GOAL and run.goal is None:
        return f"found '{found}' in {shown(text)}, but there is no `goal`; type for example `goal: 5000`"
    is_of_start = "run" in known and "checkpoint" not in known
    if word in OF_CHECKPOINT and is_of_start:
        return f"found '{found}' in {shown(text)}, but at the start there is no checkpoint; use it in `resume`"
    if word == "file" and "run" in known:
        return f"found '{found}' in {shown(text)}, but `files` is empty; name the restart file there"
    listed = ", ".join(f"{{{name}}}" for name in known)
    return f"found '{found}' in {shown(text)}, allowed: {listed}; a brace itself is typed twice"


def _template_mistakes(run: Run, program: Program, base: Path) -> Iterator[Mistake]:
    known = [*(name for name in ALWAYS if name not in OF_GOAL or run.goal is not None), *OF_CHECKPOINT]
    for name in program.templates:
        try:
            text = (base / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            yield "templates", f"found '{name}', which cannot be read as text: {error}"
            continue
        for found in strange_in_template(text, known):
            allowed = ", ".join(f"@@{each}@@" for each in known)
            yield "templates", f"found '{found}' in {name}, allowed: {allowed}"
    last_names = [Path(name).name for name in (*program.inputs, *program.templates)]
    for name in sorted({name for name in last_names if last_names.count(name) > 1}):
        yield "inputs", f"found two files called '{name}', which have one place in the program's folder; rename one"


def _folder_mistakes(run: Run, program: Program, base: Path) -> Iterator[Mistake]:
    if not program.folder:
        return
    if extra := [name for name in _NEEDS_OWN_FOLDER if getattr(program, name)]:
        yield (
            "folder",
            f"found '{program.folder}' beside `{extra[0]}`; allowed: no `folder`, so that the program has one of its "
            "own ({base} in its words is where snakemake was started)",
        )
    if not (base / program.folder).is_dir():
        yield "folder", f"found '{program.folder}', but there is no such folder"


def _file_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    named_files = {
        "files": program.files,
        "outputs": [output.name for output in program.outputs],
        **{name: [getattr(program, name)] for name in ("saved_marker", "progress_file", "live_file", "finished_file")},
        "stop_file": [program.stop_file],
    }
    for setting, names in named_files.items():
        for name in names:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                yield setting, f"found '{name}', allowed: a name in the program's own folder"
            elif setting in ("files", "outputs") and path.parts and path.parts[0] in _OURS:
                yield setting, f"found '{name}', but that name in a checkpoint belongs to unbroken; rename yours"
    for name in program.files:
        if found := [each for each in strange(name, ("progress",)) if each]:
            yield "files", f"found '{found[0]}' in '{name}', allowed: {{progress}}"
        elif name.count("{progress}") > 1:
            yield "files", f"found {{progress}} twice in '{name}', allowed: once"
    if program.keeps_the_contract:
        for name in _NEEDS_FILES:
            if getattr(program, name):
                yield name, "does nothing without `files`; name the restart files there"
                break


def _saved_by_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    how = program.saved_by
    if how not in (SavedBy.EXIT, SavedBy.OBSERVED) and program.keeps_the_contract:
        yield "saved_by", f"found '{how.value}', but `files` is empty; name the restart files there"
    elif how is SavedBy.MARKER and not program.saved_marker:
        yield "saved_marker", "is missing; type for example `saved_marker: restart.done`"
    elif how is not SavedBy.MARKER and program.saved_marker:
        yield "saved_marker", f"does nothing with `saved_by: {how.value}`; type `saved_by: marker`"
    elif how is SavedBy.NEXT and not program.has_numbered_files:
        yield (
            "saved_by",
            "found 'next', but the names in `files` have no number; allowed: names such as 'melt.{progress}.rst', or "
            "another `saved_by`",
        )
    elif how is SavedBy.RENAME and len(program.files) > 1 and not program.has_numbered_files:
        yield (
            "saved_by",
            "found 'rename' with several `files`, which are not renamed together; allowed: names with {progress}, or "
            "`saved_by: observed`",
        )
    if program.saved_marker and "{progress}" in program.saved_marker and not program.has_numbered_files:
        yield "saved_marker", "found {progress} in it, but none in `files`"


def _progress_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    ways = [name for name in ("progress_pattern", "progress_json", "progress_command") if getattr(program, name)]
    not_by_exit = program.saved_by not in (SavedBy.EXIT, SavedBy.OBSERVED)
    if program.has_numbered_files and ways:
        yield ways[0], "found beside {progress} in `files`; allowed: one of them"
    elif len(ways) > 1:
        yield ways[1], f"found beside `{ways[0]}`; allowed: one of progress_pattern, progress_json and progress_command"
    elif program.progress_file and program.progress_command:
        yield "progress_file", "found beside `progress_command`, which finds the number by itself; remove one of them"
    elif program.progress_file and not (program.progress_pattern or program.progress_json):
        yield "progress_file", "says not where the number is; add `progress_pattern` or `progress_json`"
    elif (program.progress_pattern or program.progress_json) and not program.progress_file:
        yield "progress_file", f"is missing beside `{ways[0]}`; name the restart file that has the number"
    elif program.progress_file and not_by_exit and not is_progress_file_kept(program):
        yield (
            "progress_file",
            f"found '{program.progress_file}', which is none of `files`: while the program runs it says another number "
            "than they; name it in `files` too",
        )
    if bool(program.live_file) != bool(program.live_pattern):
        missing = "live_pattern" if program.live_file else "live_file"
        yield missing, f"is missing beside `{'live_file' if program.live_file else 'live_pattern'}`"
    if run.goal is not None and not program.says_progress and not program.finished_file:
        yield "goal", f"found {run.goal:.10g}, but nothing says how far the restart files are; {_WAYS}"


_WAYS = "type {progress} into their names, or progress_file, or progress_command"


def _output_mistakes(_run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    names = [output.name for output in program.outputs]
    for name in sorted(program.outputs_with_gaps.difference(names)):
        allowed = f"allowed: {', '.join(names)}" if names else "but there are no `outputs`"
        yield "outputs_with_gaps", f"found '{name}', {allowed}"
    for output in program.outputs:
        if not program.says_progress:
            yield "outputs", f"found '{output.name}', but nothing says how far the restart files are; {_WAYS}"
        if _is_restart_file(output, program):
            yield "outputs", f"found '{output.name}', which is one of `files` too; allowed: one of them"


def _is_restart_file(output: OutputSetting, program: Program) -> bool:
    return any(glob_pattern(name).fullmatch(output.name) for name in program.files)


def _ending_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    if program.stop_text and not program.stop_file:
        yield "stop_text", "does nothing without `stop_file`"
    both = sorted(program.exit_finished & program.exit_paused)
    if both and program.keeps_the_contract and not program.finished_file:
        yield "exit_paused", f"found {both[0]}, which is in `exit_finished` too; allowed: one of them"
    elif both and run.goal is None and not program.finished_file:
        yield (
            "exit_paused",
            f"found {both[0]}, which is in `exit_finished` too, and nothing else says which it is; add `goal` or "
            "`finished_file`",
        )
    is_told = any(named(word) & set(OF_CHECKPOINT) for word in program.resume)
    if program.files and not program.puts_back and not is_told and not program.templates:
        yield "resume", "says nothing of the checkpoint; type {checkpoint} or {file} into it, or `put_back: true`"


def _launcher_mistakes(run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    """srun and mpirun start the program once for each task, and decide what of a signal it hears."""
    enters = [word for word in run.enter if is_launcher(word)]
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


def _put_back_mistakes(_run: Run, program: Program, _base: Path) -> Iterator[Mistake]:
    for name, other in program.put_back_as.items():
        if name not in program.files:
            yield "put_back_as", f"found '{name}', allowed: {', '.join(program.files) or 'nothing without `files`'}"
        path = PurePosixPath(other)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            yield "put_back_as", f"found '{other}', allowed: a name in the program's own folder"
    if program.put_back_as and not program.puts_back:
        yield "put_back_as", "does nothing with `put_back: false`"
