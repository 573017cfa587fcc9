"""What the segments cost that a run has left over when it reaches its goal: no job each, against a job each."""

import tempfile
from functools import partial
from pathlib import Path

from support.measure import ROOT, SNAKEMAKE, Cost, cost_of, in_turns, machine, options, publish, spread, table

CONFIG = """
runs:
  demo:
    engine: toy
    segments: {segments}
    segment_minutes: 5
    settings:
      goal: 1
"""


def chain(base: Path, segments: int, *words: str) -> Cost:
    """A run of which the first segment reaches the goal; the config is the same each time, its results are new."""
    with tempfile.TemporaryDirectory(dir=base) as name:
        folder = Path(name)
        (folder / "config").mkdir()
        (folder / "config" / "config.yaml").write_text(CONFIG.format(segments=segments))
        return cost_of([*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), *words], folder)


if __name__ == "__main__":
    chosen = options(
        __doc__,
        segments=(int, 600, "segments of the run; one is needed"),
        jobs=(int, 20, "segments of the run with a job each"),
        rounds=(int, 3, "how often"),
    )
    where = machine("snakemake")
    with tempfile.TemporaryDirectory() as base:
        chains = {
            "none": (0, partial(chain, Path(base), 1)),
            # Without the hook that leaves them out.
            "a job each, which finds its work done": (
                chosen.jobs - 1,
                partial(chain, Path(base), chosen.jobs, "--no-hooks"),
            ),
            "unbroken": (chosen.segments - 1, partial(chain, Path(base), chosen.segments)),
        }
        found = in_turns({name: run for name, (_, run) in chains.items()}, chosen.rounds)
    rows = []
    for name, (left, _) in chains.items():
        seconds = [cost.wall_seconds for cost in found[name]]
        # Round by round, less what the run costs that has none.
        each = (
            [1000 * (cost - least.wall_seconds) / left for cost, least in zip(seconds, found["none"], strict=True)]
            if left
            else [0.0] * len(seconds)
        )
        rows.append([name, str(left), spread(seconds), spread(each, 1)])
    publish(
        "after_goal",
        f"{where}\n\n{table(['segments left over', 'how many', 'seconds in all', 'ms each'], rows)}",
        chosen.write,
    )
