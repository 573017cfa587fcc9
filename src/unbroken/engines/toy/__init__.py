"""Run the toy: the smallest engine, which counts."""
