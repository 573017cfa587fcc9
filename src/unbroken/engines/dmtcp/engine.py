"""Start the supervisor of DMTCP, which keeps the contract for a program that does not know it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from unbroken.engines.base import Engine, Task, When
from unbroken.engines.dmtcp import checks
from unbroken.engines.dmtcp.protocol import LEAVING, WHY, supervisor_command
from unbroken.engines.imports import ImportedFiles, ImportSource
from unbroken.engines.starter import Starter, as_yaml, in_own_folder, run_name
from unbroken.errors import ConfigError, SegmentError
from unbroken.program.handover import HandedOver, ready_states
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.run import RunSpec

# hwloc looks at disks through udev, which DMTCP cannot save; without that, gmx and many MPI programs can be saved.
HWLOC = {"HWLOC_COMPONENTS": "-linuxio"}
_TIED = "they can be resumed only in the folder in which they were made"
_NO_DMTCP = "dmtcp_launch is not on the PATH: `modules:` or `dmtcp:` (its folder)"
_NO_PROGRAM = "init dmtcp: which program? type for example: unbroken init dmtcp -- python3 simulate.py 2000"


class DmtcpEngine(Engine):
    """Run any process under `dmtcp_launch`; one object serves one attempt, and those that it saves from."""

    name = "dmtcp"
    fits_container = False
    is_tied_to_its_folder = True  # an image remembers the paths of all its files

    def starters(self, words: Sequence[str], *, is_named: bool) -> Iterator[Starter]:
        """Yield a run for the command line, if DMTCP was asked for; files that it names become inputs."""
        if not is_named:
            return
        if not words:
            raise ConfigError([_NO_PROGRAM])
        command, files = in_own_folder(self.base, words)
        settings = [f"command: {as_yaml(command)}"]
        settings += [f"inputs: {as_yaml(files)}"] if files else []
        todo = () if shutil.which("dmtcp_launch") else (_NO_DMTCP,)
        name = run_name(PurePath(files[0] if files else words[0]).stem, "run")
        yield Starter(name, "", tuple(settings), todo=todo)

    def mistakes(self, run: RunSpec) -> Iterator[tuple[str, str]]:
        return checks.mistakes(run, self.base)

    def import_files(self, run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
        """Refuse: images name the files of their program, and those next to them, by whole paths."""
        raise ConfigError([f"{run.name}: engine dmtcp imports no images: {_TIED}"])

    def export(self, run: RunSpec, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Refuse: images name the files of their program, and those next to them, by whole paths."""
        raise ConfigError([f"{run.name}: engine dmtcp exports no images: {_TIED}; they are in {checkpoint.folder}"])

    def progress_evidence(self, run: RunSpec, checkpoint: Path) -> str:
        return "the seconds that it worked; the program is not asked"

    def command(self, task: Task) -> list[str]:
        return supervisor_command(task.run, self.base, task.run_folder)

    def environment(self, task: Task) -> dict[str, str]:
        """Return the supervisor's environment.  The program sees only the number of threads and hwloc's setting."""
        hwloc = {name: os.environ.get(name, value) for name, value in HWLOC.items()}
        return {**hwloc, **super().environment(task)}

    def leaving_since(self, task: Task) -> float | None:
        """Return when the supervisor began its last save, or None if it has not."""
        try:
            return float((task.attempt_folder.root / LEAVING).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def states(self, task: Task, when: When) -> list[HandedOver]:
        """Return what was saved.  Raise SegmentError with the supervisor's line if it is gone and saved nothing."""
        if when in (When.WORKS, When.KILLED):
            return super().states(task, when)
        found = ready_states(task.attempt_folder)
        why = task.attempt_folder.root / WHY
        if not found and why.exists():
            raise SegmentError(f"{why.read_text().strip()}", run=task.run.name)
        return found
