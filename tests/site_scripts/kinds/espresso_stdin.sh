#!/bin/bash
# comes to: engine command, 10 tasks, input on standard input, exit code 0 is "done"
#SBATCH -J relax
#SBATCH -p labs
#SBATCH --reservation=abinitio
#SBATCH -n 10
#SBATCH --ntasks-per-node=10
#SBATCH --mem-per-cpu=1000
#SBATCH -t 12:00:00
#SBATCH -o %j_%x.out
ml purge
ml intel-compilers/2022.0.1 impi/2021.5.0
ml QuantumESPRESSO/7.2
export OMP_NUM_THREADS=1
srun pw.x < relax.in > relax.out
grep -q "JOB DONE" relax.out || sbatch $0
