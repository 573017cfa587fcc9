"""The TensorFlow engine: starts the user's own training script, in one worker or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.exports import export_training, is_of_library
from unbroken.engines.starter import Starter
from unbroken.engines.tensorflow.starter import starters
from unbroken.program.rank_command import script_command, threads_of_each
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.run import Run


class TensorFlowEngine(Engine):
    """The script keeps the environment contract, by `unbroken.training.tensorflow` or by itself."""

    name = "tensorflow"

    def starters(self, words: Sequence[str], is_named: bool) -> Iterator[Starter]:
        return starters(self.base, words, is_named)

    def export(self, run: Run, checkpoint: Checkpoint, folder: Path) -> list[str]:
        """Fill the folder of a training that is started by hand; of a script without the library as any by contract."""
        if not is_of_library(checkpoint):
            return super().export(run, checkpoint, folder)
        threads = threads_of_each(run, "workers")
        return export_training(run, self.base, checkpoint, training_command(run), threads, folder)

    def command(self, task: Task) -> list[str]:
        return training_command(task.run)

    def environment(self, task: Task) -> dict[str, str]:
        threads = threads_of_each(task.run, "workers")
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads)}


def training_command(run: Run) -> list[str]:
    """The user's Python, script and arguments; with several workers, what starts so many and makes their TF_CONFIG."""
    return script_command(run, "workers", "--tf-config")
