"""What a checkpoint by DMTCP takes for each GB of memory: saved, compressed, brought back.

For anybody who has DMTCP: its programs are sought on the PATH, or in the folder of --programs.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.measure import in_turns, machine, options, publish, spread, table

from unbroken.engines.dmtcp.checkpoint import compress, images_in
from unbroken.engines.dmtcp.programs import Programs, clean_environment
from unbroken.engines.dmtcp.session import DmtcpSession
from unbroken.errors import SegmentError

MB, GB = 1e6, 1e9
LIMIT_SECONDS = 600.0
# Half of it as random as results of a computation are, half of it zeros, as gzip meets them in real programs.
PROGRAM = """
import os, sys, time
half = int(float(sys.argv[1]) * 5e5)
heap = bytearray(os.urandom(half)) + bytearray(half)
open("ready", "w").close()
while True:
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Took:
    """One save and what followed; bytes of all images, before and after gzip."""

    image_bytes: int
    save_seconds: float
    restart_seconds: float
    gzip_bytes: int
    gzip_seconds: float
    gzip_restart_seconds: float


def measured(programs: Programs, base: Path, megabytes: float) -> Took:
    folder = Path(tempfile.mkdtemp(dir=base))
    (folder / "live").mkdir()
    with contextlib.ExitStack() as left:
        first = left.enter_context(_stage(programs, folder, "first"))
        first.launch([], [sys.executable, "-c", PROGRAM, str(megabytes)])
        _wait(folder / "live" / "ready", first)
        save_seconds = _seconds(lambda: first.checkpoint(LIMIT_SECONDS))
        images = images_in(first.images)
        image_bytes = _bytes(images)
        restart_seconds = _restart_seconds(programs, folder, "second", images)
        gzip_seconds = _seconds(lambda: compress(first.images, LIMIT_SECONDS))
        gzip_restart_seconds = _restart_seconds(programs, folder, "third", images)
        return Took(image_bytes, save_seconds, restart_seconds, _bytes(images), gzip_seconds, gzip_restart_seconds)


@contextlib.contextmanager
def _stage(programs: Programs, folder: Path, name: str) -> Iterator[DmtcpSession]:
    stage = DmtcpSession(programs, folder / f"{name}.stage", folder / f"{name}.images", folder / "live", folder / "log")
    try:
        yield stage
    finally:
        stage.close()


def _restart_seconds(programs: Programs, folder: Path, name: str, images: list[Path]) -> float:
    with _stage(programs, folder, name) as stage:
        return _seconds(lambda: stage.restart(images, LIMIT_SECONDS))


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _wait(path: Path, stage: DmtcpSession) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not path.exists():
        if time.monotonic() > end or stage.has_ended(0):
            sys.exit(f"{path}: the program did not begin: {(path.parent / 'output.txt').read_text()}")
        time.sleep(0.02)


def _bytes(images: list[Path]) -> int:
    return sum(image.stat().st_size for image in images)


def _row(name: str, found: list[Took]) -> list[str]:
    return [
        name,
        spread([each.image_bytes / MB for each in found], 0),
        spread([each.save_seconds for each in found]),
        spread([each.save_seconds / (each.image_bytes / GB) for each in found]),
        spread([each.restart_seconds for each in found]),
        spread([each.restart_seconds / (each.image_bytes / GB) for each in found]),
        spread([each.gzip_bytes / each.image_bytes for each in found]),
        spread([each.gzip_seconds / (each.image_bytes / GB) for each in found]),
        spread([each.gzip_restart_seconds / (each.image_bytes / GB) for each in found]),
    ]


HEADER = [
    "program's memory",
    "images, MB",
    "save, s",
    "s/GB",
    "restart, s",
    "s/GB",
    "gzip: size",
    "gzip, s/GB",
    "restart of it, s/GB",
]


if __name__ == "__main__":
    chosen = options(
        __doc__,
        programs=(str, "", "the folder of DMTCP's programs"),
        megabytes=(str, "1,200,1000", "memory that the program fills, sizes with commas between"),
        rounds=(int, 3, "how often"),
    )
    clean_environment()
    where, programs = machine("unbroken"), Programs(str(Path(chosen.programs).absolute()) if chosen.programs else "")
    try:
        release = programs.version()
        with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
            sizes = chosen.megabytes.split(",")
            variants: dict[str, Callable[[], Took]] = {
                f"{size} MB": partial(measured, programs, Path(name), float(size)) for size in sizes
            }
            rows = [_row(label, found) for label, found in in_turns(variants, chosen.rounds).items()]
    except SegmentError as error:
        sys.exit(str(error))
    head = f"{where} DMTCP {release}, rounds: {chosen.rounds}"
    publish("dmtcp", f"{head}\n\n{table(HEADER, rows)}", chosen.write)
