#!/bin/bash
# comes to: one run of 4 segments: the script submits the same job four times, each after the one before
first=$(sbatch --parsable --time=06:00:00 --cpus-per-task=4 md.sbatch)
second=$(sbatch --parsable --dependency=afterany:$first --time=06:00:00 --cpus-per-task=4 md.sbatch)
third=$(sbatch --parsable --dependency=afterany:$second --time=06:00:00 --cpus-per-task=4 md.sbatch)
sbatch --dependency=afterany:$third --time=06:00:00 --cpus-per-task=4 md.sbatch
