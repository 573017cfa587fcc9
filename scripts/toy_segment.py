"""One segment of a toy run: the smallest engine and the pattern for all others."""

import sys

from unbroken.engines.base import Engine, Task
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run) -> list[str]:
    """The argument list that starts the counting program; it finds its last state by itself (UNBROKEN_RESUME)."""
    settings = run.settings
    command = [
        sys.executable,
        "-m",
        "unbroken.engines.toy.program",
        "--goal",
        str(settings["goal"]),
        "--seed",
        str(settings["seed"]),
    ]
    return [*command, "--step-seconds", str(settings["step_seconds"]), "--save-steps", str(settings["save_steps"])]


class ToyEngine(Engine):
    """The toy keeps the environment contract, so what it leaves is read as `unbroken.program.contract` says."""

    name = "toy"

    def command(self, task: Task) -> list[str]:
        return build_command(task.run)


def toy_segment(job: Job) -> Record:
    """Counts for one segment."""
    return run_segment(job, ToyEngine())


if __name__ == "__main__":
    main(snakemake, toy_segment)  # type: ignore[name-defined]
