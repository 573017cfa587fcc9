"""A program that wants more memory than its job has, on a cluster that keeps memory limits."""

import pytest
from cluster.detached import slurm_logs
from cluster.lab import Cluster
from support.workdir import WorkDir

# Fills so many MB, says so, and is done.
EATER = """\
import os, sys
held = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
with open(os.path.join(os.environ["UNBROKEN_SAVE"], "eaten"), "w") as file:
    print(len(held) >> 20, file=file)
"""
# Leaves the meal to a worker, and fails in words of its own where the kernel ends that one.
HOST = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, 'guest.py', *sys.argv[1:]]).returncode != 0)"


@pytest.mark.slow
@pytest.mark.parametrize("eater", ["the program", "its worker"])
def test_a_segment_that_ran_out_of_memory_gets_more_at_its_next_attempt(
    cgroup_work: WorkDir, cgroup_cluster: Cluster, eater: str
) -> None:
    cgroup_work.write("guest.py", EATER)
    cgroup_work.write("eat.py", EATER if eater == "the program" else HOST)
    settings = {"script": "eat.py", "goal": 1, "goal_unit": "meals", "args": [700]}
    hungry = {"engine": "torch", "segments": 1, "segment_minutes": 2, "mem_mb": 600, "memory_growth": 2.5}
    cgroup_work.configure({"hungry": {**hungry, "settings": settings}})

    done = cgroup_work.start().wait(240)

    assert done.code == 0, done.text
    jobs = [attempt.slurm_job for attempt in cgroup_work.history("hungry")]
    assert [cgroup_cluster.asked_memory(job) for job in jobs] == ["600M", "1500M"]
    assert cgroup_work.final("hungry") == {"eaten": b"700\n"}
    assert "hungry: 1 attempt ran out of memory; the waiting tasks now ask for 1500 MB" in slurm_logs(cgroup_work)
