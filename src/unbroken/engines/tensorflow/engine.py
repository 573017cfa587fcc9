"""The TensorFlow engine: starts the user's own training script, in one worker or several."""

from __future__ import annotations

from unbroken.engines.base import Engine, Task
from unbroken.program.rank_command import script_command, threads_of_each
from unbroken.runs.run import Run


class TensorFlowEngine(Engine):
    """The script keeps the environment contract, by `unbroken.training.tensorflow` or by itself."""

    name = "tensorflow"

    def command(self, task: Task) -> list[str]:
        return training_command(task.run)

    def environment(self, task: Task) -> dict[str, str]:
        threads = threads_of_each(task.run, "workers")
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads)}


def training_command(run: Run) -> list[str]:
    """The user's Python, script and arguments; with several workers, what starts so many and makes their TF_CONFIG."""
    return script_command(run, "workers", "--tf-config")
