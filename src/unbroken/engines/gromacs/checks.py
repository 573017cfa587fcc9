"""Check the settings of a GROMACS run against each other before anything is queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from unbroken.config.tasks import SRUN
from unbroken.engines.gromacs.command import (
    exchange_steps,
    has_plumed,
    has_replicas,
    inputs_of,
    mdrun_options,
    ranks,
    replica_names,
    words_of,
)
from unbroken.engines.gromacs.join import SEGMENTS_TABLE
from unbroken.engines.gromacs.mdrun_line import AS_SETTINGS, FILES, OF_SEGMENTS, value_of
from unbroken.errors import Mistake
from unbroken.program.python_environment import full_path
from unbroken.store.run import RunSpec

_GOALS = ("goal", "until_ps", "extend_ps")
_SOURCES = ("mdp", "structure", "topology")
_WITH_MDP = ("index", "reference", "fixed_rlist_nm", "grompp_options")
# Given by unbroken; of an option that is given twice mdrun takes the last one.
_OURS = {*OF_SEGMENTS, *FILES, "-s", "-deffnm", "-nsteps", "-ntmpi", "-ntomp", "-nt", "-reprod", "-noreprod"}
_OF_REPLICAS = ("-multidir", "-replex", "-nex", "-reseed")
# What is wrong with an option, after its name.
_REFUSED = {
    "-noconfout": ", but by the last structure one knows that mdrun is done; leave it out",
    "-rerun": "; not possible: it computes energies of a trajectory and has no checkpoint; run it by hand, it is short",
    "-membed": "; not possible: it removes molecules at each start; run it by hand, and give what comes out of it as "
    "the structure",
    "-field": "; not possible: its table has a row for each step; leave it out",
    **{option: f"; type it as the setting `{name}`" for option, name in AS_SETTINGS.items()},
    **dict.fromkeys(_OURS, ", which unbroken sets itself; allowed: other options of mdrun"),
}
_REFUSED_ALONE = dict.fromkeys(_OF_REPLICAS, "; name the tpr of each replica, as replicas: [a/topol.tpr, b/topol.tpr]")
_NO_PLUMED = "not possible: the files of several PLUMEDs are in no common checkpoint; allowed: a run of one simulation"
_REFUSED_OF_REPLICAS = {
    "-multidir": _REFUSED_ALONE["-multidir"],
    **dict.fromkeys(("-plumed", "-hrex"), f" beside `replicas`; {_NO_PLUMED}"),
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
    refused = {**_REFUSED, **(_REFUSED_OF_REPLICAS if has_replicas(run) else _REFUSED_ALONE)}
    given = mdrun_options(run)
    yield from (("options", f"found {option}{refused[option]}") for option in given if option in refused)
    yield from _file_mistakes(run, base)


def _source_mistakes(run: RunSpec) -> Mistakes:
    named = [name for name in _SOURCES if run.settings[name]]
    given = [name for name in ("replicas", "tpr", *_SOURCES, *_WITH_MDP) if run.settings[name]]
    if given[:1] in (["replicas"], ["tpr"]):
        for name in given[1:2]:
            allowed = f"`{given[0]}` alone, or mdp, structure and topology without it"
            yield name, f"does nothing beside `{given[0]}`; allowed: {allowed}"
    elif not named:
        yield "tpr", "is missing; type for example `tpr: topol.tpr`, or mdp, structure and topology for grompp"
    elif missing := [name for name in _SOURCES if name not in named]:
        yield missing[0], f"is missing beside `{named[0]}`; grompp needs mdp, structure and topology"


def _rank_mistakes(run: RunSpec) -> Mistakes:
    number, replicas = ranks(run), len(replica_names(run))
    is_mpi = str(run.settings["gmx"]).endswith(("_mpi", "_mpi_d"))
    threads, tasks = run.resources.threads, run.resources.tasks
    if threads * tasks % number:
        has = f"threads is {threads}" + (f" for each of {tasks} tasks" if tasks > 1 else "")
        yield "ranks", f"found {number}, but {has}; allowed: a number that divides {threads * tasks}"
    if not run.settings["launcher"] and ((is_mpi and number > 1) or has_replicas(run)):
        found = f"{run.settings['gmx']} cannot start {number} ranks of MPI by itself"
        todo = "gmx: gmx_mpi, and launcher: [mpirun, -np, '{ranks}']"
        yield "launcher", f"is missing: {found}; type for example {todo}"
    if number % replicas:
        yield "ranks", f"found {number}, but there are {replicas} replicas; allowed: {replicas}, or a multiple of it"


def _srun_mistakes(run: RunSpec) -> Mistakes:
    """Yield where srun starts ranks: Slurm is asked for `tasks`, and the launcher starts a rank in each."""
    words, tasks, enter = words_of(run, "launcher"), run.resources.tasks, run.environment.enter
    if tasks > 1 and enter and PurePath(enter[0]).name == SRUN:
        found = f"tasks is {tasks}, and srun before everything would start each small tool of gmx as often"
        yield "launcher", f"{found}; type enter: [] in the run, and launcher: [srun, --mpi=pmix, -n, '{{ranks}}']"
    elif tasks == 1 and words and PurePath(words[0]).name == SRUN and "--overlap" not in words:
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
    if "-replex" not in options:
        found = "found none, and replicas that do not exchange save at steps of their own"
        yield "options", f"-replex: {found}; type for example -replex, 500, or make each of them a run (runs_table)"
    elif exchange_steps(run) is None:
        yield "options", f"-replex: found {value_of(options, '-replex')}; allowed: a number of steps, 1 or more"
    if run.settings["exact"] is True and not (seed := value_of(options, "-reseed")).isdecimal():
        why = "mdrun then draws other random numbers for the exchanges at each start, which is not `exact: true`"
        yield "options", f"-reseed: found {seed or 'none'}; {why}; type for example -reseed, 1"


def _file_mistakes(run: RunSpec, base: Path) -> Mistakes:
    """Yield files that mdrun reads in addition to the tpr and would not find in its own folder, and PLUMED's."""
    inputs = words_of(run, "inputs")
    known = {*inputs, *(PurePath(name).name for name in inputs)}
    for word in words_of(run, "options"):
        is_relative = not word.startswith("-") and not PurePath(word).is_absolute()
        if is_relative and word not in known and (base / word).is_file():
            yield "options", f"found {word}, which mdrun does not find in its own folder; type inputs: [{word}]"
    if has_plumed(run):
        name = value_of(mdrun_options(run), "-plumed", "plumed.dat")
        named = next((each for each in inputs if PurePath(each).name == PurePath(name).name), name)
        yield from (("options", line) for line in plumed_mistakes(base / named, inputs_of(run, base)))
    gmxrc = str(run.settings["gmxrc"])
    if gmxrc and not run.environment.enter and not run.environment.container and not full_path(gmxrc, base).is_file():
        found = f"found '{gmxrc}', but there is no such file"
        yield "gmxrc", Mistake(found, "the path of a GMXRC, or leave it out", is_absent=True)


# --- PLUMED's input ---

# The keys of actions that name files which are written, or read.
_KEY = re.compile(r"\b(FILE|\w*WFILE|WALKERS_DIR)=(\{[^}]*\}|\S+)", re.IGNORECASE)
_WALKERS = "not possible: the hills of other walkers are in no checkpoint; allowed: one walker"
_ELSEWHERE = "it would be in no checkpoint; allowed: a name without a folder, and for what PLUMED reads one of `inputs`"


def plumed_mistakes(path: Path, inputs: Mapping[str, Path], seen: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield what PLUMED's input, and what it includes, asks for that cannot be resumed; a missing file asks nothing."""
    if path in seen or not path.is_file():
        return
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        text = line.partition("#")[0]
        for key, value in _KEY.findall(text):
            is_elsewhere = any(PurePath(name).parent != PurePath() for name in value.strip("{}").split(","))
            if key.upper() == "WALKERS_DIR" or is_elsewhere:
                why = _WALKERS if key.upper() == "WALKERS_DIR" else _ELSEWHERE
                yield f"{path}:{number}: found {key}={value}; {why}"
            elif "INCLUDE" in text.upper():
                yield from plumed_mistakes(inputs.get(value, path.parent / value), inputs, (*seen, path))
