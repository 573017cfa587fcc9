#!/bin/bash
# comes to: engine command: the first part starts from the equilibrated structure, later ones from prod.rst; singleton jobs, so segments are asked
#SBATCH --job-name=prod
#SBATCH --dependency=singleton
#SBATCH --partition=gpu
#SBATCH --time=2-00:00:00
#SBATCH --gpus-per-task=1
#SBATCH --ntasks=1
module load cuda/12.4
export AMBERHOME=/opt/amber24
export PATH="$AMBERHOME/bin:$PATH"
source $AMBERHOME/amber.sh
if [[ ! -f prod.rst ]]; then
    $AMBERHOME/bin/pmemd.cuda -O -i first.in -o prod.out -p system.prmtop -c equil.rst7 -r prod.rst -x prod.nc
else
    $AMBERHOME/bin/pmemd.cuda -O -i next.in -o prod.out -p system.prmtop -c prod.rst -r prod.rst -x prod.nc
fi
