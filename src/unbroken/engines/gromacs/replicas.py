"""Find the checkpoints of replicas that belong together, and what mdrun cannot resume of them.

Replicas that exchange do not save at the same step: one that has just exchanged saves at its next step, another at its
next search of neighbors.  Between two exchanges each of them is by itself, so checkpoints belong together if the same
exchange comes next; this is what mdrun compares, too, when it resumes [GROMACS, src/gromacs/mdrun/replicaexchange.cpp].
In the step of an exchange mdrun writes the checkpoint first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbroken.engines.gromacs.command import exchange_steps, mdrun_options
from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.mdrun_line import value_of
from unbroken.engines.gromacs.pieces import Leaving, structure_of
from unbroken.engines.gromacs.tpr import Simulation
from unbroken.errors import SegmentError

# mdrun may raise nstlist up to this where a buffer follows it [GROMACS, src/gromacs/taskassignment, nstlistWithGpu].
_LONGEST_LIST = 100


@dataclass(frozen=True)
class CommonEnd:
    """Hold a checkpoint of each simulation, and those before them; none where nothing newer belongs together."""

    cpts: tuple[Cpt, ...] = ()
    earlier: tuple[Cpt, ...] = ()
    is_final: bool = False


# Checkpoints belong together that are all at the goal, or none of them, and have the same exchange before them.
_Moment = tuple[bool, int]


def newest_common(left: Sequence[Leaving], goal: int | None, every: int | None) -> CommonEnd:
    """Return the newest checkpoints that belong together; `every` are the steps between two exchanges.

    A checkpoint at the goal does not yet mean that the last frame and the structure are written, which come after it:
    without them the one before counts, and the last steps are made again.  A structure alone proves nothing.
    """
    found = _sets(left, goal, every)
    (at_goal, _), newest = next(found, ((False, 0), ()))
    before = (cpts for (is_at_goal, _), cpts in found if not is_at_goal and _is_before(cpts, newest))
    return CommonEnd(newest, next(before, ()), is_final=at_goal)


def _sets(left: Sequence[Leaving], goal: int | None, every: int | None) -> Iterator[tuple[_Moment, tuple[Cpt, ...]]]:
    """Yield the checkpoints of each moment that all simulations have, newest first."""
    found = [_by_moment(each, goal, every) for each in left]
    for moment in sorted(set.intersection(*(set(each) for each in found)), reverse=True):
        yield moment, tuple(cpts[moment] for cpts in found)


def _by_moment(left: Leaving, goal: int | None, every: int | None) -> dict[_Moment, Cpt]:
    """Return the newest checkpoint of each moment."""
    found: dict[_Moment, Cpt] = {}
    for cpt in left.cpts:
        is_at_goal = goal is not None and cpt.step >= goal
        is_complete = left.is_over and (cpt.path.parent / structure_of(cpt)).is_file()
        if is_complete if is_at_goal else cpt.step > left.begun:
            found.setdefault((is_at_goal, -(-cpt.step // every) if every else cpt.step), cpt)
    return found


def _is_before(earlier: Sequence[Cpt], later: Sequence[Cpt]) -> bool:
    """Return True for checkpoints of the same part: from others pieces would have to be moved apart."""
    pairs = zip(earlier, later, strict=True)
    return all(one.step < other.step and one.part == other.part for one, other in pairs)


def check_replicas(simulations: Sequence[Simulation]) -> None:
    """Raise SegmentError if mdrun cannot compute, save or resume these simulations together."""
    run = simulations[0].run
    if (every := exchange_steps(run)) is None:
        return
    where = f"runs.{run.name}.settings"
    ends = {each.replica: each.end_step for each in simulations}
    if len(set(ends.values())) > 1:
        found = ", ".join(f"{name} at step {step}" for name, step in ends.items())
        raise SegmentError(f"{where}.replicas: they end at different steps ({found}); type goal: STEP for all of them")
    if sharing := next((each.replica for each in simulations if each.tpr.shares_bias), None):
        raise SegmentError(
            f"{where}.replicas: the tpr of {sharing} has awh-share-multisim = yes; not possible: replicas that "
            "exchange save at different steps, and mdrun resumes a shared bias only at one; allowed: "
            "awh-share-multisim = no"
        )
    if every <= (longest := max(_longest_list(each) for each in simulations)):
        shorter = f'[-replex, "{every}", -nstlist, "{max(1, every // 2)}"]'
        raise SegmentError(
            f"{where}.options: found -replex {every}, but mdrun may search neighbors every {longest} steps only, and "
            "then its replicas wait for each other for ever when they save or stop; allowed: "
            f"-replex {longest + 1} or more, or -nstlist below it, as {shorter}"
        )


def _longest_list(simulation: Simulation) -> int:
    """Return the most steps between two searches of neighbors: mdrun may raise nstlist."""
    tpr, named = simulation.tpr, value_of(mdrun_options(simulation.run), "-nstlist")
    wanted = int(named) if named.isdecimal() else 0
    if tpr.buffer_tolerance <= 0:
        return max(tpr.list_steps, wanted)
    return wanted or max(tpr.list_steps, _LONGEST_LIST)
