"""The command line of mdrun."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unbroken.engines.gromacs.outputs import STEM, names_apart, without_names
from unbroken.engines.gromacs.settings import has_replicas, replica_names, words_of
from unbroken.engines.gromacs.tool import program_of, whole_path, with_gmxrc
from unbroken.runs.run import Run

CPT = f"{STEM}.cpt"
PLUMED = "-plumed"
EXTENDED_TPR = "extended.tpr"
# In the folder of each replica, a link to the checkpoint from which it resumes.
ORIGIN_CPT = "origin.cpt"
# mdrun leaves at this share of -maxh [GROMACS, src/gromacs/mdlib/stophandler.cpp].
MAXH_SHARE = 0.99
# `-maxh 0` means no limit at all; with this one mdrun leaves after its first few steps.
LEAST_MAXH = 1e-6
_LAYOUT = ("nb", "pme", "bonded", "update", "gpu_id")


def mdrun_command(run: Run, tpr: Path, cpt: Path | None, seconds: float, base: Path = Path()) -> list[str]:
    """Return mdrun on `tpr` from the checkpoint `cpt`, to leave after `seconds`; all outputs go to where it is started.

    Of replicas these are the names that each of them finds in its own folder.
    """
    launcher = [*(whole_path(word, base) for word in _launcher(run)[:1]), *_launcher(run)[1:]]
    words = [*launcher, program_of(run, "gmx", base), "-quiet", "mdrun"]
    words += ["-multidir", *replica_names(run)] if has_replicas(run) else []
    read = [("-s", tpr), *([("-cpi", cpt)] if cpt is not None else [])]
    for option, path in read:
        words += [option, str(path) if has_replicas(run) else str(path.resolve())]
    words += ["-cpo", CPT, "-deffnm", STEM, "-noappend", *names_apart(words_of(run, "options"))]
    words += ["-maxh", f"{maxh(seconds):.9f}", "-cpt", f"{run.save_minutes:.9g}"]
    words += [] if launcher else ["-ntmpi", str(ranks(run))]
    words += ["-ntomp", str(threads_per_rank(run)), *_layout(run.settings)]
    words += ["-reprod"] if run.settings["exact"] is True else []
    return with_gmxrc(run, [*words, *options_of(run)], base)


def options_of(run: Run) -> list[str]:
    """Return the user's options as mdrun gets them: inputs by their last names, outputs left out."""
    inputs = {word: Path(word).name for word in words_of(run, "inputs")}
    return [inputs.get(word, word) for word in without_names(words_of(run, "options")).words]


def result_names(run: Run) -> dict[str, str]:
    """Return the names that the user's options give to results, by the ends of their names here."""
    return without_names(words_of(run, "options")).names


def has_plumed(run: Run) -> bool:
    """Return True if mdrun loads PLUMED, whose files are needed to resume."""
    return PLUMED in words_of(run, "options")


def maxh(seconds: float) -> float:
    """Hours for -maxh, so that mdrun begins to leave after `seconds`; never 0, which would mean without end."""
    return max(seconds / 3600 / MAXH_SHARE, LEAST_MAXH)


def ranks(run: Run) -> int:
    """How many ranks work together."""
    number = run.settings["ranks"]
    return number if isinstance(number, int) else 1


def threads_per_rank(run: Run) -> int:
    """OpenMP threads of each rank; the ranks share what the run has, `threads` for each of its `tasks`."""
    return max(1, run.threads * run.tasks // ranks(run))


def _launcher(run: Run) -> list[str]:
    places = {"{ranks}": str(ranks(run)), "{threads}": str(threads_per_rank(run))}
    return [places.get(word, word) for word in words_of(run, "launcher")]


def _layout(settings: Mapping[str, object]) -> list[str]:
    chosen = [(name, settings[name]) for name in _LAYOUT if settings[name] not in ("", "auto")]
    words = [word for name, value in chosen for word in (f"-{name}", str(value))]
    separate = settings["pme_ranks"]
    return [*words, "-npme", str(separate)] if isinstance(separate, int) else words
