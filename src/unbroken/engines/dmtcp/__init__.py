"""Checkpoint any unmodified process from outside: the DMTCP engine."""
