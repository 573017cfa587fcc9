"""Allow one training for a run, or a folder: a second one in the process would resume from the first's checkpoints.

Folds of a cross-validation in one loop are the usual case.  Standard library alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from unbroken.errors import CheckpointError
from unbroken.program.contract import Kind
from unbroken.training.core.environment import Contract, give_verdict

# This concerns only this process: a training may continue in another process.
_begun: set[tuple[Path, Path | None]] = set()
_finished: set[Path] = set()


def check_run(contract: Contract) -> None:
    """Raise CheckpointError if a training of this process has begun with this contract before."""
    if (contract.save, contract.resume) in _begun:
        _refuse(
            f"this process has a training of the run {contract.run!r} already, and a second one would go on from its "
            "checkpoints; allowed: one in a run; type a run for each (each fold), with args: [...] in its settings"
        )


def note_begun(contract: Contract) -> None:
    """Note that a training has begun with this contract."""
    _begun.add((contract.save, contract.resume))


def check_folder(folder: Path) -> None:
    """Raise CheckpointError if a training of this process has come to its end in the folder."""
    if folder.absolute() in _finished:
        _refuse(
            f"{folder}: this process has finished a training there, and a second one would go on from its end; type "
            "Training(folder=...) with a folder for each (each fold), or start a new process to go on with it"
        )


def note_finished(folder: Path) -> None:
    """Note that a training has come to its end in the folder."""
    _finished.add(folder.absolute())


def _refuse(message: str) -> NoReturn:
    give_verdict(Kind.HOPELESS, message)
    raise CheckpointError(message)
