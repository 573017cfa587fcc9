"""Runs in an image of the real Apptainer, on a real cluster."""

import os
import signal

import pytest
from cluster.lab import Cluster
from support.images import COUNTED, apptainer, counted, counting_run, make_image
from support.workdir import WorkDir, until

from unbroken.store.history import EndKind

PATIENCE_SECONDS = 600.0
# Each rank leaves when it hears USR1; `fruit` is in the image alone.
RANK = """
read fruit < /etc/fruit
trap 'told=1' USR1
n=0; [ -f rank_0 ] && read n rest < rank_0
while [ -z "$told" ] && [ $n -lt 80 ]; do n=$((n + 1)); sleep 0.1; done
echo $n $fruit > rank_$SLURM_PROCID
[ $n -ge 80 ] || exit 85
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]


@pytest.fixture
def work(slurm_work: WorkDir) -> WorkDir:
    """A working directory on the cluster whose nodes have Apptainer."""
    slurm_work.added_environment["PATH"] = (
        f"{apptainer()}:{slurm_work.added_environment.get('PATH', os.environ['PATH'])}"
    )
    return slurm_work


def test_killed_and_cancelled_inside_it_leaves_the_table_of_one_run(work: WorkDir, cluster: Cluster) -> None:
    work.configure({"demo": counting_run(work.root, segment_minutes=1)})
    driver = work.start()
    until(lambda: counted(work.root, 1) >= 50, PATIENCE_SECONDS)
    os.kill(work.holder("demo"), signal.SIGKILL)
    until(lambda: counted(work.root, 2) >= 20, PATIENCE_SECONDS)
    cluster.run("scancel", str(work.claim("demo")["slurm_job"]))
    cancelled = driver.wait(PATIENCE_SECONDS)
    inside = work.processes("program.sh")

    done = work.start().wait(PATIENCE_SECONDS)

    assert cancelled.code != 0
    assert done.code == 0, done.text
    assert not inside
    outcomes = [attempt.kind for attempt in work.history("demo")]
    assert outcomes == [EndKind.DIED, EndKind.INTERRUPTED, EndKind.FINISHED]
    assert work.final("demo")["rows.txt"] == COUNTED


def test_each_rank_enters_the_image_and_hears_the_signal_to_stop_there(work: WorkDir) -> None:
    make_image(work.root / "fruit.sif", "apple")
    work.write("rank.sh", RANK)
    settings = {
        "start": ["sh", "{base}/rank.sh"],
        "files": ["rank_0", "rank_1"],
        "progress_file": "rank_0",
        "progress_pattern": r"^(\d+)",
        "goal": 80,
        "stop_signal": "USR1",
    }
    run = {"engine": "command", "tasks": 2, "nodes": 1, "segments": 20, "segment_minutes": 0.1, "settings": settings}
    work.configure({"demo": {**run, "container": "fruit.sif"}})

    done = work.start().wait(PATIENCE_SECONDS)

    assert done.code == 0, done.text
    attempts = work.history("demo")
    assert [attempt.exit_code for attempt in attempts] == [85] * (len(attempts) - 1) + [0]
    assert len(attempts) >= 2
    assert work.final("demo") == {"rank_0": b"80 apple\n", "rank_1": b"80 apple\n"}
