"""Compare a learning rate schedule's length with the goal, and put a new schedule at the place of the saved one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from unbroken.errors import CheckpointError
from unbroken.training.core.position import Course
from unbroken.training.torch.state import only

# What a scheduler sets in the groups of its optimizer.
_SET = ("lr", "initial_lr", "max_lr", "min_lr", "momentum", "base_momentum", "max_momentum", "betas")
# So many values of a function are asked at most for the step from which on it is 0.
_MOST_VALUES = 200_000
# A schedule may be so much shorter than the steps that were counted.
_TOLERANCE = 1.01


class End(NamedTuple):
    """Hold the step at which a scheduler's schedule is over, what happens then, and the argument that sets it."""

    step: int
    after: str
    argument: str


def end_of(scheduler: object, steps: float) -> End | None:
    """Return where a schedule ends; None if it has no end before so many steps, or none that can be known."""
    match scheduler:
        case lr_scheduler.CosineAnnealingLR():
            return End(int(scheduler.T_max), "the learning rate climbs again", "T_max")
        case lr_scheduler.OneCycleLR():
            return End(scheduler.total_steps, "its step() fails", "total_steps")
        case lr_scheduler.PolynomialLR():
            return End(scheduler.total_iters, "the learning rate stays 0", "total_iters")
        case lr_scheduler.LambdaLR():
            return _end_of_function(scheduler, steps)
        case lr_scheduler.SequentialLR():
            begun = scheduler._milestones[-1]
            last = end_of(scheduler._schedulers[-1], steps - begun)
            return last and last._replace(step=begun + last.step)
    return None


def too_short(name: str, scheduler: object, course: Course) -> str:
    """Return a line if a schedule ends before the goal; "" if not."""
    if not isinstance(scheduler, LRScheduler) or not math.isfinite(course.goal):
        return ""
    done = _steps_in(scheduler.state_dict())
    steps = _steps_to_goal(done, course)
    end = end_of(scheduler, steps) if steps else None
    if end is None or steps <= max(end.step + 1, end.step * _TOLERANCE):
        return ""
    at_least, new = "" if done else "at least ", " and Training(..., new_schedule=True)" if course.position.step else ""
    return (
        f"{name} ({type(scheduler).__name__}): its schedule ends after {end.step} steps, and the goal of "
        f"{course.goal:g} {course.unit} takes {at_least}{math.ceil(steps)}; then {end.after}; for a longer schedule "
        f"type {end.argument}=...{new}"
    )


class Replayed:
    """Bring the schedules of the script to the step at which the saved ones were.

    Make it before any state is loaded: then the learning rate is where the schedule begins.
    """

    def __init__(self, parts: Mapping[str, object], states: Mapping[str, Any]) -> None:
        given = only(parts, LRScheduler).items()
        schedulers = {name: each for name, each in given if not isinstance(each, lr_scheduler.ReduceLROnPlateau)}
        for name, scheduler in schedulers.items():
            _replay(name, scheduler, _steps_in(states[name]))
        self._kept = [(each, copy.deepcopy(each.state_dict()), _set_by(each)) for each in schedulers.values()]

    def put_back(self) -> None:
        """Give the schedulers, and the groups of their optimizers, what the schedules of the script say there."""
        for scheduler, state, groups in self._kept:
            scheduler.load_state_dict(state)
            for group, options in zip(scheduler.optimizer.param_groups, groups, strict=True):
                group.update(options)


def _set_by(scheduler: LRScheduler) -> list[dict[str, Any]]:
    """Copy what a scheduler sets in each group of its optimizer."""
    groups = scheduler.optimizer.param_groups
    return [{key: copy.deepcopy(group[key]) for key in _SET if key in group} for group in groups]


def _replay(name: str, scheduler: LRScheduler, steps: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no optimizer has made a step
        try:
            for _ in range(steps):
                scheduler.step()
        except ValueError as error:
            raise CheckpointError(f"Training(state={{{name!r}: ...}}, new_schedule=True): {error}") from error


def _steps_in(state: Mapping[str, Any]) -> int:
    return int(state["last_epoch"]) if "last_epoch" in state else _steps_in(state["_schedulers"][0])


def _steps_to_goal(done: int, course: Course) -> float:
    """Return how many steps of a scheduler the goal takes, judged by those that were made; 0 if unknown."""
    at, goal = course.position, course.goal
    per_epoch = at.batches / course.per_step if at.batches else 0.0
    if course.unit == "steps":
        epochs, steps = (goal / per_epoch if per_epoch else 0.0), goal
    else:
        epochs, steps = goal, goal * per_epoch
    if not at.step or not done:  # it is unknown how often it is called: once an epoch is the least
        return math.floor(epochs) if epochs else 0.0
    if at.epoch and done <= at.epoch + 1:
        return done + max(epochs - at.epoch, 0.0)
    return done + max(steps - at.step, 0.0) * done / at.step


def _end_of_function(scheduler: lr_scheduler.LambdaLR, steps: float) -> End | None:
    """Return the first step from which its functions give 0, as those of transformers do at their end, or None."""
    begun = False
    for step in range(min(math.floor(steps), _MOST_VALUES)):
        values = [function(step) for function in scheduler.lr_lambdas]
        if begun and not any(values):
            return End(step, "the learning rate is no longer that of the schedule", "num_training_steps")
        begun = begun or any(values)
    return None
