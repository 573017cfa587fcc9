"""Points of two spirals, with noise."""

import numpy as np


def spirals(count, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    turn = rng.uniform(1, 12, count)
    angle = turn + np.pi * label
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) + rng.normal(0, 0.8, (count, 2))
    return np.hstack([points, rng.normal(size=(count, 30))]), label
