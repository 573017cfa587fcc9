"""Check the settings of a GROMACS run against each other before anything is queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

from unbroken.config.tasks import SRUN
from unbroken.engines.gromacs.command import (
    exchange_steps,
    has_plumed,
    has_replicas,
    mdrun_options,
    ranks,
    replica_names,
    words_of,
)
from unbroken.engines.gromacs.join import SEGMENTS_TABLE
from unbroken.engines.gromacs.mdrun_line import (
    AS_SETTINGS,
    OF_SEGMENTS,
    named_files,
    value_of,
    words_in,
)
from unbroken.engines.gromacs.outputs import BY_KIND, MAY_BE_NAMED
from unbroken.engines.gromacs.plumed import DEFAULT_NAME, mistakes_in
from unbroken.errors import Mistake
from unbroken.program.entering import folder_of
from unbroken.runs.run import RunSpec

_GOALS = ("goal", "until_ps", "extend_ps")
_SOURCES = ("mdp", "structure", "topology")
_WITH_MDP = ("index", "reference", "fixed_rlist_nm", "grompp_options")
# Given by unbroken; of an option that is given twice mdrun takes the last one.
_OURS = OF_SEGMENTS | {"-s", "-deffnm", "-nsteps", "-o", "-x", "-e", "-g", "-c", "-ntmpi", "-ntomp", "-nt"}
_OURS |= {"-reprod", "-noreprod"}
_REFUSED = {
    "-noconfout": ", but by the last structure one knows that mdrun is done; leave it out",
    "-rerun": "; not possible: it computes energies of a trajectory and has no checkpoint; run it by hand, it is short",
    "-membed": "; not possible: it removes molecules at each start; run it by hand, and give what comes out of it as "
    "the structure",
    **{option: f"; type it as the setting `{name}`" for option, name in AS_SETTINGS.items()},
    **dict.fromkeys(_OURS, ", which unbroken sets itself; allowed: other options of mdrun"),
}
_NOT_TOGETHER = {
    "-plumed": "the files of several PLUMEDs are in no common checkpoint",
    "-hrex": "it needs PLUMED, and the files of several PLUMEDs are in no common checkpoint",
}
# As a folder of checkpoints and results, and as a word of mdrun's command line.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
# Each setting that does not fit the others, and what is wrong with it.
Mistakes = Iterator[tuple[str, str | Mistake]]


def mistakes(run: RunSpec, base: Path) -> Mistakes:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    yield from _source_mistakes(run)
    if len(wanted := [name for name in _GOALS if run.settings[name] is not None]) > 1:
        yield wanted[1], f"found beside `{wanted[0]}`; allowed: one of goal, until_ps and extend_ps"
    yield from _rank_mistakes(run)
    yield from _srun_mistakes(run)
    if has_replicas(run):
        yield from _replica_mistakes(run)
    yield from _option_mistakes(run)
    yield from _file_mistakes(run, base)
    gmxrc = str(run.settings["gmxrc"])
    if gmxrc and not run.environment.enter and not run.environment.container and not folder_of(gmxrc, base).is_file():
        found = f"found '{gmxrc}', but there is no such file"
        yield "gmxrc", Mistake(found, "the path of a GMXRC, or leave it out", is_absent=True)


def _source_mistakes(run: RunSpec) -> Mistakes:
    named = [name for name in _SOURCES if run.settings[name]]
    with_mdp = [*named, *(name for name in _WITH_MDP if run.settings[name])]
    if has_replicas(run):
        if extra := [*(["tpr"] if run.settings["tpr"] else []), *with_mdp]:
            yield extra[0], "does nothing beside `replicas`; allowed: one tpr for each replica, in `replicas` alone"
    elif run.settings["tpr"]:
        if with_mdp:
            allowed = "`tpr` alone, or mdp, structure and topology without it"
            yield with_mdp[0], f"does nothing beside `tpr`; allowed: {allowed}"
    elif not named:
        yield "tpr", "is missing; type for example `tpr: topol.tpr`, or mdp, structure and topology for grompp"
    elif missing := [name for name in _SOURCES if name not in named]:
        yield missing[0], f"is missing beside `{named[0]}`; grompp needs mdp, structure and topology"


def _rank_mistakes(run: RunSpec) -> Mistakes:
    number, replicas = ranks(run), len(replica_names(run))
    is_mpi = str(run.settings["gmx"]).endswith(("_mpi", "_mpi_d"))
    if (threads := run.resources.threads * run.resources.tasks) % number:
        has = f"threads is {run.resources.threads}" + (
            f" for each of {run.resources.tasks} tasks" if run.resources.tasks > 1 else ""
        )
        yield "ranks", f"found {number}, but {has}; allowed: a number that divides {threads}"
    if is_mpi and number > 1 and not run.settings["launcher"]:
        found = f"{run.settings['gmx']} cannot start {number} ranks by itself"
        yield "launcher", f"is missing: {found}; type for example `launcher: [mpirun, -np, '{{ranks}}']`"
    if number % replicas:
        yield "ranks", f"found {number}, but there are {replicas} replicas; allowed: {replicas}, or a multiple of it"
    elif has_replicas(run) and not run.settings["launcher"] and not is_mpi:
        todo = "gmx: gmx_mpi, and launcher: [mpirun, -np, '{ranks}']"
        yield "launcher", f"is missing: each replica needs a rank of MPI; type for example {todo}"


def _srun_mistakes(run: RunSpec) -> Mistakes:
    """Yield where srun starts ranks: Slurm is asked for `tasks`, and the launcher starts a rank in each."""
    todo = "launcher: [srun, --mpi=pmix, -n, '{ranks}']"
    words = words_of(run, "launcher")
    if run.resources.tasks > 1 and run.environment.enter and PurePath(run.environment.enter[0]).name == SRUN:
        found = (
            f"tasks is {run.resources.tasks}, and srun before everything would start each small tool of gmx as often"
        )
        yield "launcher", f"{found}; type enter: [] in the run, and {todo}"
    elif run.resources.tasks == 1 and words and PurePath(words[0]).name == SRUN and "--overlap" not in words:
        found = "found srun, but tasks is 1: it may wait for ever for the step in which unbroken itself runs"
        yield "launcher", f"{found}; type tasks: {ranks(run)}, threads for each of them, and enter: [] in the run"


def _replica_mistakes(run: RunSpec) -> Mistakes:
    names, options = replica_names(run), mdrun_options(run)
    if len(names) < 2:
        yield "replicas", "found 1; allowed: two or more, or `tpr` for one simulation"
    for name, count in Counter(names).items():
        if count > 1:
            yield "replicas", f"found {count} called '{name}'; put each tpr into a folder of its own, as t300/topol.tpr"
        elif not _NAME.fullmatch(name) or name == SEGMENTS_TABLE:
            yield "replicas", f"found one called '{name}'; allowed: a folder of letters, digits and _ . + -, as t300"
    given = [option for option, _ in options]
    if "-replex" not in given:
        found = "found none, and replicas that do not exchange save at steps of their own"
        yield "options", f"-replex: {found}; type for example -replex, 500, or make each of them a run (runs_table)"
    elif exchange_steps(run) is None:
        yield "options", f"-replex: found {value_of(options, '-replex')}; allowed: a number of steps, 1 or more"
    if run.settings["exact"] is True and not (seed := value_of(options, "-reseed")).isdecimal():
        why = "mdrun then draws other random numbers for the exchanges at each start, which is not `exact: true`"
        yield "options", f"-reseed: found {seed or 'none'}; {why}; type for example -reseed, 1"
    for option, why in _NOT_TOGETHER.items():
        if option in given:
            yield "options", f"found {option} beside `replicas`; not possible: {why}; allowed: a run of one simulation"


def _option_mistakes(run: RunSpec) -> Mistakes:
    for option, _ in mdrun_options(run):
        if option == "-multidir" or (option in ("-replex", "-nex", "-reseed") and not has_replicas(run)):
            yield "options", f"found {option}; name the tpr of each replica, as replicas: [a/topol.tpr, b/topol.tpr]"
        elif option in _REFUSED:
            yield "options", f"found {option}{_REFUSED[option]}"
    for kind, name in named_files(mdrun_options(run)).items():
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix != PurePath(kind).suffix:
            allowed = f"a path below final/ that ends with {PurePath(kind).suffix}"
            yield "options", f"{BY_KIND[kind].option}: found {name}; allowed: {allowed}"


def _file_mistakes(run: RunSpec, base: Path) -> Mistakes:
    """Yield files that mdrun reads in addition to the tpr and would not find in its own folder, and PLUMED's."""
    options, inputs = mdrun_options(run), words_of(run, "inputs")
    known = {*inputs, *(PurePath(name).name for name in inputs)}
    for word in words_in(options, MAY_BE_NAMED):
        is_relative = not word.startswith("-") and not PurePath(word).is_absolute()
        if is_relative and word not in known and (base / word).is_file():
            yield "options", f"found {word}, which mdrun does not find in its own folder; type inputs: [{word}]"
    if has_plumed(run):
        name = value_of(options, "-plumed", DEFAULT_NAME)
        named = next((each for each in inputs if PurePath(each).name == PurePath(name).name), name)
        for line in mistakes_in(base / named):
            yield "options", line
