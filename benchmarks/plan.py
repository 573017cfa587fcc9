"""What planning costs: `snakemake -n` of longhaul against a bare rule with the same graph of jobs.

The bare rule is the least that makes such chains: one rule, the record before as an ancient input, all records as
targets in order; no settings, no log, no resources, no script.
"""

import tempfile
from functools import partial
from pathlib import Path

from support.measure import ROOT, SNAKEMAKE, Cost, cost_of, in_turns, machine, options, publish, ratios, spread, table

COMMAND = [*SNAKEMAKE, "--dry-run", "--cores", "2", "--rerun-triggers", "mtime"]

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


def longhaul(folder: Path, names: list[tuple[str, str]], segments: int) -> Cost:
    """`names`: the runs, each with its engine."""
    (folder / "config").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "config.yaml").write_text(CONFIG.format(segments=segments))
    (folder / "train.py").touch()
    rows = [f"{name}\t{engine}\t100\t{'train.py' if engine == 'torch' else ''}" for name, engine in names]
    (folder / "config" / "runs.tsv").write_text("\n".join(["run\tengine\tsettings.goal\tsettings.script", *rows]))
    return cost_of([*COMMAND, "--snakefile", str(ROOT / "Snakefile")], folder)


def variants(base: Path, runs: int, segments: int, is_all: bool) -> dict:
    """The bare rule first: the others are compared with it."""
    numbers = range(runs)
    one = [(f"run_{n:05d}", "toy") for n in numbers]
    alike = [(f"run_{n:05d}", "torch" if n % 2 else "toy") for n in numbers]
    apart = [(f"train_{n:05d}", "torch") if n % 2 else (f"count_{n:05d}", "toy") for n in numbers]
    files = [(f"run_{n:05d}", "torch") for n in numbers]
    found = {
        "bare rule, `shell:`": partial(bare, base / "bare", runs, segments, DOES_SHELL),
        "longhaul, one engine (toy)": partial(longhaul, base / "one", one, segments),
        "longhaul, two engines": partial(longhaul, base / "two", apart, segments),
    }
    if is_all:
        found["longhaul, one engine, a file as input (torch)"] = partial(longhaul, base / "torch", files, segments)
        found["longhaul, two engines, names all begin alike"] = partial(longhaul, base / "alike", alike, segments)
        found["bare rule, `script:`"] = partial(bare, base / "script", runs, segments, DOES_SCRIPT)
    return found


def measure(runs: int, segments: int, rounds: int, is_all: bool) -> str:
    with tempfile.TemporaryDirectory() as base:
        found = in_turns(variants(Path(base), runs, segments, is_all), rounds)
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
        large=(bool, False, "once more with five times the segments, one round: ten minutes"),
    )
    where = machine("snakemake")
    publish("plan", f"{where}\n\n{measure(chosen.runs, chosen.segments, chosen.rounds, True)}", chosen.write)
    if chosen.large:
        where = machine("snakemake")
        publish("plan-large", f"{where}\n\n{measure(chosen.runs, 5 * chosen.segments, 1, False)}", chosen.write)
