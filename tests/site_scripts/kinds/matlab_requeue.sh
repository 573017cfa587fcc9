#!/bin/bash
# comes to: engine command, `matlab -batch simulate`, 16 GB (4 GB for each of 4 cores), state.mat is its restart file, done.txt says that it is done
#SBATCH -p day
#SBATCH -c 4
#SBATCH -t 10:00:00
#SBATCH --mem-per-cpu 4G
#SBATCH -J simulate
#SBATCH --requeue
#SBATCH --mail-user=someone@example.org
#SBATCH --mail-type=ALL
module purge
module load MATLAB/2023a
[ -f done.txt ] && exit 0
if [ -f state.mat ]; then
    matlab -batch "go_on = true; simulate"
else
    matlab -batch "go_on = false; simulate"
fi
