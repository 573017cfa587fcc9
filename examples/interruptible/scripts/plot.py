"""Draws how the training went, and how long the contigs are."""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

losses_file, contigs_file, picture = sys.argv[1:]

with open(losses_file) as file:
    losses = [float(row["loss"]) for row in csv.DictReader(file)]
with open(contigs_file) as file:
    lengths = [len(line) - 1 for line in file if not line.startswith(">")]

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(range(1, len(losses) + 1), losses, marker="o")
left.set(xlabel="epoch", ylabel="loss")
right.plot(range(1, len(lengths) + 1), lengths)
right.set(xlabel="contig", ylabel="bases", yscale="log")
figure.savefig(picture)
