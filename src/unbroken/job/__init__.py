"""Jobs on Slurm: what one of them does, and the array of a run that they form."""
