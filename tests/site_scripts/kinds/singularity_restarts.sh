#!/bin/bash
# comes to: engine command in a container: `--resume` only where the job was requeued; exit code 9 is "saved, more to do"
#SBATCH -p gpu
#SBATCH --gres gpu:1
#SBATCH --time=60:0:0
#SBATCH --requeue
#SBATCH --signal=B:INT@60
options=""
if [ -n "$SLURM_RESTART_COUNT" ] && [ "$SLURM_RESTART_COUNT" -gt 0 ]; then
    options="--resume model.pt"
fi
singularity exec --nv python.sif python3 train.py $options
if [ $? -eq 9 ]; then
    scontrol requeue $SLURM_JOB_ID
fi
