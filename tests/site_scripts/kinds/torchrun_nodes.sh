#!/bin/bash
# comes to: engine command: srun starts torchrun on both nodes; the address of the first node is found in the job
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH -c 8
#SBATCH -t 1-00:15:00
#SBATCH --mem=128G
#SBATCH --gres=gpu:a30:3
#SBATCH -o logs/slurm.%j.out
#SBATCH --requeue
module load mamba/latest
source activate torch
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
MASTER_PORT=29400
echo "MASTER_ADDR: $MASTER_ADDR"
srun torchrun --nnodes=2 --nproc-per-node=3 --rdzv_backend=c10d --rdzv_id=7 \
    --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py --checkpoint snapshot.pt
