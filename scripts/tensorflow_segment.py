"""One segment of a TensorFlow training: runs the user's own script, which saves and resumes by itself."""

from unbroken.engines.base import Engine, Task
from unbroken.program.rank_command import script_command, threads_of_each
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.segment.job import Job, main
from unbroken.segment.lifecycle import run_segment


def build_command(run: Run) -> list[str]:
    """The user's Python, script and arguments; with several workers, what starts so many and makes their TF_CONFIG."""
    return script_command(run, "workers", "--tf-config")


class TensorFlowEngine(Engine):
    """The script keeps the environment contract, by `unbroken.training.tensorflow` or by itself."""

    name = "tensorflow"

    def command(self, task: Task) -> list[str]:
        return build_command(task.run)

    def environment(self, task: Task) -> dict[str, str]:
        threads = threads_of_each(task.run, "workers")
        return {**super().environment(task), "OMP_NUM_THREADS": str(threads)}


def tensorflow_segment(job: Job) -> Record:
    """Trains for one segment."""
    return run_segment(job, TensorFlowEngine())


if __name__ == "__main__":
    main(snakemake, tensorflow_segment)  # type: ignore[name-defined]
