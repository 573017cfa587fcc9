"""Rewrite the commands and paths in a message for the user's working directory: with `-d` that is another folder.

Messages are written, and kept in histories, as they read in the working directory of the runs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

# The working directory as the user typed it in another one.
_typed = [Path()]
_COMMANDS = "accept|back|export|import|init|logs|rehearse|restart|restore|run|status|verify"
_OURS = re.compile(rf"\bunbroken ({_COMMANDS})\b(?! -d)")
_SNAKEMAKE = re.compile(
    r"(?P<before>^(?:\S+: )?|\b(?:type|type:|with:|then:) )snakemake(?P<slurm> --profile slurm)?\b(?! again)",
    re.MULTILINE,
)
# Where Snakemake looks for the workflow of a folder.
_OWN = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
_DIFF = re.compile(r"(?<!\w)(diff \S*results/\S+ )(?![/'])([^\s;]+)")
_PATH = re.compile(r"(?<![\w./~-])(?:results|logs|config)/[^\s;,:'\"()]*[\w/]")


def from_here(text: str, directory: Path, root: Path | None = None) -> str:
    """Return the text as seen from where the working directory is `directory`; look up paths in `root`, or there."""
    root = root or directory
    text = _SNAKEMAKE.sub(
        lambda found: found["before"] + _start(directory, root, is_on_slurm=bool(found["slurm"])), text
    )
    if directory == Path():
        return text
    text = _PATH.sub(lambda found: _path(found[0], directory, root), text)
    text = _DIFF.sub(lambda found: f"{found[1]}{directory / found[2]}", text)
    return _OURS.sub(rf"unbroken \1 -d {shlex.quote(str(directory))}", text)


def own_snakefile(directory: Path) -> Path | None:
    """Return the workflow that Snakemake finds in a folder by itself."""
    return next((directory / name for name in _OWN if (directory / name).is_file()), None)


def note_typed(directory: str | Path | None) -> None:
    """Note in a driver the folder that the user typed; jobs do not call this, as their logs are read elsewhere."""
    _typed[0] = Path(directory or "")


def from_where_it_was_typed(text: str) -> str:
    """Return the text as `from_here` does, in a driver."""
    return text if _typed[0] == Path() else from_here(text, _typed[0], Path())


def _start(directory: Path, root: Path, *, is_on_slurm: bool) -> str:
    """Return the command that starts the runs: a folder without a workflow of its own has the installed one."""
    if own_snakefile(root) is None:
        return "unbroken run" + (" --slurm" if is_on_slurm else "")
    there = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
    return f"{there}snakemake" + (" --profile slurm" if is_on_slurm else "")


def _path(found: str, directory: Path, root: Path) -> str:
    """Return the path below `directory` if it exists or is in a run's folder, else the text as it is.

    A path that is about to be written counts too: the line about results comes a moment before them.
    """
    path = Path(found)
    is_in_a_run = len(path.parts) > 2 and (root / path.parent).is_dir()
    return str(directory / found) if is_in_a_run or (root / path).exists() else found
