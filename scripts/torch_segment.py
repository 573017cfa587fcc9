"""One segment of a PyTorch training: runs the user's own script, which saves and resumes by itself."""

import sys

from longhaul.engine import Engine, Task
from longhaul.job import Job, main
from longhaul.record import Record
from longhaul.run import Run
from longhaul.segment import run_segment


def build_command(run: Run) -> list[str]:
    """The user's Python, script and arguments."""
    arguments = run.settings["args"]
    if not isinstance(arguments, (list, tuple)):
        raise TypeError(f"args is {arguments!r}; the schema allows a list only")
    return [str(run.settings["python"] or sys.executable), str(run.settings["script"]), *map(str, arguments)]


class TorchEngine(Engine):
    """The script keeps the environment contract, by `longhaul.training.torch` or by itself."""

    name = "torch"

    def command(self, task: Task) -> list[str]:
        return build_command(task.run)


def torch_segment(job: Job) -> Record:
    """Trains for one segment."""
    return run_segment(job, TorchEngine())


if __name__ == "__main__":
    main(snakemake, torch_segment)  # type: ignore[name-defined]
