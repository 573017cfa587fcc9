"""One segment of a PyTorch training: runs the user's own script, which saves and resumes by itself."""

from unbroken.engines.torch.engine import TorchEngine
from unbroken.job.attempt import Job, main
from unbroken.job.lifecycle import run_segment
from unbroken.store.record import Record
from unbroken.store.run import RunSpec


def build_command(run: RunSpec) -> list[str]:
    """Return the user's Python, script and arguments; with several ranks, what starts so many of them.

    python train.py --lr 0.1
    python -m unbroken.training.launch.ranks --ranks 4 --tasks 2 python train.py --lr 0.1
    """
    return TorchEngine().training_command(run)


def torch_segment(job: Job) -> Record:
    """Train for one segment."""
    return run_segment(job, TorchEngine(job.base))


if __name__ == "__main__":
    main(snakemake, torch_segment)  # type: ignore[name-defined]
