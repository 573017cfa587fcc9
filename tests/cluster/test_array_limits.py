"""Sites that take no array, a small one, or few jobs at a time: the run gets what fits, and the rest follows."""

import pytest
from cluster.both_ways import BOTH_WAYS, Chain, arrays, assert_done_once, steps
from cluster.detached import without_slurm_on_nodes
from cluster.lab import Cluster
from cluster.lab_limits import configured, lazy_scheduling, room_for_jobs, user_limited
from support.workdir import WorkDir

pytestmark = pytest.mark.slow


@BOTH_WAYS
def test_where_arrays_are_refused_a_run_is_single_jobs(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """MaxArraySize=0: Slurm takes no array at all."""
    slurm_work.configure({"a": steps(3)})
    chain = Chain(slurm_work, cluster, is_attached)
    with configured(cluster, MaxArraySize=0):
        chain.let("all")
        chain.start()
        said = chain.end()
        cluster.cancel_everything()

    history = assert_done_once(slurm_work, 3)
    assert len(arrays(history)) == 3, said
    assert "_" not in "".join(attempt.slurm_job for attempt in history)


@BOTH_WAYS
def test_a_small_array_is_refilled(slurm_work: WorkDir, cluster: Cluster, is_attached: bool) -> None:
    """Of MaxArraySize=3 the highest index is 2."""
    slurm_work.configure({"a": steps(5)})
    chain = Chain(slurm_work, cluster, is_attached)
    with configured(cluster, MaxArraySize=3):
        chain.let("all")
        chain.start()
        said = chain.end()
        cluster.cancel_everything()

    history = assert_done_once(slurm_work, 5)
    assert len(arrays(history)) == 3, said
    assert cluster.starts(slurm_work.root) == 5


@BOTH_WAYS
def test_a_scheduler_that_looks_only_when_something_happens_starts_an_array_on_an_idle_cluster(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """Nothing happens when the begin of an array has come; by default Slurm looks again after up to 30 s."""
    slurm_work.configure({"a": steps(2)})
    chain = Chain(slurm_work, cluster, is_attached)
    with lazy_scheduling(cluster):
        chain.let("all")
        chain.start()
        chain.end()
        cluster.cancel_everything()

    assert_done_once(slurm_work, 2)


@BOTH_WAYS
@pytest.mark.parametrize("most", [1, 4])
def test_a_site_that_allows_few_jobs_gets_few_and_all_is_done(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool, most: int
) -> None:
    slurm_work.configure({"a": steps(6)})
    chain = Chain(slurm_work, cluster, is_attached)
    with user_limited(cluster, MaxSubmitJobs=most):
        chain.start()
        chain.reaches(1)
        out = cluster.jobs()
        chain.let("all")
        said = chain.end()

    assert 1 <= len(out) <= most, said
    history = assert_done_once(slurm_work, 6)
    assert cluster.starts(slurm_work.root) == 6
    if most == 1:  # the one job comes back again and again
        assert len({attempt.slurm_job for attempt in history}) == 1, said


@BOTH_WAYS
def test_two_runs_where_one_job_is_allowed_are_done_one_after_the_other(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """Without a driver the job of the first run cannot make room for another while it looks for some."""
    slurm_work.configure({"a": steps(2), "b": steps(2)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.let("all")
    with user_limited(cluster, MaxSubmitJobs=1):
        chain.start()
        said = chain.end()
        if not is_attached:
            chain.start()
            chain.end()

    assert is_attached or "other runs still wait for room in the queue: start snakemake again" in said
    for run in "ab":
        assert_done_once(slurm_work, 2, run)


@pytest.mark.timeout(900)
@BOTH_WAYS
def test_a_full_site_gets_a_single_job_and_one_submitter(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """sbatch itself tries for minutes, each time: meanwhile a second driver must not take over."""
    slurm_work.configure({"a": steps(3)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.let("all")
    with room_for_jobs(cluster, 1):
        first = slurm_work.start()
        second = slurm_work.start()
        chain.drivers += [first, second]
        chain.text += "".join(driver.wait(600).text for driver in chain.drivers)
        chain.drivers.clear()
        chain.end()

    assert_done_once(slurm_work, 3)
    assert chain.text.count("submitted ") <= 3, chain.text


@BOTH_WAYS
def test_without_sbatch_on_nodes_an_array_is_done_and_what_follows_is_said(
    slurm_work: WorkDir, cluster: Cluster, is_attached: bool
) -> None:
    """A driver submits the next array; without one somebody types it."""
    without_slurm_on_nodes(slurm_work)
    slurm_work.configure({"a": steps(5)})
    chain = Chain(slurm_work, cluster, is_attached)
    chain.let("all")
    chain.start("--unbroken-ahead", "3")
    said = chain.end()
    done = len(slurm_work.records("a"))
    if not is_attached:
        chain.start("--unbroken-ahead", "3")
        chain.end()

    assert "sbatch, squeue, scontrol, scancel: not found on this node" in said
    assert done == (5 if is_attached else 3), said
    assert is_attached or "start snakemake again" in said
    assert_done_once(slurm_work, 5)
