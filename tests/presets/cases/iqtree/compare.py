"""Print what differs between two runs of IQ-TREE: trees, likelihoods beyond its tolerance, supports beyond theirs."""

import re
import sys
from pathlib import Path

TOLERANCE = 0.02  # of a log likelihood; IQ-TREE stops when steps gain less than 0.01
SUPPORT = 8.0  # percent; of 1,000 samples the standard error is at most 1.6, but each search draws other trees for them


def splits(text: str) -> dict[frozenset[str], float]:
    """Return the branches of a tree as the taxa on their side without the first taxon, each with its support."""
    found, open_clades = {}, [set()]
    taxa = sorted(re.findall(r"[(,](\w+):", text))
    for token in re.findall(r"\(|\)[\d.]*|[(,]?\w+:[^,()]*", text):
        if token == "(":
            open_clades.append(set())
        elif token.startswith(")"):
            clade = open_clades.pop()
            open_clades[-1] |= clade
            side = clade if taxa[0] not in clade else set(taxa) - clade
            if 1 < len(side) < len(taxa) - 1:
                found[frozenset(side)] = float(token[1:] or "nan")
        else:
            open_clades[-1].add(token.lstrip("(,").partition(":")[0])
    return found


def said(folder: Path, pattern: str) -> str:
    return re.search(pattern, (folder / "genes.phy.iqtree").read_text())[1]


def likelihood(folder: Path) -> float:
    return float(said(folder, r"Log-likelihood of the tree: (\S+)"))


one, other = map(Path, sys.argv[1:])
if abs(likelihood(one) - likelihood(other)) > TOLERANCE:
    print(f"log likelihood: {likelihood(one)} and {likelihood(other)}")
models = [said(folder, r"Best-fit model according to BIC: (\S+)") for folder in (one, other)]
if models[0] != models[1]:
    print(f"models: {models[0]} and {models[1]}")
for name in ("genes.phy.treefile", "genes.phy.contree"):
    a, b = (splits((folder / name).read_text()) for folder in (one, other))
    if a.keys() != b.keys() or len(a) != 17:
        print(f"{name}: other trees: {len(a)}, {len(b)}, {len(a.keys() ^ b.keys())} branches differ")
    for each in a.keys() & b.keys():
        if abs(a[each] - b[each]) > SUPPORT:
            print(f"{name}: support of {sorted(each)}: {a[each]} and {b[each]}")
for folder in (one, other):
    ends = re.findall(r"^Date and Time:", (folder / "genes.phy.log").read_text(), re.MULTILINE)
    if len(ends) != 1:
        print(f"{folder}: the log ends {len(ends)} times")
