"""Finds what can be wrong with the settings of replicas, before anything is queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from unbroken.engines.gromacs.command import PLUMED, ranks
from unbroken.engines.gromacs.join import SEGMENTS_TABLE
from unbroken.engines.gromacs.settings import (
    REPLEX,
    RESEED,
    exchange_steps,
    has_replicas,
    replica_names,
    value_behind,
    words_of,
)
from unbroken.runs.run import Run

MULTIDIR = "-multidir"
OF_REPLICAS = (REPLEX, "-nex", RESEED)
# As a folder of checkpoints and results, and as a word of mdrun's command line.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_NOT_TOGETHER = {
    PLUMED: "the files of several PLUMEDs are in no common checkpoint",
    "-hrex": "it needs PLUMED, and the files of several PLUMEDs are in no common checkpoint",
}


def replica_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    """Yield each setting that does not fit the replicas of a run, and what is wrong with it; none without replicas."""
    if not has_replicas(run):
        return
    yield from _name_mistakes(replica_names(run))
    yield from _rank_mistakes(run)
    yield from _exchange_mistakes(run)
    for option, why in _NOT_TOGETHER.items():
        if option in words_of(run, "options"):
            yield "options", f"found {option} beside `replicas`; not possible: {why}; allowed: a run of one simulation"


def _name_mistakes(names: list[str]) -> Iterator[tuple[str, str]]:
    if len(names) < 2:
        yield "replicas", "found 1; allowed: two or more, or `tpr` for one simulation"
    for name, count in Counter(names).items():
        if count > 1:
            yield "replicas", f"found {count} called '{name}'; put each tpr into a folder of its own, as t300/topol.tpr"
        elif not _NAME.fullmatch(name) or name == SEGMENTS_TABLE:
            yield "replicas", f"found one called '{name}'; allowed: a folder of letters, digits and _ . + -, as t300"


def _rank_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    number = len(replica_names(run))
    if ranks(run) % number:
        yield "ranks", f"found {ranks(run)}, but there are {number} replicas; allowed: {number}, or a multiple of it"
    elif not run.settings["launcher"] and not str(run.settings["gmx"]).endswith(("_mpi", "_mpi_d")):
        todo = "gmx: gmx_mpi, and launcher: [mpirun, -np, '{ranks}']"
        yield "launcher", f"is missing: each replica needs a rank of MPI; type for example {todo}"


def _exchange_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    options = words_of(run, "options")
    if REPLEX not in options:
        found = "found none, and replicas that do not exchange save at steps of their own"
        yield "options", f"-replex: {found}; type for example -replex, 500, or make each of them a run (runs_table)"
    elif exchange_steps(run) is None:
        yield "options", f"-replex: found {value_behind(run, REPLEX)}; allowed: a number of steps, 1 or more"
    seed = value_behind(run, RESEED)
    if run.settings["exact"] is True and (seed is None or not seed.isdecimal()):
        why = "mdrun then draws other random numbers for the exchanges at each start, which is not `exact: true`"
        yield "options", f"-reseed: found {seed or 'none'}; {why}; type for example -reseed, 1"
