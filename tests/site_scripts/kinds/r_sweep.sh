#!/bin/bash
# comes to: a run for each of the 4 tasks, with the words of its line of params.txt
#SBATCH --job-name=sweep
#SBATCH --array=1-4%2
#SBATCH --time=04:00:00
#SBATCH --mem=500M
#SBATCH --output=logs/%A_%a.out
module load r/4.3
line=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)
mkdir -p out
srun Rscript walk.R $line --out out/result_$SLURM_ARRAY_TASK_ID.csv
