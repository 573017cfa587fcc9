"""Hand-off on Slurm: from the last step of a segment to the first of the next, and what waiting costs the controller.

On a real cluster of this machine's own (tests/cluster/lab.py), idle but for the chain that is measured.
"""

from functools import partial

from support import slurm
from support.chains import by_part
from support.measure import machine, options, publish, spread, table
from support.slurm import ASKING, Lab, Load

from unbroken.cli.run_command import DETACHED

# All that the laboratory's nodes take at once; what jobs ask grows with their number, what the driver asks does not.
AT_WORK = 16
# What `by_part` calls the sum.
ALL = "**all**"


def handoff(here: Lab, seconds: float, segments: int) -> str:
    """A table of the ways to chain jobs, then the parts of those that are unbroken's."""
    plain = partial(slurm.chain, here, seconds, segments, "slurm", "--executor", "slurm")
    found = {
        "`--array=1-N%1`": slurm.by_hand(here, seconds, segments, is_array=True),
        "`--dependency=afterok`": slurm.by_hand(here, seconds, segments, is_array=False),
        "plain plugin, its own defaults": plain("--slurm-init-seconds-before-status-checks", "40"),
        "plain plugin, our profile": plain(),
        "attached": slurm.chain(here, seconds, segments, "slurm", "--executor", "unbroken"),
        "detached": slurm.chain(here, seconds, segments, "slurm", *DETACHED),
    }
    parts = {name: by_part(gaps) for name, gaps in found.items()}
    rows = [[name, str(len(gaps)), spread(parts[name][ALL], 1)] for name, gaps in found.items()]
    title = f"from the last step to the first of the next, segments of {seconds:g} s"
    texts = [table([title, "hand-offs", "seconds"], rows)]
    own = [name for name in found if len(parts[name]) > 2]
    lines = [[part, *(spread(parts[name][part], 1) for name in own)] for part in parts[own[0]]]
    texts.append(table(["where the seconds went", *own], lines))
    return "\n\n".join(texts)


def handoff_by_default(here: Lab, seconds: float, segments: int) -> str:
    """A table of three ways where Slurm schedules as it does by default."""
    found = {
        "`--array=1-N%1`": slurm.by_hand(here, seconds, segments, is_array=True),
        "attached": slurm.chain(here, seconds, segments, "slurm", "--executor", "unbroken"),
        "detached": slurm.chain(here, seconds, segments, "slurm", *DETACHED),
    }
    rows = [[name, str(len(gaps)), spread(by_part(gaps)[ALL], 1)] for name, gaps in found.items()]
    return table(["Slurm's own SchedulerParameters", "hand-offs", "seconds"], rows)


def load(here: Lab, counts: list[int], seconds: float) -> str:
    """What a driver does while jobs wait, for each minute."""
    rows = [_row(f"plain plugin, our profile, {counts[0]}", slurm.waiting(here, counts[0], seconds, "slurm"))]
    rows += [_row(f"attached, {count}", slurm.waiting(here, count, seconds, "unbroken")) for count in counts]
    rows.append(_row(f"attached, {AT_WORK} at work", slurm.working(here, AT_WORK, seconds)))
    header = [
        "driver, jobs that wait (or are at work)",
        *(f"{name} a minute" for name in ASKING),
        "CPU seconds a minute",
        "peak MB",
    ]
    return table(header, rows)


def _row(name: str, found: Load) -> list[str]:
    counted = [f"{found.commands[word]:.1f}" for word in ASKING]
    return [name, *counted, f"{found.cpu_seconds:.2f}", f"{found.peak_mb:.0f}"]


if __name__ == "__main__":
    chosen = options(
        __doc__,
        only=(str, "", "handoff, default or waiting, one of them alone"),
        seconds=(float, 60.0, "length of a segment"),
        segments=(int, 11, "how many segments each chain has"),
        live=(str, "100,300,1000", "how many jobs wait"),
        waiting_seconds=(float, 300.0, "how long the waiting driver is watched"),
    )
    where = machine("snakemake", "snakemake-executor-plugin-slurm")
    if chosen.only in ("", "handoff"):
        with slurm.lab() as here:
            text = handoff(here, chosen.seconds, chosen.segments)
        publish("handoff_slurm", f"{where}\n\n{text}", chosen.write)
    if chosen.only in ("", "default"):
        with slurm.lab(is_default=True) as here:
            text = handoff_by_default(here, chosen.seconds, chosen.segments)
        publish("handoff_slurm_default", f"{where}\n\n{text}", chosen.write)
    if chosen.only in ("", "waiting"):
        with slurm.lab() as here:
            text = load(here, [int(count) for count in chosen.live.split(",")], chosen.waiting_seconds)
        publish("waiting_slurm", f"{where}\n\n{text}", chosen.write)
