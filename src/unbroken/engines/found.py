"""Find the installed engines: each has an entry point of the group `unbroken.engines`, in any installed package.

    [project.entry-points."unbroken.engines"]
    mine = "my_package.engine:MyEngine"

The name is what a run has under `engine:`.  The file `schema.yaml` next to the module describes the engine's settings.
Finding an engine imports its package, not its module: the plan of a run loads that one's engine alone.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from unbroken.config.load import read_runs
from unbroken.config.location import Entry
from unbroken.config.package_files import install_line, workflow_folder
from unbroken.config.schema import Schemas, load_schemas, schema_mistake
from unbroken.engines.base import Engine
from unbroken.errors import ConfigError, Mistake
from unbroken.presets.runs import with_preset
from unbroken.program import environment
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import RunOutput
from unbroken.store.run import RunSpec

GROUP = "unbroken.engines"
SCHEMA = "schema.yaml"
_OURS = "unbroken.engines."


@dataclass(frozen=True)
class FoundEngine:
    """Describe an engine of an installed package; `is_ours` if that is unbroken, whose engines have their own rules."""

    name: str
    module: str
    attribute: str
    package: str

    @property
    def is_ours(self) -> bool:
        return self.module.startswith(_OURS)

    @property
    def schema(self) -> Path:
        """Return the path of the settings' schema; raise ConfigError if it is not next to the module, or is invalid."""
        try:
            spec = importlib.util.find_spec(self.module)
        except ImportError:  # a package above it is missing
            spec = None
        if spec is None or spec.origin is None:
            raise ConfigError([f"{self._where}: there is no module {self.module}; install {self.package} again"])
        path = Path(spec.origin).with_name(SCHEMA)
        if not path.is_file():
            raise ConfigError([f"{self._where}: {path} is missing; it has to describe the settings of the engine"])
        # Tests look at ours; what another package brings would end every run, of whatever engine, by a traceback.
        if not self.is_ours and (wrong := schema_mistake(path)):
            raise ConfigError([f"{self._where}: {path} {wrong}"])
        return path

    def load(self, base: Path) -> Engine:
        """Return the engine for the folder in which snakemake was started; raise ConfigError if it is none."""
        try:
            made = getattr(importlib.import_module(self.module), self.attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError([f"{self._where}: {error}"]) from error
        if not isinstance(made, type) or not issubclass(made, Engine):
            raise ConfigError([f"{self._where}: {self.attribute} is no subclass of unbroken.engines.base.Engine"])
        if lacking := sorted(getattr(made, "__abstractmethods__", ())):
            raise ConfigError([f"{self._where}: {self.attribute} lacks {', '.join(lacking)}"])
        if getattr(made, "name", None) != self.name:
            raise ConfigError(
                [f"{self._where}: {self.attribute}.name is {getattr(made, 'name', None)!r}, allowed: {self.name!r}"]
            )
        return made(base)

    @property
    def _where(self) -> str:
        return f"engine {self.name} of the package {self.package} ({self.module}:{self.attribute})"


@functools.cache
def found_engines() -> Mapping[str, FoundEngine]:
    """Return the engines by name, in alphabetical order; raise ConfigError if two share a name, or ours are missing."""
    found: dict[str, FoundEngine] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        engine = _found(point)
        other = found.setdefault(engine.name, engine)
        if (other.module, other.attribute) != (engine.module, engine.attribute):
            raise ConfigError(
                [f"engine {engine.name}: both {other.package} and {engine.package} bring one; uninstall one of them"]
            )
    if not any(engine.is_ours for engine in found.values()):
        raise ConfigError([f"no engine is found, not even unbroken's own; type: {install_line('--force-reinstall')}"])
    return found


def _found(point: EntryPoint) -> FoundEngine:
    module, _, attribute = point.value.partition(":")
    return FoundEngine(point.name, module.strip(), attribute.strip(), point.dist.name if point.dist else "unknown")


@functools.cache
def known_schemas() -> Schemas:
    """Return the schemas of the configuration, with the settings of every installed engine."""
    engines = {name: engine.schema for name, engine in found_engines().items()}
    return replace(load_schemas(workflow_folder() / "schemas", engines), with_preset=with_preset)


def engine_of(run: RunSpec, base: Path) -> Engine:
    """Return the engine of a run."""
    return found_engines()[run.engine].load(base)


def outputs_of(checkpoint: Checkpoint) -> Sequence[RunOutput]:
    """Return what belongs to a checkpoint and lies outside of it; raise ConfigError if its engine is not installed."""
    name = checkpoint.passport.engine
    if name not in found_engines():
        raise ConfigError([f"{checkpoint.folder}: engine {name} is not installed here; install the package of it"])
    return found_engines()[name].load(Path()).outputs(checkpoint)


def read_checked_runs(config: Mapping[str, object], base: Path) -> tuple[RunSpec, ...]:
    """Return the runs of a configuration; raise ConfigError with all mistakes, also those that only engines find."""
    return read_runs(config, known_schemas(), base, own_mistakes)


def own_mistakes(entry: Entry, run: RunSpec, base: Path) -> Iterator[Mistake]:
    """Yield what the engine of a run finds in its settings, and what it cannot be started in."""
    engine = engine_of(run, base)
    for key, mistake in environment.mistakes(run, base):
        yield mistake.at(entry.spot.at(key))
    if run.environment.container and not engine.fits_container:
        why = f"engine {engine.name} starts the Python of unbroken, which is not in it"
        found = f"found '{run.environment.container}', but {why}"
        yield Mistake(found, todo="leave it out", where=entry.spot.at("container"))
    for setting, text in engine.mistakes(run):
        mistake = Mistake(text) if isinstance(text, str) else text
        yield mistake.at(entry.spot.at("settings", setting))
