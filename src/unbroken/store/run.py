"""One run as the configuration describes it: plain values, standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from unbroken.store.progress import Metric, Progress

# Times in metrics come with six digits after the point.
METRIC_TOLERANCE = 1e-6


@dataclass(frozen=True)
class CopySettings:
    """Say where copies of a run's checkpoints go, how many stay there, and how far apart in time they are at least."""

    folder: str
    keep: int
    every_minutes: float


@dataclass(frozen=True)
class Resources:
    """Hold what each job of a run asks for; defaults are those of a run that no configuration describes."""

    place: str = ""
    threads: int = 1
    tasks: int = 1
    nodes: int | None = None
    mem_mb: int = 0
    memory_growth: float = 1.0
    gpus: int = 0
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gpu_type: str | None = None
    slurm_extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """Hold the environment of a run's program; no part of the identity."""

    modules: tuple[str, ...] = ()
    enter: tuple[str, ...] = ()
    container: str | None = None
    container_options: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    # The key `environment`: tell or strict.
    on_change: str = "tell"

    @property
    def is_entered(self) -> bool:
        """Return True if the program's PATH is another than ours."""
        return bool(self.modules or self.enter or self.has_python)

    @property
    def has_python(self) -> bool:
        """Return True if the Python of the run's environment is meant, not ours."""
        return bool(self.container or self.conda or self.venv)

    @property
    def is_strict(self) -> bool:
        """Return True if nothing may be started in another environment than the last checkpoint was made in."""
        return self.on_change == "strict"


@dataclass(frozen=True)
class RunSpec:
    """A long computation as the configuration describes it; the defaults of its keys are in the schema."""

    name: str
    engine: str
    segments: int
    segment_minutes: float
    settings: Mapping[str, object]
    note: str = ""
    keep: int = 2
    milestone_every: int = 0
    save_minutes: float = 0
    mtbf_hours: float | None = None
    stall_minutes: float | None = None
    first_margin_seconds: float | None = None
    attempts_without_progress: int = 2
    # Goals in metrics of the program, such as {"time_ps": 100.0}: from the settings whose schema names a `goal_metric`.
    metric_goals: Mapping[str, float] = field(default_factory=dict)
    # True if a checkpoint that is so far is the end, as the schema says (`is_counted`); else the program ends the run.
    has_counted_goal: bool = False
    copies: CopySettings | None = None
    # What the user accepts where Slurm can give no `segment_minutes` at once (sbatch --time-min); None: nothing less.
    least_minutes: float | None = None
    resources: Resources = Resources()
    environment: Environment = Environment()

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> RunSpec:
        """Return the run with these keys, named as in a configuration."""
        own = {**keys, "on_change": keys.get("environment", Environment.on_change)}
        resources, environment = (
            kind(**{each.name: own.pop(each.name) for each in fields(kind) if each.name in own})
            for kind in (Resources, Environment)
        )
        return cls(**{**own, "resources": resources, "environment": environment})

    def keys(self) -> dict[str, Any]:
        """Return all keys, named as in a configuration."""
        own = {**vars(self), **vars(self.resources), **vars(self.environment)}
        own["environment"] = own.pop("on_change")
        del own["resources"]
        return own

    def changed(self, **keys: Any) -> RunSpec:
        """Return the run with some keys changed, named as in a configuration."""
        return RunSpec.of({**self.keys(), **keys})

    @property
    def goal(self) -> float | None:
        """Return the goal in the engine's unit; None where only the program itself knows it."""
        goal = self.settings.get("goal")
        return goal if isinstance(goal, (int, float)) else None

    def is_content_with(self, progress: Progress) -> bool:
        """Return False if the goal that the program reached is not so far as the settings want it by now."""
        reached = progress.goal
        if self.goal is not None and reached is not None and self.goal > max(reached, progress.done):
            return False
        return all(_is_there(progress.metrics.get(name), goal) for name, goal in self.metric_goals.items())

    def is_past_goal(self, progress: Progress) -> bool:
        """Return True if a checkpoint made on the way to a further goal has reached the goal that is set by now."""
        goal, is_same_unit = self.goal, progress.unit == self.settings.get("goal_unit", progress.unit)
        return self.has_counted_goal and is_same_unit and goal is not None and progress.done >= goal


def _is_there(value: Metric, goal: float) -> bool:
    """Return True if a rounded metric has reached its goal; a missing one counts as reached."""
    return not isinstance(value, (int, float)) or value >= goal - METRIC_TOLERANCE
