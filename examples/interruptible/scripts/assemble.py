"""Puts reads together, with longer and longer words.  After each length it writes what it has into its folder.

Begun anew it forgets what is there; `--continue -o FOLDER` goes on from it, with the options that it was begun with.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict

BASES = "ACGT"


def read_fasta(path):
    with open(path) as file:
        return [line.strip() for line in file if not line.startswith(">")]


def unitigs(sequences, k):
    """All paths without a fork in the graph of words of length k."""
    words = {text[at : at + k] for text in sequences for at in range(len(text) - k + 1)}
    after, before = defaultdict(list), defaultdict(list)
    for word in words:
        for base in BASES:
            if word[1:] + base in words:
                after[word].append(word[1:] + base)
                before[word[1:] + base].append(word)
    found = []
    for word in words:
        if len(before[word]) == 1 and len(after[before[word][0]]) == 1:
            continue
        path = word
        while len(after[word]) == 1 and len(before[after[word][0]]) == 1:
            word = after[word][0]
            path += word[-1]
        found.append(path)
    return sorted(found, key=lambda path: (-len(path), path))


parser = argparse.ArgumentParser()
parser.add_argument("reads", nargs="?")
parser.add_argument("contigs", nargs="?")
parser.add_argument("-k", help="lengths of the words, with commas")
parser.add_argument("-o", dest="folder", required=True)
parser.add_argument("--continue", dest="goes_on", action="store_true")
parser.add_argument("--pace", type=float, default=0)
options = parser.parse_args()

path = os.path.join(options.folder, "state.json")
if options.goes_on:
    if options.reads or options.k:
        sys.exit("--continue takes its options from the folder")
    with open(path) as file:
        state = json.load(file)
    print(f"going on after {state['done']}", flush=True)
else:
    os.makedirs(options.folder, exist_ok=True)
    lengths = [int(word) for word in options.k.split(",")]
    state = {"reads": options.reads, "out": options.contigs, "lengths": lengths, "done": [], "contigs": []}

reads = read_fasta(state["reads"])
for k in state["lengths"][len(state["done"]) :]:
    state["contigs"] = unitigs(reads + state["contigs"], k)
    state["done"].append(k)
    with open(path, "w") as file:
        json.dump(state, file)
    print(f"k = {k}: {len(state['contigs'])} contigs, the longest {len(state['contigs'][0])}", flush=True)
    if state["done"] != state["lengths"]:
        time.sleep(options.pace)

with open(state["out"], "w") as file:
    for number, contig in enumerate(state["contigs"], start=1):
        file.write(f">contig_{number} length={len(contig)}\n{contig}\n")
