"""Writes the data: handwritten digits, and reads of a genome that is made up of them."""

import random
import sys

import numpy as np
from sklearn.datasets import load_digits

digits_file, reads_file = sys.argv[1:]

digits = load_digits()
np.savez(digits_file, images=digits.images.astype("float32") / 16, labels=digits.target)

dice = random.Random(1)
genome = "".join("ACGT"[int(pixel) % 4 if pixel else dice.randrange(4)] for pixel in digits.images[:60].ravel())
with open(reads_file, "w") as file:
    for number in range(500):
        start = dice.randrange(len(genome) - 60)
        file.write(f">read_{number}\n{genome[start : start + 60]}\n")
