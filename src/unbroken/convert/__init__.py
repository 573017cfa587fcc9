"""A site's Slurm script as a run: bash is read by a parser and never run."""
