"""Print what differs between two runs of BEAST: samples that are lost or doubled, and means beyond their error."""

import re
import sys
from pathlib import Path
from statistics import fmean, stdev

LAST, BURN_IN = 500_000, 0.2
EVERY = {"genes.log": 1_000, "genes.trees": 2_000}
MOST_ERRORS = 6.0  # standard errors between two means, of which each is one of some 20 independent samples at least
INDEPENDENT = 20


def rows(folder: Path) -> list[list[str]]:
    """Return the lines of the log without its comments."""
    lines = (folder / "genes.log").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


one, other = map(Path, sys.argv[1:])
for folder in (one, other):
    trees = (folder / "genes.trees").read_text()
    found = {
        "genes.log": [int(row[0]) for row in rows(folder)[1:]],
        "genes.trees": [int(number) for number in re.findall(r"^tree STATE_(\d+) =.*;$", trees, re.MULTILINE)],
    }
    for name, every in EVERY.items():
        if found[name] != list(range(0, LAST + 1, every)):
            print(
                f"{folder.name}/{name}: {len(found[name])} samples to {found[name][-1]}; each to {LAST} is wanted once"
            )
    if trees.count("End;") != 2 or not trees.rstrip().endswith("End;"):
        print(f"{folder.name}/genes.trees: it has no end")
if rows(one)[:20] != rows(other)[:20]:
    print("genes.log: other samples before the first save")
header, *_ = rows(one)
for at, name in enumerate(header[1:], 1):
    a, b = ([float(row[at]) for row in rows(folder)[1:]] for folder in (one, other))
    a, b = (values[int(len(values) * BURN_IN) :] for values in (a, b))
    error = ((stdev(a) ** 2 + stdev(b) ** 2) / INDEPENDENT) ** 0.5
    if abs(fmean(a) - fmean(b)) > MOST_ERRORS * error:
        print(f"{name}: {fmean(a):.6g} and {fmean(b):.6g}, with an error of {error:.2g}")
