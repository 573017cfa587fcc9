"""Print what differs between two runs of MrBayes: samples lost or doubled, means and supports beyond their error."""

import re
import sys
from pathlib import Path
from statistics import fmean, stdev

EVERY, LAST, BURN_IN = 100, 50_000, 0.25
MOST_ERRORS = 6.0  # standard errors between two means, of which each is one of some 20 independent samples at least
INDEPENDENT = 20
SUPPORT = 0.25


def table(path: Path) -> dict[str, list[float]]:
    """Return the columns of a file of samples."""
    rows = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("[")]
    return {name: [float(row[at]) for row in rows[1:]] for at, name in enumerate(rows[0])}


def supports(folder: Path) -> dict[str, float]:
    """Return how often each split was sampled."""
    names = dict(re.findall(r"^\s*(\d+)\t([.*]+)$", (folder / "genes.nex.parts").read_text(), re.MULTILINE))
    rows = re.findall(r"^\s*(\d+)\t+\d+\t(\S+)", (folder / "genes.nex.tstat").read_text(), re.MULTILINE)
    return {names[number]: float(share) for number, share in rows}


one, other = map(Path, sys.argv[1:])
for run in ("run1", "run2"):
    tables = [table(folder / f"genes.nex.{run}.p") for folder in (one, other)]
    for folder, found in zip((one, other), tables, strict=True):
        trees = re.findall(r"tree gen\.(\d+) =", (folder / f"genes.nex.{run}.t").read_text())
        wanted = list(range(0, LAST + 1, EVERY))
        if found["Gen"] != wanted or list(map(int, trees)) != wanted:
            print(
                f"{folder.name} {run}: {len(found['Gen'])} samples, {len(trees)} trees; {len(wanted)} wanted, each once"
            )
        if not (folder / f"genes.nex.{run}.t").read_text().rstrip().endswith("end;"):
            print(f"{folder.name} {run}: the file of trees has no end")
    if any(tables[0][name][:20] != tables[1][name][:20] for name in tables[0]):
        print(f"{run}: other samples before the first save")
    for name in sorted(tables[0].keys() - {"Gen"}):
        a, b = (found[name][int(len(found[name]) * BURN_IN) :] for found in tables)
        error = ((stdev(a) ** 2 + stdev(b) ** 2) / INDEPENDENT) ** 0.5
        if abs(fmean(a) - fmean(b)) > MOST_ERRORS * error:
            print(f"{run}: {name}: {fmean(a):.6g} and {fmean(b):.6g}, with an error of {error:.2g}")
a, b = map(supports, (one, other))
if len(a) < 10:
    print(f"{len(a)} splits were found")
for split in sorted(a.keys() | b.keys()):
    if abs(a.get(split, 0.0) - b.get(split, 0.0)) > SUPPORT:
        print(f"support of {split}: {a.get(split, 0.0)} and {b.get(split, 0.0)}")
diagnostics = [
    re.findall(r"^(\d+)\t", (folder / "genes.nex.mcmc").read_text(), re.MULTILINE) for folder in (one, other)
]
if diagnostics[0] != diagnostics[1] or len(diagnostics[0]) < 10:
    print(f"diagnostics at {diagnostics[0]} and {diagnostics[1]}")
