"""Read the settings of a run, and build the command line of mdrun.

A run has one simulation, or replicas that one `mdrun -multidir` computes.
"""

from __future__ import annotations

from pathlib import Path, PurePath

from unbroken.engines.gromacs.mdrun_line import AS_SETTINGS, CPT, NAMES_APART, STEM, Options, options_of, value_of
from unbroken.engines.gromacs.tool import whole_path, with_gmxrc
from unbroken.store.run import RunSpec

# The name of a simulation that is no replica; as a folder it adds nothing to a path.
ALONE = ""
# mdrun leaves at this share of -maxh [GROMACS, src/gromacs/mdlib/stophandler.cpp].
MAXH_SHARE = 0.99
# `-maxh 0` means no limit at all; with this one mdrun leaves after its first few steps.
LEAST_MAXH = 1e-6


def words_of(run: RunSpec, name: str) -> list[str]:
    """Return the words of a setting that is a list."""
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []


def number_of(run: RunSpec, name: str) -> float | None:
    """Return the number of a setting; None where it is null."""
    value = run.settings[name]
    return value if isinstance(value, (int, float)) else None


def mdrun_options(run: RunSpec) -> Options:
    """Return the user's options of mdrun."""
    return options_of(words_of(run, "options"))


def has_plumed(run: RunSpec) -> bool:
    """Return True if mdrun loads PLUMED, whose files are needed to resume."""
    return "-plumed" in mdrun_options(run)


def inputs_of(run: RunSpec, base: Path) -> dict[str, Path]:
    """Return the run's `inputs` by the names that mdrun finds them by."""
    paths = [(base / name).resolve() for name in words_of(run, "inputs")]
    return {path.name: path for path in paths}


def has_replicas(run: RunSpec) -> bool:
    """Return True if several simulations make one run."""
    return bool(words_of(run, "replicas"))


def replica_names(run: RunSpec) -> list[str]:
    """Return the names of the simulations: the folders of their tprs."""
    return [PurePath(word).parent.name for word in words_of(run, "replicas")] or [ALONE]


def exchange_steps(run: RunSpec) -> int | None:
    """Return after how many steps replicas exchange; None where they do not."""
    value = value_of(mdrun_options(run), "-replex")
    return int(value) if value.isdecimal() and int(value) > 0 else None


def ranks(run: RunSpec) -> int:
    """Return how many ranks work together."""
    return int(number_of(run, "ranks") or 1)


def threads_per_rank(run: RunSpec) -> int:
    """Return OpenMP threads of each rank; the ranks share what the run has, `threads` for each of its `tasks`."""
    return max(1, run.resources.threads * run.resources.tasks // ranks(run))


def maxh(seconds: float) -> float:
    """Return hours for -maxh, so that mdrun begins to leave after `seconds`; never 0, which would mean without end."""
    return max(seconds / 3600 / MAXH_SHARE, LEAST_MAXH)


def mdrun_command(run: RunSpec, tpr: Path, cpt: Path | None, seconds: float, base: Path = Path()) -> list[str]:
    """Return mdrun on `tpr` from the checkpoint `cpt`, to leave after `seconds`; all outputs go to where it is started.

    Of replicas these are the names that each of them finds in its own folder.
    """
    words = [*_launcher(run, base), whole_path(str(run.settings["gmx"]), base), "-quiet", "mdrun"]
    words += ["-multidir", *replica_names(run)] if has_replicas(run) else []
    for option, path in [("-s", tpr), ("-cpi", cpt)]:
        words += [option, str(path if has_replicas(run) else path.resolve())] if path else []
    words += ["-cpo", CPT, "-deffnm", STEM, "-noappend", *NAMES_APART]
    words += ["-maxh", f"{maxh(seconds):.9f}", "-cpt", f"{run.save_minutes:.9g}"]
    words += [] if run.settings["launcher"] else ["-ntmpi", str(ranks(run))]
    words += ["-ntomp", str(threads_per_rank(run))]
    for option, name in {**AS_SETTINGS, "-npme": "pme_ranks"}.items():
        words += [option, str(run.settings[name])] if run.settings[name] not in ("", "auto", None) else []
    words += ["-reprod"] if run.settings["exact"] is True else []
    inputs = {word: Path(word).name for word in words_of(run, "inputs")}
    return with_gmxrc(run, [*words, *(inputs.get(word, word) for word in words_of(run, "options"))], base)


def _launcher(run: RunSpec, base: Path) -> list[str]:
    filled = {"{ranks}": str(ranks(run)), "{threads}": str(threads_per_rank(run))}
    words = [filled.get(word, word) for word in words_of(run, "launcher")]
    return [*(whole_path(word, base) for word in words[:1]), *words[1:]]
