"""Change the input files of a program before a start, in the program's own folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from unbroken.engines.command.placeholders import OF_GOAL, filled, named
from unbroken.engines.files.settings import Edit, Program, When
from unbroken.errors import SegmentError
from unbroken.store.run import RunSpec


def edit_inputs(program: Program, base: Path, values: Mapping[str, str], folder: Path, *, is_resumed: bool) -> None:
    """Write the changed input files into `folder`, each from the user's own; raise SegmentError if one cannot be."""
    texts: dict[str, str] = {}
    for edit in program.edits:
        if edit.when is (When.START if is_resumed else When.RESUME) or _lacks_goal(edit, values):
            continue
        try:
            text = texts[edit.file] if edit.file in texts else source_of(edit.file, program, base).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SegmentError(f"edits: {edit.file} cannot be read as text: {error}") from error
        changed = edited(text, edit, filled(edit.put, values))
        if changed is None:
            raise SegmentError(f"edits: nothing in {edit.file} matches {edit.find}")
        texts[edit.file] = changed
    for name, text in texts.items():
        path = folder / name
        path.unlink(missing_ok=True)  # a link to the user's own file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def edited(text: str, edit: Edit, put: str) -> str | None:
    """Return the text with the change made; None if it has no place for it, and needs one."""
    if edit.unless and re.search(edit.unless, text, re.MULTILINE):
        return text
    escaped = put.replace("\\", "\\\\")  # of a value, such as a path
    escaped = re.sub(r"\\\\(\d)", r"\\g<\1>", escaped)
    changed, count = re.subn(edit.find, escaped, text, flags=re.MULTILINE)
    if count:
        return changed
    if edit.after and (place := re.search(edit.after, text, re.MULTILINE)):
        end = text.find("\n", place.end())
        end = len(text) if end < 0 else end
        line = re.sub(r"\\\d", "", put)  # nothing matched that a group could stand for
        return f"{text[:end]}\n{line}{text[end:]}"
    return text if edit.is_optional else None


def source_of(name: str, program: Program, base: Path) -> Path:
    """Return the user's own file that the program sees as `name`; raise FileNotFoundError if no input is it."""
    first, *below = PurePosixPath(name).parts
    for given in (*program.inputs, *program.templates):
        if Path(given).name == first and (path := base.joinpath(given, *below)).is_file():
            return path
    raise FileNotFoundError(f"{name} is none of the inputs")


def edit_mistakes(run: RunSpec, program: Program, base: Path) -> Iterator[tuple[str, str]]:
    """Yield each edit that could not be made in the file as it is now."""
    for edit in program.edits:
        try:
            text = source_of(edit.file, program, base).read_text()
        except (OSError, UnicodeDecodeError) as error:
            yield "edits", f"found '{edit.file}', which cannot be read as text: {error}"
            continue
        if not (run.goal is None and named(edit.put) & set(OF_GOAL)) and edited(text, edit, "") is None:
            yield "edits", f"found '{edit.find}', which matches nothing in {edit.file}"


def _lacks_goal(edit: Edit, values: Mapping[str, str]) -> bool:
    return any(not values[name] for name in named(edit.put) & set(OF_GOAL))
