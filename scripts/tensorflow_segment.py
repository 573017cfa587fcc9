"""One segment of a TensorFlow training: runs the user's own script, which saves and resumes by itself."""

from unbroken.engines.tensorflow.engine import TensorFlowEngine
from unbroken.job.attempt import Job, main
from unbroken.job.lifecycle import run_segment
from unbroken.store.record import Record
from unbroken.store.run import RunSpec


def build_command(run: RunSpec) -> list[str]:
    """Return the user's Python, script and arguments; with several workers, what starts them and makes their TF_CONFIG.

    python train.py --lr 0.1
    python -m unbroken.training.launch.ranks --ranks 4 --tasks 2 --tf-config python train.py --lr 0.1
    """
    return TensorFlowEngine().training_command(run)


def tensorflow_segment(job: Job) -> Record:
    """Train for one segment."""
    return run_segment(job, TensorFlowEngine(job.base))


if __name__ == "__main__":
    main(snakemake, tensorflow_segment)  # type: ignore[name-defined]
