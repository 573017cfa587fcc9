"""Slurm: the only package that knows its commands, variables and time formats."""
