"""Comes before `ranks_program.py` in one file: its saves beside the training, and what may go wrong with one of them.

It goes wrong with the own file of rank 1, or with its shards; the files of the other rank are complete.
"""

import os
import signal
import threading
import time
from pathlib import Path

from unbroken.errors import StorageError
from unbroken.training.torch import rank_checkpoint, writer

MISHAP = os.environ.get("RANKS_MISHAP", "")
PATIENCE_SECONDS = 600

is_first_attempt = not os.environ["UNBROKEN_RESUME"]
complete, count, is_reached = rank_checkpoint.save_verified, 0, threading.Event()


def save(state, path, **more):
    global count
    made = complete(state, path, **more)
    if path.name != "00001.pt":
        return made
    count += 1
    if count == 1 and MISHAP == "waits" and is_first_attempt:
        wait_for_steps(2)
    if count == 2 and MISHAP == "fails with shards":
        rank_checkpoint.FileSystemWriter.write_data = no_shards
    if count == 3 and MISHAP == "dies":
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    if count == 3 and MISHAP == "fails":
        raise StorageError("the disk is full")
    return made


def wait_for_steps(number):
    """Holds the save up until the training is so much further."""
    seen = Path(__file__).with_name("seen-2-1")
    before, until = len(seen.read_text().splitlines()), time.monotonic() + PATIENCE_SECONDS
    is_reached.set()
    while len(seen.read_text().splitlines()) < before + number:
        assert time.monotonic() < until, "the training does not go on"
        time.sleep(0.01)
    print(f"{number} steps while {threading.current_thread().name} wrote", flush=True)


def no_shards(*_):
    raise OSError(28, "No space left on device")


class Link(writer.TorchWriter):
    def complete(self, *arguments, **more):
        super().complete(*arguments, **more)
        if MISHAP == "waits" and is_first_attempt and os.environ["RANK"] == "1":
            assert is_reached.wait(PATIENCE_SECONDS)


rank_checkpoint.save_verified, writer.TorchWriter = save, Link
