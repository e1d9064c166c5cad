#!/bin/bash
# Four tasks, two at once; each writes a file of its own.
#   cd examples/slurm && swell submit --wait array.sh
#SBATCH --job-name=sweep
#SBATCH --array=1-4%2
#SBATCH --output=sweep-%A_%2a.out
#SBATCH --time=10

echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX"
