"""One run as the configuration describes it, and its identity: what makes it the computation that it is.

Changing a part of the identity makes another computation, which must not resume from this one's checkpoints.  What only
changes the running (time, memory, place, how many checkpoints stay) is no part of it.  Standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unbroken.errors import AbsentFileError
from unbroken.store.checkpoint import Checkpoint, data_digest
from unbroken.store.layout import Format
from unbroken.store.progress import Metric, Progress
from unbroken.system import fs
from unbroken.system.clock import utc_now
from unbroken.system.digests import sha256_of

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


_LONG_TEXT = 60
ACCEPTED = Format()


@dataclass(frozen=True)
class IdentityKeys:
    """List which keys of an engine's settings and of a run are part of the identity, from the engine's schema."""

    value_keys: tuple[str, ...]
    content_keys: tuple[str, ...]
    run_keys: tuple[str, ...]
    # How the work is laid out on the machine: part of the identity too, until the setting `switch_key` is true.
    layout_keys: tuple[str, ...] = ()
    layout_run_keys: tuple[str, ...] = ()
    switch_key: str = ""


_EMPTY = frozenset({"[]", "{}", '""', "", "null", "false"})


@dataclass(frozen=True)
class Identity:
    """Hold the digest and its parts as readable text; `free` parts may differ, `files` are the content of a file."""

    digest: str
    parts: Mapping[str, str]
    free: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict)

    def is_alike(self, other: Mapping[str, str]) -> bool:
        """Return True if nothing differs but what may."""
        return not self._changed(other)

    def differences(self, other: Mapping[str, str]) -> list[str]:
        """Return the parts that differ, one text each: was, is; of a file that it was changed."""
        return [self._difference(name, other.get(name)) for name in self._changed(other)]

    def _changed(self, other: Mapping[str, str]) -> list[str]:
        names = (self.parts.keys() | other.keys()) - self.free
        pairs = ((name, {self.parts.get(name), other.get(name)}) for name in names)
        # What a version before did not know was not asked for: absent is the same as empty.
        return sorted(name for name, said in pairs if len(said) > 1 and not (None in said and said & _EMPTY))

    def _difference(self, name: str, was: str | None) -> str:
        if was and (path := self.files.get(name)) is not None:
            return f"{path} ({name.split()[2]}) was changed"
        return f"{name} was {_short(was, self.parts.get(name))}, is {_short(self.parts.get(name), was)}"


def identity_of(run: RunSpec, keys: IdentityKeys, base: Path = Path()) -> Identity:
    """Return the identity of a run, from the files too that are part of it; raise AbsentFileError if one is gone."""
    layout = _parts(run, keys.layout_keys, keys.layout_run_keys)
    switch = _parts(run, (keys.switch_key,) if keys.switch_key else (), ())
    parts = {"engine": run.engine, **_parts(run, keys.value_keys, keys.run_keys), **layout, **switch}
    files = {f"content of settings.{key} {name}": (key, base / name) for key, name in content_files(run, keys)}
    parts |= {part: _content(run, key, path) for part, (key, path) in files.items()}
    is_open = run.settings.get(keys.switch_key) is True
    free = frozenset(switch) | (frozenset(layout) if is_open else frozenset())
    return Identity(data_digest(parts), parts, free, {part: path for part, (_, path) in files.items()})


def usable_identities(identity: Identity, accepted: Path, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """Return the identities from whose checkpoints a run may resume: its own, those accepted, and those alike."""
    alike = {each.passport.identity for each in checkpoints if identity.is_alike(each.passport.identity_parts)}
    return frozenset({identity.digest, *(entry["was"] for entry in _accepted(accepted)), *alike})


def _parts(run: RunSpec, keys: Iterable[str], run_keys: Iterable[str]) -> dict[str, str]:
    settings = {f"settings.{key}": _text(run.settings.get(key)) for key in keys}
    return {**settings, **{key: _text(run.keys()[key]) for key in run_keys}}


def content_files(run: RunSpec, keys: IdentityKeys) -> Iterator[tuple[str, str]]:
    """Yield the files whose content is part of the identity, with the setting that names each."""
    for key in keys.content_keys:
        value = run.settings.get(key)
        names = value if isinstance(value, (list, tuple)) else [value]
        yield from ((key, str(name)) for name in names if name)


def accept_identity(path: Path, was: str, changes: list[str]) -> None:
    """Note that the run may resume from checkpoints of the identity `was`, what changed, and when."""
    entry = {"was": was, "changes": changes, "accepted_utc": utc_now()}
    ACCEPTED.write(path, {"accepted": [*_accepted(path), entry]})


def _accepted(path: Path) -> list[dict[str, Any]]:
    """Return what was accepted so far; raise FormatError if the file is of another format."""
    try:
        return list(ACCEPTED.read(path)["accepted"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise ACCEPTED.refusal(path, str(error)) from error


def _content(run: RunSpec, key: str, path: Path) -> str:
    try:
        if path.is_dir():
            files = {name.as_posix(): sha256_of(path / name) for name in fs.tree_files(path)}
            return f"sha256 {data_digest(files)}"
        return f"sha256 {sha256_of(path)}"
    except OSError as error:
        raise AbsentFileError([f"runs.{run.name}.settings.{key}: {path}: {error.strerror}"]) from error


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=list)


def _short(text: str | None, other: str | None) -> str:
    """Return the text, or of a long one the place where it differs from the other."""
    if text is None:
        return "absent"
    if len(text) <= _LONG_TEXT:
        return text
    alike = next((at for at, (one, two) in enumerate(zip(text, other or "", strict=False)) if one != two), 0)
    begin = max(0, min(alike - _LONG_TEXT // 3, len(text) - _LONG_TEXT))
    end = begin + _LONG_TEXT
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"
