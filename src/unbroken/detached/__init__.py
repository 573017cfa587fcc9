"""Chains on Slurm that no driver watches."""
