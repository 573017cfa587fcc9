"""A program that wants more memory than its job has, on a cluster that keeps memory limits."""

import re

import pytest
from cluster.lab import Cluster
from support.workdir import WorkDir

# Fills so many MB, says so, and is done.
EATER = """\
import os, sys
held = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
with open(os.path.join(os.environ["LONGHAUL_SAVE"], "eaten"), "w") as file:
    print(len(held) >> 20, file=file)
"""


@pytest.mark.slow
def test_a_segment_that_ran_out_of_memory_gets_more_at_its_next_attempt(
    cgroup_work: WorkDir, cgroup_cluster: Cluster
) -> None:
    cgroup_work.write("eat.py", EATER)
    settings = {"script": "eat.py", "goal": 1, "goal_unit": "meals", "args": [700]}
    hungry = {"engine": "torch", "segments": 1, "segment_minutes": 2, "mem_mb": 600, "memory_growth": 2.5}
    cgroup_work.configure({"hungry": {**hungry, "settings": settings}})

    done = cgroup_work.start().wait(240)

    assert done.code == 0, done.text
    cgroup_cluster.wait_until(lambda: len(asked(cgroup_cluster)) >= 2)  # accounting is told a while later
    assert asked(cgroup_cluster) == [600, 1500]
    assert cgroup_work.final("hungry") == {"eaten": b"700\n"}
    assert "longhaul: hungry: Slurm ended 1 attempt for want of memory; asking for 1500 MB" in done.text


def asked(cluster: Cluster) -> list[int]:
    """The MB that each job of the run asked for, as accounting knows it."""
    # By itself sacct begins at midnight.
    words = ("--starttime=now-1days", "--allocations", "--noheader", "--parsable2", "--format=comment,reqtres")
    text = cluster.run("sacct", *words)
    return [int(found) for line in text.splitlines() if "hungry" in line for found in re.findall(r"mem=(\d+)M", line)]
