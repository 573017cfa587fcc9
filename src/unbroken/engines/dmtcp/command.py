"""Build the command line of the supervisor, the child process of a segment."""

from __future__ import annotations

import sys
from pathlib import Path

from unbroken.runs.run import RunSpec

LIVE = "live"
# hwloc looks at disks through udev, which DMTCP cannot save; without that, gmx and many MPI programs can be saved.
HWLOC = {"HWLOC_COMPONENTS": "-linuxio"}


def keeper_command(run: RunSpec, base: Path, root: Path) -> list[str]:
    """Return the command that starts the supervisor of a run whose program lives below `root`.

    It uses the Python that runs unbroken, with `-I`, because a module's PYTHONPATH is for the program alone.
    """
    settings = run.settings
    words = [sys.executable, "-I", "-m", "unbroken.engines.dmtcp.supervisor", "--live", str(root / LIVE)]
    words += [word for name in _list(run, "inputs") for word in ("--input", str(base / name))]
    words += ["--programs", str(base / str(settings["dmtcp"]))] if settings["dmtcp"] else []
    words += [f"--option={word}" for word in _list(run, "options")]
    seconds = settings["restart_seconds"]
    words += [] if seconds is None else ["--restart-seconds", f"{seconds}"]
    words += ["--compress"] if settings["compress"] is True else []
    words += ["--machine-may-differ"] if settings["machine_may_differ"] is True else []
    return [*words, "--", *_list(run, "command")]


def _list(run: RunSpec, name: str) -> list[str]:
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []
