"""What cutting a run into ten segments costs: the same work as a chain and as one uninterrupted segment.

Both under a real snakemake.  The toy rests most of the time and its segments end when their time is up; the training
uses one core and its segments end after a tenth of the steps.
"""

import tempfile
from functools import partial
from pathlib import Path

from support import chains
from support.chains import Chain, by_part
from support.measure import in_turns, machine, options, publish, ratios, spread, table


def compare(engine: str, found: dict[str, list[Chain]]) -> str:
    whole, chain = found["whole"], found["chain"]
    rows = [_row(name, runs, whole) for name, runs in (("one segment", whole), ("chain", chain))]
    header = ["variant", "segments", "seconds", "times", "CPU seconds", "times", "working, seconds"]
    return f"**{engine}**\n\n{table(header, rows)}\n\n{_parts(engine, chain)}"


def _row(name: str, runs: list[Chain], whole: list[Chain]) -> list[str]:
    row = [name, spread([run.segments for run in runs], 0)]
    for key in ("wall_seconds", "cpu_seconds"):
        values, bases = ([getattr(run.cost, key) for run in group] for group in (runs, whole))
        row += [spread(values, 1), spread(ratios(values, bases))]
    return [*row, spread([run.working_seconds for run in runs], 1)]


def _parts(engine: str, runs: list[Chain]) -> str:
    parts = by_part(each for run in runs for each in run.between)
    unused = [seconds for run in runs for seconds in run.unused_seconds]
    rows = [[name, spread(seconds, 3)] for name, seconds in parts.items()]
    if engine == "toy":
        rows.append(["left of a segment's time when it ended (nobody waits for it)", spread(unused, 3)])
    return table(["from the last step of a segment to the first of the next", "seconds"], rows)


if __name__ == "__main__":
    chosen = options(
        __doc__,
        segments=(int, 10, "how many segments the chain has"),
        toy_seconds=(float, 2.5, "length of a toy segment"),
        torch_steps=(int, 1500, "steps of the training in all"),
        rounds=(int, 2, "how often"),
    )
    step = 0.005
    # A little less than fits, so that the last segment is not a crumb.
    toy_steps = int(chosen.segments * (chosen.toy_seconds - 0.5) / step * 0.9)
    where = machine("snakemake", "torch")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        toys = {
            "whole": partial(chains.toy, base, toy_steps, step, 1, None),
            "chain": partial(chains.toy, base, toy_steps, step, 2 * chosen.segments, chosen.toy_seconds),
        }
        torches = {
            "whole": partial(chains.torch, base, chosen.torch_steps, 1),
            "chain": partial(chains.torch, base, chosen.torch_steps, chosen.segments),
        }
        pages = [compare("toy", in_turns(toys, chosen.rounds)), compare("torch", in_turns(torches, chosen.rounds))]
    publish("chain", "\n\n".join([where, *pages]), chosen.write)
