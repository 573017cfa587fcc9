#!/bin/bash
# comes to: engine gromacs: the tpr is made of its sources; 10 ranks of 2 threads, PME and bonded forces on the GPU, -maxh and -cpi are unbroken's
#SBATCH -N 1
#SBATCH -p cascade
#SBATCH --gres=gpu:1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=20
#SBATCH --time=24:00:00
#SBATCH --job-name=npt
module use /opt/site/modules/all
module load GROMACS/2021-fosscuda-2019b
name=npt
if ! test -f ./$name.cpt; then
    gmx grompp -f npt.mdp -c nvt.gro -r nvt.gro -o $name.tpr -p topol.top -maxwarn 2 -n index.ndx
fi
gmx mdrun -v -deffnm $name -maxh 23.9 -cpi $name.cpt -cpo $name.cpt -dlb yes -ntomp 2 -ntmpi 10 -pme gpu -bonded gpu -npme 1
if [ -f $name.gro ]; then echo "finished"; else sbatch $0; fi
