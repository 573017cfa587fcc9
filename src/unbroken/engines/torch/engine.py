"""The PyTorch engine: starts the user's own training script, on one rank or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.exports import export_training, is_of_library
from unbroken.engines.starter import Starter
from unbroken.engines.torch.starter import starters
from unbroken.program.rank_command import script_command, threads_of_each
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.run import Run
from unbroken.slurm.this_job import restart_count


class TorchEngine(Engine):
    """The script keeps the environment contract, by `unbroken.training.torch` or by itself."""

    name = "torch"

    def starters(self, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
        return starters(self.base, words, is_named)

    def export(self, run: Run, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Fill the folder of a training that is started by hand; of a script without the library as any by contract."""
        if not is_of_library(checkpoint):
            return super().export(run, checkpoint, folder)
        threads = threads_of_each(run, "ranks")
        return export_training(run, self.base, checkpoint, training_command(run), threads, folder)

    def command(self, task: Task) -> list[str]:
        return training_command(task.run)

    def environment(self, task: Task) -> dict[str, str]:
        threads = threads_of_each(task.run, "ranks")
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads)}

    def remarks(self, task: Task) -> list[str]:
        starts = restart_count()
        if task.origin is not None or not starts:
            return []
        loud = f"WARNING: Slurm has started this job {starts + 1} times, and there is NO checkpoint"
        return [f"{loud}: all work before is lost; read the earlier logs, and save more often (save_minutes)"]


def training_command(run: Run) -> list[str]:
    """The user's Python, script and arguments; with several ranks, what starts so many of them."""
    return script_command(run, "ranks")
