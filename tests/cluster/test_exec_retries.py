"""`unbroken exec` in a rule with `retries`, with Slurm's own plugin (`executor: slurm`), on a real cluster."""

from pathlib import Path

import pytest
from cluster.exec_rules import assert_whole, history, outcomes, prepare
from cluster.lab import Cluster
from support.workdir import WorkDir

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 900.0
# As somebody has it who knows no profile of ours; the plugin first asks after 40 s otherwise.
PLUGIN = (
    "--executor",
    "slurm",
    "--jobs",
    "4",
    "--latency-wait",
    "60",
    "--slurm-init-seconds-before-status-checks",
    "3",
)


@pytest.mark.slow
def test_each_retry_is_a_job_of_a_minute_until_it_is_done(
    slurm_work: WorkDir, cluster: Cluster, tmp_path: Path
) -> None:
    goal = 2000
    slurm_work.profile = None
    prepare(slurm_work, retries=9, runtime=1, options="", goal=goal)

    done = slurm_work.start(*PLUGIN, "--default-resources", "mem_mb=500").wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    assert_whole(slurm_work, tmp_path, goal)
    assert set(outcomes(slurm_work)[:-1]) == {EndKind.PAUSED}
    assert outcomes(slurm_work)[-1] is EndKind.FINISHED
    jobs = [attempt.slurm_job for attempt in history(slurm_work)]
    assert len(set(jobs)) == len(jobs) >= 2
    # 85 is a failure for Snakemake, and its retries start it again.
    assert done.text.count("Error in rule count") == done.text.count("Trying to restart job") == len(jobs) - 1
