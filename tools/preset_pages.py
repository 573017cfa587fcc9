"""Write the page of each preset, docs/presets/NAME.md, and the list in docs/presets.md, from the presets themselves."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marked import write_between

from unbroken.presets.preset import Preset, presets

ROOT = Path(__file__).parent.parent
_SAVED = {
    "observed": "when it was closed after its last write, or renamed into place",
    "rename": "as soon as it has its name",
    "next": "when the next one has begun",
    "marker": "when the file after it was written",
    "stage": "when a stage has left its mark",
    "exit": "at a clean stop alone: a kill loses what was computed since the last one",
}


def page(preset: Preset) -> str:
    """Return the text of one page."""
    return "\n".join([f"# Preset `{preset.name}`", "", *_lines(preset)]).rstrip() + "\n"


def _lines(preset: Preset) -> Iterator[str]:
    yield f"{preset.title}."
    yield ""
    tested = f"version {', '.join(preset.versions)}" if preset.versions else "no version yet"
    stand_in = "No real program was at hand: a stand-in did in files what its manual says."
    yield stand_in if preset.stand_in else f"Tested with {tested}: [how often it was killed](../evidence.md)."
    yield ""
    yield from (f"- {note}" for note in preset.notes)
    yield ""
    yield "| | |"
    yield "|---|---|"
    for key, text in _rows(preset):
        yield f"| {key} | {text} |"
    yield ""
    if preset.refuse:
        yield "## Refused"
        yield ""
        yield from (f"- {_reason(rule)}" for rule in preset.refuse)
        yield ""
    yield "## In a config"
    yield ""
    yield from ["```yaml", "runs:", f"  {preset.name.replace('-', '_')}:", "    engine: command", "    segments: 20"]
    yield from ["    segment_minutes: 480", "    settings:", f"      preset: {preset.name}"]
    if preset.has_input:
        yield f"      input: {_example(preset)}"
    else:
        yield f"      start: [{', '.join(_words(preset))}]"
    yield from [
        "```",
        "",
        "## Before a command",
        "",
        f"    unbroken exec --preset {preset.name} -- {_line(preset)}",
        "",
    ]


def _rows(preset: Preset) -> Iterator[tuple[str, str]]:
    settings = preset.settings
    if preset.has_input:
        content = preset.input.get("content")
        yield "its input", f"{_code(preset.input['files'])}" + (f" with `{_plain(content)}`" if content else "")
    yield "it resumes from", _code(settings["files"])
    yield "a state is complete", _SAVED[settings.get("saved_by", "observed")]
    if settings.get("check_command"):
        yield "and is checked by", f"`{_plain(shlex.join(map(str, settings['check_command'])))}`"
    resume = settings.get("resume")
    edits = [edit for edit in settings.get("edits", ()) if edit.get("when") != "start"]
    yield "it resumes by", f"`{_plain(shlex.join(map(str, resume)))}`" if resume else "the same command"
    if edits:
        yield "with these lines of the input", _code([re.sub(r"(?:\\\d)+", "…", edit["put"]) for edit in edits])
    yield "it is asked to leave by", _stop(settings)
    if "goal" in settings:
        yield "it is done", f"at the goal that the input says, in {settings.get('goal_unit', 'steps')}"
    yield "equal to one uninterrupted run", preset.equal


def _stop(settings: dict[str, Any]) -> str:
    if settings.get("stop_file"):
        return f"the file `{settings['stop_file']}`"
    if settings.get("stop_signal"):
        return f"the signal {settings['stop_signal']}"
    texts = map(str, [*settings["start"], *(edit["put"] for edit in settings.get("edits", ()))])
    is_clock = any("{seconds" in each or "{hms}" in each or "{minutes" in each or "{hours" in each for each in texts)
    return "its own time limit" if is_clock else "TERM, and resumes from its last save"


def _reason(rule: dict[str, Any]) -> str:
    found = rule.get("find")
    return f"`{_plain(found)}`: {rule['why']}" if found else str(rule["why"])


def _example(preset: Preset) -> str:
    if not preset.has_input:
        return ""
    name = str(preset.input["files"][0])
    return name.replace("*", "water" if name.startswith("*") else "run").strip(".")


def _words(preset: Preset) -> list[str]:
    name = _example(preset)
    first, *words = map(str, preset.settings["start"])
    words = [preset.programs[0] if first.startswith("${") else first, *words]  # one that the input names
    return [word.replace("${input}", name).replace("${stem}", Path(name).stem) for word in words]


def _line(preset: Preset) -> str:
    return shlex.join(_words(preset)) if preset.has_input else " ".join(_words(preset))


def _code(texts: list[str]) -> str:
    return ", ".join(f"`{_plain(each)}`" for each in texts)


def _plain(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("`", "'")


def main() -> None:
    """Write all pages; name those that have changed."""
    known = presets(ROOT)
    folder = ROOT / "docs" / "presets"
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in known:
            path.unlink()
    for preset in known.values():
        path = folder / f"{preset.name}.md"
        if not path.exists() or path.read_text() != page(preset):
            path.write_text(page(preset))
            print(f"{path}: written", file=sys.stderr)
    rows = [f"| [{each.name}](presets/{each.name}.md) | {_plain(each.title)} |" for each in known.values()]
    table = "\n".join(["| preset | |", "|---|---|", *rows])
    write_between(ROOT / "docs" / "presets.md", "presets", table)


if __name__ == "__main__":
    main()
