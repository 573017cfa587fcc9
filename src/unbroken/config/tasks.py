"""Programs of several tasks (MPI ranks): what starts the tasks, and what of it makes no sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from unbroken.config.location import Spot
from unbroken.errors import Mistake
from unbroken.store.run import RunSpec

SRUN = "srun"
_LAUNCHERS = {SRUN, "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "aprun", "jsrun"}
# They become the one program that they are given; a script of the site's own may well start several.
_ENTERING = {"apptainer", "singularity", "podman", "docker", "shifter", "ch-run", "conda", "mamba", "micromamba", "env"}
# What they pass on to every task.  Of TERM and HUP the tasks are killed, of INT nothing or the same comes (measured,
# srun 22.05 and Open MPI 4.1.4).
PASSED_ON = ("USR1", "USR2")
_COUNTS = ("-n", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu")
_THREADS = ("-c", "--cpus-per-task")


def settled_enter(words: Sequence[str] | None, tasks: int, threads: int) -> tuple[str, ...]:
    """Return the words before the program's own; srun, the default for several tasks, with the numbers it needs.

    Snakemake's job step takes Slurm's variables away, and srun alone would start one task on each node (measured,
    snakemake-executor-plugin-slurm-jobstep 0.6.1, Slurm 22.05).
    """
    if words is None:
        words = [SRUN] if tasks > 1 else []
    if tasks == 1 or not words or _name(words[0]) != SRUN:
        return tuple(words)
    own = _options(words[1:])
    numbers = [] if _has(own, _COUNTS) else [f"--ntasks={tasks}"]
    numbers += [] if _has(own, _THREADS) else [f"--cpus-per-task={threads}"]
    return (words[0], *numbers, *words[1:])


def is_launcher(word: str) -> bool:
    """Return True for srun, mpirun and their like, which start a program several times."""
    return _name(word) in _LAUNCHERS


def starts_tasks(run: RunSpec, command: Sequence[str]) -> bool:
    """Return True if a launcher stands between unbroken and the program: in `enter`, or first in its command line."""
    return run.resources.tasks > 1 or any(is_launcher(word) for word in (*run.environment.enter, *command[:1]))


def task_mistakes(run: RunSpec, spot: Spot) -> Iterator[Mistake]:
    """Yield what cannot be meant, on any machine."""
    if run.resources.nodes is not None and run.resources.nodes > run.resources.tasks:
        found = f"found {run.resources.nodes}, but tasks is {run.resources.tasks}, and each node needs one"
        yield Mistake(found, todo=f"type tasks: {run.resources.nodes} or more", where=spot.at("nodes"))
    names = {_name(word) for word in run.environment.enter}
    if (
        run.resources.tasks > 1
        and run.environment.enter
        and _name(run.environment.enter[0]) in _ENTERING
        and not names & _LAUNCHERS
    ):
        found = f"{_name(run.environment.enter[0])} starts the program once, but tasks is {run.resources.tasks}"
        todo = f"put srun before it: enter: [srun, {', '.join(run.environment.enter)}]"
        yield Mistake(found, todo=todo, where=spot.at("enter"))


def mistakes_in_a_step(run: RunSpec) -> Iterator[str]:
    """Yield what cannot work where unbroken itself runs in a step that srun made: on Slurm, with a single task."""
    if (
        run.resources.tasks == 1
        and run.environment.enter
        and _name(run.environment.enter[0]) == SRUN
        and "--overlap" not in run.environment.enter
    ):
        found = "srun with a single task waits for the step in which unbroken itself runs, for ever"
        yield f"runs.{run.name}.enter: {found}; leave srun out, or type tasks: 2 or more"


def mistakes_outside_slurm(run: RunSpec) -> Iterator[str]:
    """Yield what cannot work on a machine without Slurm."""
    if run.resources.tasks > 1 and run.environment.enter and _name(run.environment.enter[0]) == SRUN:
        found = f"found {run.resources.tasks}, and outside Slurm srun cannot start them"
        here = f'type enter: [mpirun, -n, "{run.resources.tasks}"] to start them here'
        yield f"runs.{run.name}.tasks: {found}; {here}, or snakemake --profile slurm for the cluster"


def _name(word: str) -> str:
    return PurePath(word).name


def _options(words: Sequence[str]) -> list[str]:
    """Return the words that may be srun's own: those before another program's name.

    A value may stand apart from its option (`-n 4`), so a program is recognized by what it is known for.
    """
    known = _LAUNCHERS | _ENTERING
    end = next((at for at, word in enumerate(words) if _name(word) in known), len(words))
    return [word for word in words[:end] if word.startswith("-")]


def _has(words: Sequence[str], options: Sequence[str]) -> bool:
    """Return True if an option is there: `-n4`, `-n 4` and `--ntasks=4` all give the number of tasks."""
    short = tuple(option for option in options if len(option) == 2)
    return any(word.startswith(short) or word.partition("=")[0] in options for word in words)
