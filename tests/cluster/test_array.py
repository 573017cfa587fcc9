"""The chain of a run as one job array, attached and detached, on a real cluster."""

import itertools

from cluster.detached import detached, slurm_logs, submit, wait_for_jobs
from cluster.lab import Cluster
from support.workdir import WorkDir, one_step_segments

from unbroken.runs.history import Attempt
from unbroken.runs.outcome import Outcome


def gaps(history: list[Attempt]) -> list[float]:
    """Return the seconds from the end of one attempt to the start of the next."""
    return [
        after.times.job_started - before.times.ended
        for before, after in itertools.pairwise(history)
        if after.times.job_started and before.times.ended
    ]


def arrays(history: list[Attempt]) -> set[str]:
    return {attempt.slurm_job.partition("_")[0] for attempt in history}


def test_attached_a_run_is_one_array_whose_tasks_hand_over(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(5, goal=5)})

    done = slurm_work.start("--executor", "unbroken").wait(120)

    history = slurm_work.history("a")
    print(done.text, slurm_logs(slurm_work), gaps(history))
    assert done.code == 0, done.text
    assert [record.outcome for record in slurm_work.records("a")] == [Outcome.PAUSED] * 4 + [Outcome.FINISHED]
    assert len(arrays(history)) == 1
    assert cluster.jobs("pending,running") == []


def test_detached_a_run_is_one_array_whose_tasks_hand_over(slurm_work: WorkDir, cluster: Cluster) -> None:
    slurm_work.configure({"a": one_step_segments(5, goal=5)})

    said = submit(detached(slurm_work))
    wait_for_jobs(cluster)

    history = slurm_work.history("a")
    print(said, slurm_logs(slurm_work), gaps(history))
    assert [record.outcome for record in slurm_work.records("a")] == [Outcome.PAUSED] * 4 + [Outcome.FINISHED]
    assert len(arrays(history)) == 1
