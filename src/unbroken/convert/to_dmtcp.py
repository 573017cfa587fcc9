"""`dmtcp_launch`: engine dmtcp."""

from __future__ import annotations

from pathlib import PurePath

from unbroken.convert.draft import Draft, Source, enter, export_all, modules
from unbroken.convert.job import Line
from unbroken.convert.seen import Remark
from unbroken.engines.starter import files_named, seen_in_own_folder

# Options of dmtcp_launch with a value behind them [dmtcp_launch --help, 4.1].
_COORDINATOR = (
    "-h",
    "--coord-host",
    "-p",
    "--coord-port",
    "--port-file",
    "--ckptdir",
    "-c",
    "--tmpdir",
    "-t",
    "--join-coordinator",
)
_ALONE = (
    "-j",
    "--new-coordinator",
    "--any-coordinator",
    "--no-coordinator",
    "-q",
    "--quiet",
    "--gzip",
    "--no-gzip",
    "--rm",
    "-n",
)
_INTERVAL = ("-i", "--interval")


def is_dmtcp(source: Source) -> bool:
    """True if DMTCP starts the program, or starts it again."""
    return source.line.program in ("dmtcp_launch", "dmtcp_checkpoint")


def dmtcp_run(source: Source) -> Draft:
    """The run; its coordinator, images and their folder are unbroken's."""
    line = source.start.line
    draft = Draft("dmtcp", f"line {line}: {source.line.program}")
    export_all(source)
    modules(source, draft)
    enter(source, draft, with_launcher=False)
    words = _words(source, line)
    options: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, mark, value = words[at].partition("=")
        value = value if mark else words[at + 1] if at + 1 < len(words) else ""
        if name in _INTERVAL:
            minutes = int(value) / 60 if value.isdecimal() else 0
            if minutes:
                draft.lines.append(Line("save_minutes", f"{minutes:.10g}", f"line {line}: {name} {value}"))
            at += 1 if mark else 2
        elif name in _COORDINATOR:
            at += 1 if mark else 2
        elif name in _ALONE:
            at += 1
        else:
            options.append(words[at])
            at += 1
    program = words[at:]
    source.first.drop(line, " ".join(words[1:at]), "the engine has a coordinator and a place for images of its own")
    folder = source.folder
    files = files_named(folder, program)
    draft.set("command", seen_in_own_folder(folder, program), f"line {line}")
    if files:
        draft.set("inputs", [source.below(name) for name in files], f"line {line}: files of this folder")
    for name in program:
        if (
            (name.startswith("./") or PurePath(name).suffix)
            and name.removeprefix("./") not in files
            and not _is_number(name)
        ):
            draft.asked.append(Remark(line, name, "is not here: if the program reads it, add it to `inputs`"))
    if options:
        draft.set("options", options, f"line {line}")
    if source.start.stdout is not None:
        source.first.drop(line, f"> {source.start.stdout.source}", "what it prints is in output.txt, among its results")
    return draft


def _words(source: Source, line: int) -> list[str]:
    """Those of the line; where the coordinator is may be known in the job alone."""
    found: list[str] = []
    for word in source.line.words:
        is_of_coordinator = bool(found) and found[-1] in _COORDINATOR
        found.append(word.source if is_of_coordinator else source.literal(word, line))
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
