"""A user's training script as one process or several: how it is started, and the share of the machine of each."""

from __future__ import annotations

import sys
from typing import Any

from unbroken.store.run import RunSpec

# The user's Python must find unbroken, as the script must that uses unbroken.training.
LAUNCHER = "unbroken.training.launch.ranks"


def script_command(run: RunSpec, key: str, *options: str) -> list[str]:
    """Return the user's Python, script and arguments; with several processes, the launcher that starts them.

    The setting `key` says how many in each task of the run; `options` are those of the launcher.
    """
    settings: Any = run.settings
    python = str(settings["python"] or ("python3" if run.environment.has_python else sys.executable))
    command = [python, str(settings["script"]), *map(str, settings["args"])]
    if settings[key] * run.resources.tasks == 1:
        return command
    return [
        python,
        "-m",
        LAUNCHER,
        "--ranks",
        str(settings[key]),
        "--tasks",
        str(run.resources.tasks),
        *options,
        *command,
    ]


def threads_of_each(run: RunSpec, key: str) -> int:
    """Return the threads of a task, shared by its processes."""
    settings: Any = run.settings
    return max(1, run.resources.threads // int(settings[key]))
