"""Hand-off of a rule with `unbroken exec`: from one segment to the next, beside a run of a config.

On a real cluster of this machine's own (tests/cluster/lab.py), idle but for the chain that is measured.
"""

from support import slurm
from support.chains import by_part
from support.measure import machine, options, publish, spread, table
from support.slurm import Lab


def handoff(here: Lab, seconds: float, segments: int) -> str:
    """A table of a run and of the same program as a rule, each with both executors."""
    found = {
        "run of a config, attached": slurm.chain(here, seconds, segments, "slurm", "--executor", "unbroken"),
        "run of a config, plain plugin": slurm.chain(here, seconds, segments, "slurm", "--executor", "slurm"),
        "rule with `unbroken exec`, attached": slurm.called(here, seconds, segments - 1, "unbroken"),
        "rule with `unbroken exec`, plain plugin, `--retries`": slurm.called(here, seconds, segments - 1, "slurm"),
    }
    rows = [[name, str(len(gaps)), spread(by_part(gaps)["**all**"], 1)] for name, gaps in found.items()]
    return table([f"segments of {seconds:g} s", "hand-offs", "seconds"], rows)


if __name__ == "__main__":
    chosen = options(
        __doc__,
        seconds=(float, 20.0, "length of a segment"),
        segments=(int, 5, "how many segments each chain has"),
    )
    with slurm.lab() as here:
        text = handoff(here, chosen.seconds, chosen.segments)
    publish("handoff_exec", f"{machine('snakemake', 'snakemake-executor-plugin-slurm')}\n\n{text}", chosen.write)
