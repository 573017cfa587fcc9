#!/usr/bin/env bash
# comes to: engine dmtcp, program ./count 500, segments of a minute, saved every 10 seconds
#SBATCH --job-name=ckpt-sample
#SBATCH --output=ckpt-sample-%j.out
#SBATCH --mail-type=NONE
#SBATCH --mem=100mb
#SBATCH --time=00:01:00
printf "\nHello from ${SLURMD_NODENAME}!\n"
if [ -e dmtcp_restart_script.sh ]; then
    timeout 50 ./dmtcp_restart_script.sh
else
    timeout 50 dmtcp_launch --no-coordinator -p 0 -i 10 ./count 500
fi
if [ $? -eq 124 ]; then sbatch "$0"; fi
echo -e "\n\nEnding:   "`date +"%D %T"`
