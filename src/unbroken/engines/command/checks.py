"""Check the settings of a run of this engine against each other before anything is queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from unbroken.config.found import found as shown
from unbroken.config.tasks import PASSED_ON, is_launcher, starts_tasks
from unbroken.engines.command.edits import edit_mistakes
from unbroken.engines.command.placeholders import ALWAYS, OF_CHECKPOINT, OF_GOAL, strange, strange_in_template
from unbroken.engines.files.reading import BINARY
from unbroken.engines.files.settings import Program, SavedBy, When, record_of, texts
from unbroken.engines.files.states import is_progress_file_kept, matches
from unbroken.store.run import RunSpec

# A setting, and what is wrong with it; for a rule, first whether it is.
Mistake = tuple[str, str]
Rule = tuple[object, str, str]

_NAME = re.compile(r"(?!UNBROKEN_)[A-Za-z_][A-Za-z0-9_]*")
# What says something of restart files, and nothing without them.
_WAYS_TO_READ = ("progress_pattern", "progress_command")
_OF_FILES = ("saved_marker", "progress_file", *_WAYS_TO_READ, "check_command")
_OURS = ("parts", "final", "unbroken-output", "manifest.json")
_WAYS = "type {progress} into their names, or progress_file, or progress_command"
_NO_NUMBER = f"but nothing says how far the restart files are; {_WAYS}"


def mistakes(run: RunSpec, program: Program, base: Path) -> Iterator[Mistake]:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    yield from _placeholder_mistakes(run, program)
    yield from _template_mistakes(run, program, base)
    yield from edit_mistakes(run, program, base)
    yield from _name_mistakes(program)
    yield from ((setting, text) for is_wrong, setting, text in _rules(run, program) if is_wrong)
    yield from _launcher_mistakes(run, program)


def pattern_mistakes(run: RunSpec) -> Iterator[Mistake]:
    """Yield each regular expression of the settings that is none; without them there is no program."""
    written = [("outputs", kind) for kind in texts(run.settings["outputs"]).values()]
    written.append(("progress_pattern", str(run.settings["progress_pattern"])))
    edits = run.settings["edits"]
    for edit in edits if isinstance(edits, (list, tuple)) else ():
        yield from _plain_pattern_mistakes("edits", edit["find"], edit.get("after", ""), edit.get("unless", ""))
    for name in ("error_pattern", "finished_pattern"):
        yield from _plain_pattern_mistakes(name, str(run.settings[name]))
    for where, text in written:
        try:
            expression = record_of(text)
        except re.error as error:
            yield where, f"found {shown(text)}, which is no regular expression: {error}"
            continue
        groups = expression.groups
        if (
            text
            and groups != 1
            and not (groups == 2 and where == "progress_pattern" and BINARY in expression.groupindex)
        ):
            yield where, f"found {shown(text)} with {groups} groups (...), allowed: one, around the number"


def _plain_pattern_mistakes(where: str, *patterns: str) -> Iterator[Mistake]:
    for text in patterns:
        try:
            re.compile(text)
        except re.error as error:
            yield where, f"found {shown(text)}, which is no regular expression: {error}"


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
        ("edits", [edit.put for edit in program.edits if edit.when is not When.RESUME], [*at_start, *OF_GOAL]),
        ("edits", [edit.put for edit in program.edits if edit.when is When.RESUME], [*resumed, *OF_GOAL]),
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
    singles = ("saved_marker", "progress_file", "finished_file", "stop_file", "stdout")
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


def _rules(run: RunSpec, program: Program) -> Iterator[Rule]:
    if program.keeps_the_contract:
        is_by_files = program.saved_by not in (SavedBy.EXIT, SavedBy.OBSERVED)
        name_them = "name the restart files there"
        for name in _OF_FILES:
            yield getattr(program, name), name, f"does nothing without `files`; {name_them}"
        yield is_by_files, "saved_by", f"found '{program.saved_by.value}', but `files` is empty; {name_them}"
    else:
        yield from _saving_rules(program)
    yield from _progress_rules(program)
    is_said = program.says_progress or bool(program.finished_file or program.finished_pattern)
    yield run.goal is not None and not is_said, "goal", f"found {run.goal or 0:.10g}, {_NO_NUMBER}"
    yield program.stop_text and not program.stop_file, "stop_text", "does nothing without `stop_file`"
    both = sorted(program.exit_finished & program.exit_paused)
    if both and not (program.finished_file or program.finished_pattern):
        found = f"found {both[0]}, which is in `exit_finished` too"
        yield program.keeps_the_contract, "exit_paused", f"{found}; allowed: one of them"
        is_open = run.goal is None and not program.keeps_the_contract
        yield is_open, "exit_paused", f"{found}, and nothing else says which it is; add `goal` or `finished_file`"


def _saving_rules(program: Program) -> Iterator[Rule]:
    how, marker, has_numbers = program.saved_by, program.saved_marker, program.has_numbered_files
    is_marked, is_next = how in (SavedBy.MARKER, SavedBy.STAGE), how is SavedBy.NEXT
    yield is_marked and not marker, "saved_marker", "is missing; type for example `saved_marker: restart.done`"
    useless = f"does nothing with `saved_by: {how.value}`; type `saved_by: marker`"
    yield marker and not is_marked, "saved_marker", useless
    is_apart = how is SavedBy.STAGE and not all(matches(program.files, each) for each in marker.split("|") if each)
    yield is_apart, "saved_marker", f"found '{marker}', which is none of `files`; name it there too"
    yield how is SavedBy.STAGE and has_numbers, "saved_by", "found 'stage' with {progress} in `files`; leave it out"
    is_numbered = "{progress}" in marker and not has_numbers
    yield is_numbered, "saved_marker", "found {progress} in it, but none in `files`"
    other = "allowed: names such as 'melt.{progress}.rst', or another `saved_by`"
    without = f"found 'next', but the names in `files` have no number; {other}"
    yield is_next and not has_numbers, "saved_by", without
    several = "found 'rename' with several `files`, which are not renamed together"
    are_several = how is SavedBy.RENAME and len(program.files) > 1 and not has_numbers
    yield are_several, "saved_by", f"{several}; allowed: names with {{progress}}, or `saved_by: observed`"


def _progress_rules(program: Program) -> Iterator[Rule]:
    ways = [name for name in _WAYS_TO_READ if getattr(program, name)]
    way, file = next(iter(ways), ""), program.progress_file
    is_read_later = program.saved_by in (SavedBy.EXIT, SavedBy.OBSERVED) or is_progress_file_kept(program)
    if program.has_numbered_files:
        yield ways, way, "found beside {progress} in `files`; allowed: one of them"
    elif program.progress_command:
        beside = "found beside `progress_command`, which finds the number by itself; remove it"
        yield file, "progress_file", beside
        yield program.progress_pattern, "progress_pattern", beside
    elif not file:
        yield ways, "progress_file", f"is missing beside `{way}`; name the restart file that has the number"
    elif not ways:
        yield True, "progress_file", "says not where the number is; add `progress_pattern`"
    else:
        why = "while the program runs it says another number than they; name it in `files` too"
        yield not is_read_later, "progress_file", f"found '{file}', which is none of `files`: {why}"


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
