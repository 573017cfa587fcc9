"""Reads in the settings of a run which simulations it has: one, or replicas that one `mdrun -multidir` computes."""

from __future__ import annotations

from pathlib import PurePath

from unbroken.runs.run import Run

# The name of a simulation that is no replica; as a folder it adds nothing to a path.
ALONE = ""
REPLEX, RESEED = "-replex", "-reseed"


def words_of(run: Run, name: str) -> list[str]:
    """Return the words of a setting that is a list."""
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []


def has_replicas(run: Run) -> bool:
    """Return True if several simulations make one run."""
    return bool(words_of(run, "replicas"))


def replica_names(run: Run) -> list[str]:
    """Return the names of the simulations: the folders of their tprs, or the names of these where folders are equal."""
    paths = [PurePath(word) for word in words_of(run, "replicas")]
    folders = [path.parent.name for path in paths]
    are_distinct = all(folders) and len(set(folders)) == len(folders)
    return (folders if are_distinct else [path.stem for path in paths]) or [ALONE]


def tpr_setting(run: Run, replica: str) -> str:
    """Return the tpr that the settings name for a simulation."""
    if replica == ALONE:
        return str(run.settings["tpr"])
    return words_of(run, "replicas")[replica_names(run).index(replica)]


def value_behind(run: Run, option: str) -> str | None:
    """Return the word behind one of mdrun's options; None where it is not given, or nothing is behind it."""
    options = words_of(run, "options")
    at = options.index(option) + 1 if option in options else len(options)
    return options[at] if at < len(options) else None


def exchange_steps(run: Run) -> int | None:
    """Return after how many steps replicas exchange; None where they do not."""
    value = value_behind(run, REPLEX)
    return int(value) if value is not None and value.isdecimal() and int(value) > 0 else None
