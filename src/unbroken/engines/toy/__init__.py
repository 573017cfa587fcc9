"""The toy: the smallest engine, which counts."""
