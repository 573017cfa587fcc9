"""`unbroken advise` beside a real Slurm: what it advises can be typed, and holds."""

import re

import yaml
from cluster.lab import Cluster
from support.workdir import ROOT, WorkDir, until

PROFILE = ("--profile", str(ROOT / "profiles" / "slurm"))


def test_it_advises_a_partition_that_is_free_and_what_it_says_can_be_typed(
    silent_work: WorkDir, silent_cluster: Cluster
) -> None:
    """Without accounting: elsewhere the waits of other tests' jobs would count."""
    work, cluster, settings = silent_work, silent_cluster, {"goal": 3000, "step_seconds": 0.02}
    run = {"engine": "toy", "segments": 40, "segment_minutes": 0.1, "partition": "short", "settings": settings}
    work.configure({"a": run})
    early = work.unbroken("advise", *PROFILE).text
    driver = work.start()
    until(lambda: len(work.records("a")) >= 2)
    driver.interrupt()
    driver.wait()
    cluster.wait_until(lambda: not cluster.jobs("running,pending,completing"))
    blocker = cluster.sbatch("sleep 300", "--nodes=4", "--exclusive", "--partition=short", "--time=9")
    cluster.wait_until(lambda: cluster.state(blocker) == "RUNNING")

    done = work.unbroken("advise", "a", *PROFILE)

    assert "a: too little is known of its pace; after its first segment type: unbroken advise" in early
    assert done.code == 0, done.text
    rows = {line.split()[0]: line for line in done.text.splitlines() if re.match("(short|gpu|preempt|urgent) ", line)}
    assert set(rows) == {"short", "gpu", "preempt", "urgent"}, done.text
    assert re.search(r"a: \d+ (s|min) of work are left; a cut costs \d+ (s|min)", done.text)
    assert re.search(r"the queue's wait counts once for the array, then \d+ s between two tasks", done.text)
    assert re.search("[6-9] min", rows["short"])  # so long Slurm says that it is full
    (advice,) = re.findall(r"a: type (.*): done about \w+ \d\d:\d\d instead of about \w+ \d\d:\d\d", done.text)
    typed: dict[str, object] = {}
    for words in re.findall("`(.*?)`", advice):
        typed |= yaml.safe_load(words)
    assert typed["partition"] in {"preempt", "urgent"}
    assert typed["segment_minutes"] in {1, 2}
    assert "one job of that length does all the rest: segments bring nothing here but safety" in done.text
    assert "its wait is Slurm's guess of now, which knows of no later job" in done.text

    before = len(work.history("a"))
    work.configure({"a": run | typed})
    finished = work.start().wait()
    assert finished.code == 0, finished.text
    assert cluster.state(blocker) == "RUNNING"  # nobody waited for it
    assert len(work.history("a")) <= before + 2
