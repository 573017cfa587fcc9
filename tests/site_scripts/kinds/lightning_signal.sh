#!/bin/bash -l
# comes to: engine command: the signal goes to the program itself, which saves on it; 4 tasks on one node with 4 GPUs
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=6
#SBATCH --mem=0
#SBATCH --time=0-02:00:00
#SBATCH --signal=SIGUSR1@90
source $HOME/envs/lit/bin/activate
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
srun python3 train.py --devices 4 --max_epochs 200 --ckpt_path last.ckpt
