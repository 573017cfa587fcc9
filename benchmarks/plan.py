"""What planning costs: `snakemake -n` of unbroken against a bare rule with the same graph of jobs.

The bare rule is the least that makes such chains: one rule, the record before as an ancient input, all records as
targets in order; no settings, no log, no resources, no script.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from support.measure import ROOT, SNAKEMAKE, Cost, cost_of, in_turns, machine, options, publish, ratios, spread, table

COMMAND = [*SNAKEMAKE, "--dry-run", "--cores", "2", "--rerun-triggers", "mtime"]

Variants = Callable[[Path, int, int], dict[str, Callable[[], Cost]]]

BARE = """
def previous(wildcards):
    before = int(wildcards.segment) - 1
    return [f"results/{{wildcards.run}}/segments/{{before:03d}}.json"] if before else []


rule all:
    input:
        [
            f"results/run_{{run:05d}}/segments/{{segment:03d}}.json"
            for run in range({runs})
            for segment in range(1, {segments} + 1)
        ],


rule segment:
    input:
        previous=ancient(previous),
    output:
        record="results/{{run}}/segments/{{segment}}.json",
    {action}
"""
DOES_SHELL = 'shell:\n        "touch {output}"'
DOES_SCRIPT = 'script:\n        "segment.py"'

CONFIG = """
runs_table: config/runs.tsv
defaults:
  engine: toy
  segments: {segments}
  segment_minutes: 60
"""


def bare(folder: Path, runs: int, segments: int, action: str) -> Cost:
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(BARE.format(runs=runs, segments=segments, action=action))
    (folder / "segment.py").touch()
    return cost_of(COMMAND, folder)


def unbroken(folder: Path, names: list[tuple[str, str]], segments: int) -> Cost:
    """`names`: the runs, each with its engine."""
    (folder / "config").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "config.yaml").write_text(CONFIG.format(segments=segments))
    (folder / "train.py").touch()
    rows = [f"{name}\t{engine}\t100\t{'train.py' if engine == 'torch' else ''}" for name, engine in names]
    (folder / "config" / "runs.tsv").write_text("\n".join(["run\tengine\tsettings.goal\tsettings.script", *rows]))
    return cost_of([*COMMAND, "--snakefile", str(ROOT / "Snakefile")], folder)


def usual(base: Path, runs: int, segments: int) -> dict[str, Callable[[], Cost]]:
    """The bare rule first: the others are compared with it."""
    toy = [(f"run_{n:05d}", "toy") for n in range(runs)]
    torch = [(f"run_{n:05d}", "torch") for n in range(runs)]
    two = [(f"train_{n:05d}", "torch") if n % 2 else (f"count_{n:05d}", "toy") for n in range(runs)]
    return {
        "bare rule, `shell:`": partial(bare, base / "bare", runs, segments, DOES_SHELL),
        "unbroken, one engine (toy)": partial(unbroken, base / "toy", toy, segments),
        "unbroken, one engine (torch)": partial(unbroken, base / "torch", torch, segments),
        "unbroken, two engines": partial(unbroken, base / "two", two, segments),
    }


def rarer(base: Path, runs: int, segments: int) -> dict[str, Callable[[], Cost]]:
    """What explains the others."""
    alike = [(f"run_{n:05d}", "torch" if n % 2 else "toy") for n in range(runs)]
    return {
        "bare rule, `shell:`": partial(bare, base / "bare", runs, segments, DOES_SHELL),
        "bare rule, `script:`": partial(bare, base / "script", runs, segments, DOES_SCRIPT),
        "unbroken, two engines, each second run": partial(unbroken, base / "alike", alike, segments),
    }


def measure(variants: Variants, runs: int, segments: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory() as base:
        found = in_turns(variants(Path(base), runs, segments), rounds)
    basis = next(iter(found.values()))
    rows = [_row(name, costs, basis) for name, costs in found.items()]
    header = ["variant", "seconds", "times the bare rule", "CPU seconds", "times", "peak MB", "times"]
    return f"**{runs:,} runs x {segments} segments**, rounds: {rounds}\n\n{table(header, rows)}"


def _row(name: str, costs: list[Cost], basis: list[Cost]) -> list[str]:
    row = [name]
    for key, digits in (("wall_seconds", 1), ("cpu_seconds", 1), ("peak_mb", 0)):
        values, bases = ([getattr(cost, key) for cost in group] for group in (costs, basis))
        row += [spread(values, digits), spread(ratios(values, bases))]
    return row


if __name__ == "__main__":
    chosen = options(
        __doc__,
        runs=(int, 1000, "how many runs"),
        segments=(int, 20, "segments of each"),
        rounds=(int, 3, "how often"),
        large=(bool, False, "then once more with five times the segments, and what explains the numbers: 12 minutes"),
    )
    runs, segments, rounds = chosen.runs, chosen.segments, chosen.rounds
    pages = [machine("snakemake"), measure(usual, runs, segments, rounds)]
    publish("plan", "\n\n".join(pages), chosen.write)
    if chosen.large:
        pages = [machine("snakemake"), measure(usual, runs, 5 * segments, 1), measure(rarer, runs, segments, 1)]
        publish("plan-large", "\n\n".join(pages), chosen.write)
