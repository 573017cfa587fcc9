"""What a verified save costs: unbroken's way against a bare `torch.save` of the same tensors.

Child: what the training waits for.  Publish: what unbroken's own process then does while the training goes on.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from support.measure import in_turns, machine, options, publish, ratios, spread, table

from unbroken.store.checkpoint import Passport
from unbroken.store.checkpoints import Store
from unbroken.store.progress import FileDigest, Progress
from unbroken.system.digests import preferred_algorithm
from unbroken.system.fs import flush_tree
from unbroken.training.torch.serialization import save_verified

FILE = "state.pt"


def tensors(megabytes: float) -> dict[str, torch.Tensor]:
    """A state as trainings have it: a few large tensors and many small ones."""
    count = int(megabytes * 1e6 / 4)
    small = {f"bias_{n}": torch.rand(max(1, count // 100_000)) for n in range(100)}
    return {**small, **{f"weight_{n}": torch.rand(max(1, count // 10)) for n in range(10)}}


def bare(state: object, folder: Path) -> None:
    torch.save(state, folder / FILE)


def bare_unchecked(state: object, folder: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        bare(state, folder)
    finally:
        torch.serialization.set_crc32_options(True)


def bare_flushed(state: object, folder: Path) -> None:
    bare(state, folder)
    flush_tree(folder)


def child(state: object, folder: Path) -> FileDigest | None:
    return save_verified(state, folder / FILE)


def whole(state: object, folder: Path) -> None:
    digest = child(state, folder)
    Store(folder.parent / "checkpoints").publish(folder, passport({FILE: digest} if digest else {}), lambda: None)


def passport(files: dict[str, FileDigest]) -> Passport:
    now = "2026-01-01T00:00:00Z"
    return Passport(
        run="bench", engine="torch", segment=1, sequence=1, token=1, parent=None, parent_digest=None,
        progress=Progress(1.0), is_finished=False, is_best=False, algorithm=preferred_algorithm(), files=files,
        identity="0" * 64, identity_parts={}, versions={}, host={}, slurm_job=None, attempt_started_utc=now,
        created_utc=now, work_seconds=1.0, save_seconds=None,
    )  # fmt: skip


def timed(save: Callable[[object, Path], object], state: object, base: Path) -> float:
    """Seconds of one save into a new folder; nothing earlier is still on its way to the disk."""
    shutil.rmtree(base, ignore_errors=True)
    folder = base / "draft"
    folder.mkdir(parents=True)
    os.sync()
    began = time.perf_counter()
    save(state, folder)
    return time.perf_counter() - began


VARIANTS: dict[str, Callable[[object, Path], object]] = {
    "`torch.save`": bare,
    "`torch.save` without CRC-32": bare_unchecked,
    "`torch.save`, flushed to the disk": bare_flushed,
    "unbroken, child: saved and digested": child,
    "unbroken, child and publish: flushed, passport, rename": whole,
}


def measure(megabytes: float, rounds: int) -> str:
    state = tensors(megabytes)
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as base:
        variants = {name: partial(timed, save, state, Path(base) / "x") for name, save in VARIANTS.items()}
        in_turns(variants, 1)  # to have everything loaded
        found = in_turns(variants, rounds)
    plain, _, flushed, *_ = found.values()
    rows = [
        [
            name,
            spread(times, 3),
            spread(ratios(times, plain)),
            f"{min(times) / min(plain):.2f}",
            spread(ratios(times, flushed)),
            f"{min(times) / min(flushed):.2f}",
        ]
        for name, times in found.items()
    ]
    header = ["variant", "seconds", "times `torch.save`", "the least", "times flushed `torch.save`", "the least"]
    return f"**{megabytes:g} MB**, rounds: {rounds}\n\n{table(header, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        megabytes=(float, 100.0, "size of the smaller state; the larger is ten times that"),
        rounds=(int, 11, "how often"),
    )
    where = machine("torch", "xxhash")
    pages = [measure(megabytes, chosen.rounds) for megabytes in (chosen.megabytes, 10 * chosen.megabytes)]
    publish("save", "\n\n".join([where, *pages]), chosen.write)
