"""A training whole and in pieces, each with a folder of its own, in this process: stops are real signals."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from support.telling import begin_as_a_new_process

from unbroken.training.torch import seed_everything

Trap = Callable[[], None]
# Trains in the folder, calls the trap in each batch, and returns what is compared.
Program = Callable[[Path, Trap], Any]


def whole_and_pieces(program: Program, root: Path, stops: Sequence[int]) -> tuple[Any, Any]:
    """What the program returns in one piece, and in pieces that are stopped in these steps of the whole."""
    counted = [0]
    return _piece(program, root / "whole", counted, None), pieces(program, root / "pieces", stops)


def pieces(program: Program, folder: Path, stops: Sequence[int], *, is_ended: bool = True) -> Any:
    """What the program returns after it was stopped in these steps of the whole; None if it is left there."""
    counted, found = [0], None
    for at in [*stops, *([None] if is_ended else [])]:
        found = _piece(program, folder, counted, at)
        assert (found is None) == (at is not None), f"stop at {at}: it came to {counted[0]}"
    return found


def _piece(program: Program, folder: Path, counted: list[int], at: int | None) -> Any:
    def trap() -> None:
        counted[0] += 1
        stop(at, counted[0])

    begin_as_a_new_process()
    torch.set_num_threads(1)
    seed_everything(0)
    try:
        return program(folder, trap)
    except SystemExit as leaving:
        assert leaving.code == 85, leaving.code
        return None


def stop(when: float | None, now: float) -> None:
    """Send the signal to stop if it is time."""
    if when == now:
        os.kill(os.getpid(), signal.SIGUSR1)


def last_state(folder: Path) -> bytes:
    """The state in the last checkpoint of a training by hand."""
    return (folder / "checkpoints" / "latest" / "state.pt").read_bytes()


def weights_in(path: Path) -> object:
    """The weights in a file byte by byte; around them pickles say the same in other bytes."""
    if path.suffix == ".safetensors":
        return path.read_bytes()
    state = torch.load(path, weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.get("state_dict", state).items()}
