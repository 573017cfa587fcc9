"""A user's training script as one process or several: how it is started, and what of the machine each gets."""

from __future__ import annotations

import sys

from unbroken.runs.run import Run

# The user's Python must find unbroken, as the script must that uses unbroken.training.
LAUNCHER = "unbroken.training.launch.ranks"


def script_command(run: Run, key: str, *options: str) -> list[str]:
    """The user's Python, script and arguments; with several processes, what starts so many of them.

    The setting `key` says how many in each task of the run; `options` are those of the launcher.
    """
    arguments, ranks = run.settings["args"], _number(run, key)
    if not isinstance(arguments, (list, tuple)):
        raise TypeError(f"args is {arguments!r}; the schema allows a list only")
    python = python_of(run)
    command = [python, str(run.settings["script"]), *map(str, arguments)]
    if ranks * run.tasks == 1:
        return command
    return [python, "-m", LAUNCHER, "--ranks", str(ranks), "--tasks", str(run.tasks), *options, *command]


def python_of(run: Run) -> str:
    """The Python of the user's script: the one that is named, the environment's, else our own."""
    return str(run.settings["python"] or ("python3" if run.has_python else sys.executable))


def threads_of_each(run: Run, key: str) -> int:
    """The threads of a task, shared by its processes."""
    return max(1, run.threads // _number(run, key))


def _number(run: Run, key: str) -> int:
    number = run.settings[key]
    if not isinstance(number, int):
        raise TypeError(f"{key} is {number!r}; the schema allows a number only")
    return number
