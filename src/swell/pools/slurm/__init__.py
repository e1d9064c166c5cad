"""A pool whose workers are jobs of a Slurm cluster, asked by its commands: sbatch, squeue, scontrol, scancel, sacct.

The pool runs where those commands are, such as on a login node, as the user whose jobs the workers will be.
"""

from __future__ import annotations

from swell.machine.worker_options import Flag, FlagKind
from swell.pools.kinds import LegacyCommand, PoolKind
from swell.pools.options import PoolOptions
from swell.pools.slurm.backend import SlurmBackend
from swell.pools.slurm.render import SlurmOptions, read_slurm_options

HELP = """Start workers as jobs of a Slurm cluster.

\b
swell pool start slurm --server https://box.lab:8443 --token-file pool.token --partition gpu --gpus 1 --max-workers 8
swell pool start slurm … --dry-run     print the job script and start nothing
"""


def connect(options: PoolOptions, slurm: SlurmOptions) -> SlurmBackend:
    return SlurmBackend(options, slurm)


KIND = PoolKind(
    name="slurm",
    help=HELP,
    flags=(
        Flag("partition", "partition", FlagKind.TEXT, "NAME", "Partition.  [default: that of the cluster]"),
        Flag("account", "account", FlagKind.TEXT, "NAME", "Account that is charged.  [default: your own]"),
        Flag("qos", "qos", FlagKind.TEXT, "NAME", "Quality of service.  [default: that of the cluster]"),
        Flag("nodelist", "nodelist", FlagKind.TEXT, "NODES", "Only these nodes, as Slurm writes them: node[1-4]."),
        Flag("exclude", "exclude", FlagKind.TEXT, "NODES", "Not these nodes."),
        Flag("constraint", "constraint", FlagKind.TEXT, "FEATURES", "Features that the node must have."),
        Flag("gpu-type", "gpu_type", FlagKind.TEXT, "TYPE", "Type of GPU, as in --gres=gpu:TYPE:N."),
        Flag(
            "time",
            "time",
            FlagKind.TEXT,
            "TIME",
            "Time limit of each worker, for example 2-00:00:00.  [default: the partition's]",
        ),
        Flag("log-dir", "log_folder", FlagKind.PATH, "DIR", "Folder for the workers' own logs, which all nodes share."),
    ),
    read=read_slurm_options,
    connect=connect,
    legacy=LegacyCommand(
        "slurm-batch",
        has_our_disks=True,
        defaults={"name": "codalab-slurm-worker", "gpus": "1", "time": "10-0"},
        renamed={
            "job-name": "name",
            "slurm-work-dir": "log-dir",
            "exit-after-num-failed": "max-failed-starts",
        },
        ignored={
            "user": "Slurm's jobs belong to whoever runs the pool",
            "password-file": "a token takes the place of user and password (--token-file)",
        },
    ),
)
