"""Create the run of `unbroken init dmtcp -- COMMAND`: any program, saved from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.starter import Starter, as_yaml, files_named, run_name, seen_in_own_folder
from unbroken.errors import ConfigError


def starters(folder: Path, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
    """Yield a run for the command line, if DMTCP was asked for; files that it names become inputs."""
    if not is_named:
        return
    if not words:
        raise ConfigError(
            ["init dmtcp: which program? type for example: unbroken init dmtcp -- python3 simulate.py 2000"]
        )
    files = files_named(folder, words)
    settings = [f"command: {as_yaml(seen_in_own_folder(folder, words))}"]
    settings += [f"inputs: {as_yaml(files)}"] if files else []
    todo = (
        ()
        if shutil.which("dmtcp_launch")
        else ("dmtcp_launch is not on the PATH: `modules:` or `dmtcp:` (its folder)",)
    )
    yield Starter(run_name(PurePath(files[0] if files else words[0]).stem, "run"), "", tuple(settings), 60, False, todo)
