"""How mdrun ended, by what lies in its folder: which checkpoint counts, and whether the simulation is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.cpt import Cpt
from unbroken.engines.gromacs.log import Log
from unbroken.engines.gromacs.parts import step_of, whole_checkpoints
from unbroken.engines.gromacs.replicas import Left, newest_common
from unbroken.engines.gromacs.tpr import Tpr
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.progress import Handover, Metric, Progress

SECONDS_A_DAY = 86400


@dataclass(frozen=True)
class MdrunEnd:
    """The checkpoint to hand over, None if none is further than the origin; final if the last step is done.

    `earlier` is the one before it in the same part, worth keeping too: should the newest turn out bad one day, minutes
    are lost and not a segment.
    """

    cpt: Cpt | None
    is_final: bool
    earlier: Cpt | None = None


def newest_state(
    folder: Path,
    origin: Checkpoint | None,
    goal: int | None,
    is_over: bool,
    is_usable: Callable[[Cpt], bool] = lambda cpt: True,
) -> MdrunEnd:
    """What to hand over; `is_over` says that mdrun wrote all it had to write.

    A checkpoint that `is_usable` refuses lacks what is needed to resume from it.
    """
    begun = step_of(origin) if origin else -1
    found = newest_common([Left(whole_checkpoints(folder), begun, is_over, is_usable)], goal, None)
    if not found.cpts:
        return MdrunEnd(None, is_final=False)
    return MdrunEnd(found.cpts[0], found.is_final, found.earlier[0] if found.earlier else None)


def handover(ending: MdrunEnd, tpr: Tpr, goal: int | None, log: Log, is_exact: bool) -> Handover:
    """What the passport is to say of a state."""
    if ending.cpt is None:
        raise ValueError("there is no state to hand over")
    cpt = ending.cpt
    metrics: dict[str, Metric] = {"time_ps": round(cpt.time_ps, 6), "part": cpt.part, "is_exact": is_exact}
    if tpr.last_step is not None:
        metrics["extended_ps"] = round(cpt.time_ps - tpr.time_ps(tpr.last_step), 6)
    if log.performance:
        metrics["ns_per_day"] = float(log.performance)
    progress = Progress(cpt.step, goal, "steps", metrics)
    return Handover(progress, is_finished=ending.is_final, versions={"gromacs": log.version or cpt.program})


def live_progress(log: Log, goal: int | None) -> Progress | None:
    """Progress, speed and time left, as mdrun says; None before its first step."""
    if log.step is None or log.time_ps is None:
        return None
    metrics: dict[str, Metric] = {"time_ps": log.time_ps, **_pace(log, goal)}
    return Progress(log.step, goal, "steps", metrics)


def _pace(log: Log, goal: int | None) -> dict[str, Metric]:
    """Nothing before a second step was seen."""
    if log.first is None or log.step is None or log.time_ps is None or log.step == log.first.step:
        return {}
    seconds = max(time.monotonic() - log.first.seen_at, 1e-3)
    steps, time_ps = log.step - log.first.step, log.time_ps - log.first.time_ps
    pace: dict[str, Metric] = {"pace": f"{time_ps / 1000 / seconds * SECONDS_A_DAY:.4g} ns/day"}
    if goal is not None:
        pace["left_seconds"] = round(max(0, goal - log.step) * seconds / steps, 1)
    return pace
