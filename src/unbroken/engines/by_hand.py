"""A run's checkpoint as that of a training that is started by hand, in a folder of its own (UNBROKEN_FOLDER)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.export import copied_files, write_script
from unbroken.errors import ConfigError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.passport import Passport
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system import fs

# As a training by hand calls its run (unbroken.training.core.run_directory).
BY_HAND = "training"
_LIBRARIES = ("torch", "tensorflow", "keras")


def is_of_library(checkpoint: Checkpoint) -> bool:
    """True if `unbroken.training` made it: it names the library that trains."""
    return any(name in checkpoint.passport.versions for name in _LIBRARIES)


def exported_training(
    run: Run, base: Path, checkpoint: Checkpoint, command: Sequence[str], threads: int, folder: Path
) -> list[str]:
    """Publishes the checkpoint in the folder as if a training by hand had made it; what to know of it, in lines."""
    if run.tasks > 1 or any(run.settings.get(name, 1) != 1 for name in ("ranks", "workers")):
        raise ConfigError([f"{run.name}: several processes train it, and by hand one alone goes on from such a folder"])
    store = Store(folder / "checkpoints")
    store.root.mkdir()
    draft = store.root / fs.unique_name("export")
    draft.mkdir()
    copied_files(checkpoint, draft, has_passport=False)
    store.publish(draft, _by_hand(checkpoint.passport), lambda: None)
    environment = {"OMP_NUM_THREADS": str(threads)}
    write_script(folder, run, command, environment, {"UNBROKEN_FOLDER": "$here"}, where=str(base.resolve()))
    goal = "" if run.goal is None else f" (in the config it was {run.goal:.10g} {run.settings.get('goal_unit', '')})"
    return [
        f"resume.sh starts the script in {base.resolve()}, by hand, with UNBROKEN_FOLDER: it goes on from here, and "
        "saves here",
        f"the goal is what the script itself says{goal}",
    ]


def _by_hand(passport: Passport) -> Passport:
    """Of no run of a workflow, and the first."""
    own = {name: entry for name, entry in passport.files.items() if not name.startswith("parts/")}
    return replace(
        passport,
        run=BY_HAND,
        engine=BY_HAND,
        segment=1,
        sequence=1,
        token=1,
        parent=None,
        parent_digest=None,
        identity="",
        identity_parts={},
        files=own,
        slurm_job=None,
    )
