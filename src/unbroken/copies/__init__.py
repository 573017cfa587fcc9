"""Copies of a run's checkpoints in a second place, and the way back from there."""
