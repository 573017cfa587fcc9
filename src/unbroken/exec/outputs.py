"""Handle a program's streams, and the results that are kept in the last checkpoint and put back."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import stat
import struct
import termios
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.files.states import is_as_in
from unbroken.engines.files.stored import Replaced, original, put_file, stored
from unbroken.exec.options import Options
from unbroken.program.process import Streams
from unbroken.store.checkpoint import Checkpoint, verify_files
from unbroken.store.layout import parse_json
from unbroken.store.run import RunSpec
from unbroken.system import copying, fs

logger = logging.getLogger(__name__)

OUTPUTS = "outputs"
LINKS = "output-links.json"
_BLOCK_BYTES = 1 << 16


class CalledEngine(Engine):
    """Define an engine as `unbroken exec` calls it; one object serves one call."""

    fills_final = False
    words: Sequence[str] = ()  # what makes it another computation, in addition to the command line
    printed: Path | None = None  # where what it prints goes, if that is a result
    has_started = False

    def __init__(self, options: Options, folder: Path, store: Path, run: RunSpec) -> None:
        super().__init__(folder)
        self.options, self.store, self.run = options, store, run

    def streams(self, task: Task, log: Path) -> AbstractContextManager[Streams | None]:
        self.has_started = True
        return streams(log, self.printed)

    @abstractmethod
    def put_back(self, checkpoint: Checkpoint) -> list[str]:
        """Put the results in place that are missing or differ, and return their names; the lease must be held."""


# --- streams ---


@contextmanager
def streams(log: Path, result: Path | None, read: list[Passage] | None = None) -> Iterator[Streams]:
    """Open the streams of a program; both outputs are passed on and kept in `log`.

    Standard output goes to `result` instead if there is one, and stays where it is if that is a file of its own, unless
    what it says is read in the log: then `read` gets what passes both on.
    Standard input is passed on only if it is a file: a resumed program would miss the rest of a terminal or a pipe.
    """
    with ExitStack() as stack:

        def opened(path: Path | str, flags: int) -> int:
            descriptor = os.open(path, flags, 0o666)
            stack.callback(os.close, descriptor)
            return descriptor

        appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        kept = opened(log, appending)
        error = stack.enter_context(_passed_on(2, kept, read))
        if result is not None:
            output = opened(result, appending)
        else:
            output = 1 if _is_file(1) and read is None else stack.enter_context(_passed_on(1, kept, read))
        yield Streams(0 if _is_file(0) else opened(os.devnull, os.O_RDONLY), output, error)


def is_empty_file(descriptor: int) -> bool:
    """Return True if `> FILE` has just made or emptied it; a log of a driver has lines before."""
    return _is_file(descriptor) and os.fstat(descriptor).st_size == 0


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class Passage:
    """Pass on what comes out of a pipe; the program does not notice if the reader is gone or the disk is full."""

    def __init__(self, out: int, log: int, target: int) -> None:
        self._out, self._log, self._target = out, log, target
        self._lock = threading.Lock()

    def run(self) -> None:
        """Write all that comes to the log, and to the target, until the pipe is closed."""
        while True:
            select.select([self._out], [], [])
            with self._lock:
                block = os.read(self._out, _BLOCK_BYTES)
                _write(self._log, block)
            if not block:
                return
            _write(self._target, block)

    def drain(self, most_seconds: float = 5.0) -> None:
        """Wait until the log has what is in the pipe."""
        give_up = time.monotonic() + most_seconds
        while time.monotonic() < give_up:
            with self._lock:
                waiting = struct.unpack("i", fcntl.ioctl(self._out, termios.FIONREAD, bytes(4)))[0]
            if not waiting:
                return
            time.sleep(0.01)


def _write(descriptor: int, block: bytes) -> None:
    with suppress(OSError):
        view = memoryview(block)
        while view:
            view = view[os.write(descriptor, view) :]


@contextmanager
def _passed_on(target: int, log: int, read: list[Passage] | None) -> Iterator[int]:
    """Yield the write end of a pipe; what comes is written to both, and all of it has been when the block is left."""
    out, into = os.pipe()
    passage = Passage(out, log, target)
    if read is not None:
        read.append(passage)
    thread = threading.Thread(target=passage.run, name="passes-on", daemon=True)
    thread.start()
    try:
        yield into
    finally:
        os.close(into)  # the program and all that it started are gone
        thread.join()
        os.close(out)


# --- results ---


def keep_results(results: Mapping[str, Path], draft: Path) -> None:
    """Copy the results into a draft, by the names that they have where the program was called.

    Links stay links; pipes, sockets and devices are left out with a line.
    """
    links: dict[str, str] = {}
    for name, path in results.items():
        for below in fs.tree_files(path) if path.is_dir() else [Path()]:
            kept, source = os.path.normpath(os.path.join(name, below)), path / below
            if source.is_symlink() and below != Path():
                links[kept] = os.readlink(source)
            elif source.is_file():
                target = draft / OUTPUTS / stored(kept)
                target.parent.mkdir(parents=True, exist_ok=True)
                copying.copy_file(source, target)
            else:
                logger.warning(f"--outputs: {kept} is a pipe, a socket or a device, and is left out")
    if links:
        (draft / LINKS).write_text(json.dumps(links) + "\n")


def put_back_results(checkpoint: Checkpoint, folder: Path, store: Path) -> list[str]:
    """Put back what is missing or differs and return the names; files in the way go to `replaced/`.

    Raise CheckpointError if what is kept is not complete.
    """
    replaced = Replaced(store, folder)
    done: list[str] = []
    for name in checkpoint.passport.files:
        if not name.startswith(f"{OUTPUTS}/"):
            continue
        place = original(name.removeprefix(f"{OUTPUTS}/"))
        target = folder / place
        if is_as_in(checkpoint, name, target.resolve()):  # the user may have put a link in its place
            continue
        if not done:
            verify_files(checkpoint)
        replaced.move(place)
        put_file(checkpoint.folder / name, target)
        done.append(place)
    has_links = LINKS in checkpoint.passport.files
    links = parse_json((checkpoint.folder / LINKS).read_text()) if has_links else {}
    return [*done, *(place for place, leads_to in links.items() if replaced.put_link(place, leads_to))]
