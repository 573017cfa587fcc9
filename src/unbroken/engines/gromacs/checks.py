"""What can be wrong with the settings of a GROMACS run taken together, found before anything is queued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

from unbroken.config.tasks import SRUN
from unbroken.engines.gromacs.command import ranks, result_names
from unbroken.engines.gromacs.outputs import BY_KIND
from unbroken.engines.gromacs.plumed import mistakes_in, plumed_input
from unbroken.engines.gromacs.replica_checks import MULTIDIR, OF_REPLICAS, replica_mistakes
from unbroken.engines.gromacs.settings import has_replicas, words_of
from unbroken.errors import Mistake
from unbroken.program.entering import folder_of
from unbroken.runs.run import Run

_GOALS = ("goal", "until_ps", "extend_ps")
_SOURCES = ("mdp", "structure", "topology")
_WITH_MDP = ("index", "reference", "fixed_rlist_nm", "grompp_options")
# What unbroken says itself; said twice, mdrun would take the last one.
_OURS = ("-s", "-cpi", "-cpo", "-deffnm", "-append", "-noappend", "-maxh", "-cpt", "-nsteps", "-cpnum", "-nocpnum")
_OURS_TOO = ("-o", "-x", "-e", "-g", "-c", "-ntmpi", "-ntomp", "-nt", "-reprod", "-noreprod")
_AS_SETTINGS = {"-nb": "nb", "-pme": "pme", "-bonded": "bonded", "-update": "update", "-gpu_id": "gpu_id"}
_NOT_RESUMED = {
    "-rerun": "it computes energies of a trajectory and has no checkpoint; run it by hand, it is short",
    "-membed": "it removes molecules at each start; run it by hand, and give what comes out of it as the structure",
}


def mistakes(run: Run, base: Path) -> Iterator[tuple[str, str | Mistake]]:
    """Yield each setting that does not fit the others, and what is wrong with it."""
    yield from _source_mistakes(run)
    yield from _goal_mistakes(run)
    yield from _layout_mistakes(run)
    yield from _srun_mistakes(run)
    yield from replica_mistakes(run)
    yield from _option_mistakes(run)
    yield from _name_mistakes(run)
    yield from _file_mistakes(run, base)
    gmxrc = str(run.settings["gmxrc"])
    if gmxrc and not run.enter and not run.container and not folder_of(gmxrc, base).is_file():
        found = f"found '{gmxrc}', but there is no such file"
        yield "gmxrc", Mistake(found, "the path of a GMXRC, or leave it out", is_absent=True)


def _source_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    named = [name for name in _SOURCES if run.settings[name]]
    if has_replicas(run):
        extra = [name for name in ("tpr", *_SOURCES, *_WITH_MDP) if run.settings[name]]
        if extra:
            yield extra[0], "does nothing beside `replicas`; allowed: one tpr for each replica, in `replicas` alone"
    elif run.settings["tpr"]:
        extra = [*named, *(name for name in _WITH_MDP if run.settings[name])]
        if extra:
            yield extra[0], "does nothing beside `tpr`; allowed: `tpr` alone, or mdp, structure and topology without it"
    elif not named:
        yield "tpr", "is missing; type for example `tpr: topol.tpr`, or mdp, structure and topology for grompp"
    elif missing := [name for name in _SOURCES if name not in named]:
        yield missing[0], f"is missing beside `{named[0]}`; grompp needs mdp, structure and topology"


def _goal_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    wanted = [name for name in _GOALS if run.settings[name] is not None]
    if len(wanted) > 1:
        yield wanted[1], f"found beside `{wanted[0]}`; allowed: one of goal, until_ps and extend_ps"


def _layout_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    if (threads := run.threads * run.tasks) % ranks(run):
        has = f"threads is {run.threads}" + (f" for each of {run.tasks} tasks" if run.tasks > 1 else "")
        yield "ranks", f"found {ranks(run)}, but {has}; allowed: a number that divides {threads}"
    if str(run.settings["gmx"]).endswith(("_mpi", "_mpi_d")) and ranks(run) > 1 and not run.settings["launcher"]:
        yield (
            "launcher",
            f"is missing: {run.settings['gmx']} cannot start {ranks(run)} ranks by itself; "
            "type for example `launcher: [mpirun, -np, '{ranks}']`",
        )


def _srun_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    """`tasks` is what Slurm is asked for, and the launcher starts the ranks in it."""
    todo = "launcher: [srun, --mpi=pmix, -n, '{ranks}']"
    launcher = run.settings["launcher"]
    words = list(launcher) if isinstance(launcher, (list, tuple)) else []
    if run.tasks > 1 and run.enter and PurePath(run.enter[0]).name == SRUN:
        found = f"tasks is {run.tasks}, and srun before everything would start each small tool of gmx as often"
        yield "launcher", f"{found}; type enter: [] in the run, and {todo}"
    elif run.tasks == 1 and words and PurePath(str(words[0])).name == SRUN and "--overlap" not in words:
        found = "found srun, but tasks is 1: it may wait for ever for the step in which unbroken itself runs"
        yield "launcher", f"{found}; type tasks: {ranks(run)}, threads for each of them, and enter: [] in the run"


def _option_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    options = run.settings["options"]
    for option in options if isinstance(options, (list, tuple)) else ():
        if option == MULTIDIR or (option in OF_REPLICAS and not has_replicas(run)):
            yield "options", f"found {option}; name the tpr of each replica, as replicas: [a/topol.tpr, b/topol.tpr]"
        elif option in _NOT_RESUMED:
            yield "options", f"found {option}; not possible: {_NOT_RESUMED[str(option)]}"
        elif option == "-noconfout":
            yield "options", "found -noconfout, but by the last structure one knows that mdrun is done; leave it out"
        elif option in _AS_SETTINGS:
            yield "options", f"found {option}; type it as the setting `{_AS_SETTINGS[str(option)]}`"
        elif option in _OURS or option in _OURS_TOO:
            yield "options", f"found {option}, which unbroken sets itself; allowed: other options of mdrun"


def _name_mistakes(run: Run) -> Iterator[tuple[str, str]]:
    for kind, name in result_names(run).items():
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix != PurePath(kind).suffix:
            allowed = f"a path below final/ that ends with {PurePath(kind).suffix}"
            yield "options", f"{BY_KIND[kind].option}: found {name}; allowed: {allowed}"


def _file_mistakes(run: Run, base: Path) -> Iterator[tuple[str, str]]:
    """What mdrun reads beside the tpr: it runs in a folder of its own, and PLUMED's files must be found there."""
    options, inputs = words_of(run, "options"), words_of(run, "inputs")
    known = {*inputs, *(PurePath(name).name for name in inputs), *result_names(run).values()}
    for word in options:
        is_relative = not word.startswith("-") and not PurePath(word).is_absolute()
        if is_relative and word not in known and (base / word).is_file():
            yield "options", f"found {word}, which mdrun does not find in its own folder; type inputs: [{word}]"
    if (name := plumed_input(options)) is not None:
        named = next((each for each in inputs if PurePath(each).name == PurePath(name).name), name)
        for line in mistakes_in(base / named):
            yield "options", line
