#!/bin/bash
# Two tasks that srun starts, each with a CPU of its own.
#   cd examples/slurm && swell submit --wait train.sh
#SBATCH --job-name=train
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=100M
#SBATCH --time=0:10:00
#SBATCH --partition=gpu

echo "job $SLURM_JOB_NAME with $SLURM_NTASKS tasks of $SLURM_CPUS_PER_TASK CPU"
srun bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"'
