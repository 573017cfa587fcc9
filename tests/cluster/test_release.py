"""Which Slurm the laboratory runs: with `make slurm-tests SLURM=/prefix` the one from there, and no other."""

import os
from pathlib import Path

from cluster.lab import Cluster


def test_every_daemon_and_command_is_of_the_release_that_was_asked_for(cluster: Cluster) -> None:
    said = dict(
        (part.strip() for part in line.split("=", 1))
        for line in cluster.run("scontrol", "show", "config").splitlines()
        if " = " in line
    )
    own = cluster.run("sinfo", "--version").split()[1]
    nodes = cluster.run("sinfo", "--noheader", "--Format=Version", "--Node").split()

    assert (said["SLURM_VERSION"], {*nodes}) == (own, {own})
    if prefix := os.environ.get("UNBROKEN_SLURM"):
        assert own == cluster.run(str(Path(prefix, "bin", "sinfo")), "--version").split()[1]
        assert {*cluster.programs()} >= {"slurmctld", "slurmd", "slurmdbd"}
        assert all(path.is_relative_to(Path(prefix).resolve()) for path in cluster.programs().values())
