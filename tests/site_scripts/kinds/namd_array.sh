#!/bin/bash
# comes to: engine command, 20 segments of 4 h, one GPU, 8 threads, a modules folder of the group; NAMD's restart files asked
#SBATCH -A molsim
#SBATCH --array=0-19%1
#SBATCH --gres=gpu:1
#SBATCH --gres-flags=enforce-binding
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=4:0:0
cd $SLURM_SUBMIT_DIR
module use /opt/group/modules
module load NAMD/3.0.1-gpu
part=$(printf "%03d" $SLURM_ARRAY_TASK_ID)
srun namd3 +p8 run.namd > run-$part.log
