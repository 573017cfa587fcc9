"""What Snakemake does again for every job with the same result, done once; nothing here changes a plan.

Each part is used only where Snakemake's text is the one that was read (9.27.1): of any other release it is left as it
is, and only slower.  tests/unit/test_snakemake_inside.py compares the plans with and without.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

# The sha256 of the source, its first 16 digits.
_READ = {
    "get_function_params": "ffd80f63645293c3",
    "Resource.evaluate": "3c11c1b2a9f52625",
    "ScriptProcessor.process_job": "168fffa9284a4cdf",
    "AttributeGuard": "4682d91c4ec67bd8",
}


def quicken() -> list[str]:
    """Changes what it knows, in a process of Snakemake; the names of what this release has otherwise."""
    if "snakemake.workflow" not in sys.modules:
        return []
    from snakemake import common, dag, iocontainers, resources

    found = {
        "get_function_params": common.get_function_params,
        "Resource.evaluate": resources.Resource.evaluate,
        "ScriptProcessor.process_job": dag.ScriptProcessor.process_job,
        "AttributeGuard": iocontainers.AttributeGuard,
    }
    other = [name for name, inside in found.items() if not hasattr(inside, _OURS) and _digest(inside) != _READ[name]]
    if not {"get_function_params", "Resource.evaluate"} & set(other):
        _note_parameters(resources.Resource)
    if "ScriptProcessor.process_job" not in other:
        _look_once_at_each_script(dag.ScriptProcessor)
    if "AttributeGuard" not in other:
        _share_guards(iocontainers.AttributeGuard)
    return other


_OURS = "_is_of_unbroken"


def _digest(inside: Any) -> str:
    try:
        return hashlib.sha256(inspect.getsource(inside).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return "no source"


def _note_parameters(resource: Any) -> None:
    """Of the method by which each resource of each job is evaluated; Snakemake looks for such a note first."""
    _, *others = inspect.signature(resource.evaluate).parameters.items()
    resource.evaluate._overwrite_params = dict(others)


def _look_once_at_each_script(processor: Any) -> None:
    """Snakemake reads a rule's script for each job, to see that it is there; one without wildcards is one file."""
    look: Callable[[Any, Any], None] = processor.process_job
    if hasattr(look, _OURS):
        return

    def process_job(self: Any, job: Any) -> None:
        script = str(getattr(job.rule, self.script_type))
        seen = self.__dict__.setdefault("_seen_by_unbroken", set())
        if "{" in script or (job.rule.name, script) not in seen:
            look(self, job)
            seen.add((job.rule.name, script))

    setattr(process_job, _OURS, True)
    processor.process_job = process_job


def _share_guards(guard: Any) -> None:
    """Two of them stand in each list of files, wildcards and resources of each job, all alike."""
    shared: dict[str, Any] = {}

    def new(kind: Any, *name: str) -> Any:
        # Without a name: a copy, which is filled afterwards.
        if kind is not guard or len(name) != 1:
            return object.__new__(kind)
        return shared.setdefault(name[0], object.__new__(kind))

    guard.__new__ = staticmethod(new)
    setattr(guard, _OURS, True)
