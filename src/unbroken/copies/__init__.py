"""Copies of a run's checkpoints in a second storage location, its replica, and how a lost run is restored from it."""
