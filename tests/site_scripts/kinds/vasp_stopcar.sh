#!/bin/bash
# comes to: engine command, segments of 2 to 48 h (a job may start with less time), stopped by STOPCAR and its text; the restart files asked
#SBATCH -J vasp
#SBATCH -q regular
#SBATCH -C knl
#SBATCH -N 2
#SBATCH --ntasks-per-node=16
#SBATCH --time=48:00:00
#SBATCH --time-min=02:00:00
#SBATCH --comment=96:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
module load vasp/20181030-knl
export OMP_NUM_THREADS=4
save() {
    echo "LSTOP = .TRUE." > STOPCAR
    wait
    cp -p CONTCAR POSCAR
    scontrol requeue $SLURM_JOB_ID
}
trap save USR1
srun -n 32 -c 16 --cpu_bind=cores vasp_std &
wait
