"""How are the ranks of a task started?

PyTorch's launchers do it (`torchrun`, and Accelerate's, which is one with more around it). A task is a node to them:
several tasks meet at the address that Swell gives the gang. How many GPUs a task has differs from attempt to attempt,
so the launcher is told by the task's own variables when it starts.

The launcher is a module of the Python that runs the script, not a program on PATH: an environment that is not
activated, or a `torchrun` of another one, is a common mistake, and shows only as a missing package much later.

`mpi` is the other way round: the command, run in the first task, is the launcher (`mpirun`), and a task is a host to
it. `swell_sdk/mpi` is what runs in all of them.
"""

from __future__ import annotations

import re
from enum import StrEnum

PYTHON = re.compile(r"python[0-9.]*")
#: programs and modules that start ranks themselves: each rank of ours would start all of them once more
PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun"})
MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher")


class Launcher(StrEnum):
    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    MPI = "mpi"


#: beside torch itself
PACKAGES = {Launcher.TORCHRUN: "torch", Launcher.ACCELERATE: "accelerate"}
OPTIONS = {
    Launcher.TORCHRUN: "-m torch.distributed.run "
    '--nnodes="$nodes" --node_rank="$node" --nproc_per_node="$gpus" '
    '--master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"',
    Launcher.ACCELERATE: "-m accelerate.commands.launch "
    '--num_machines="$nodes" --machine_rank="$node" --num_processes="$((nodes * gpus))" '
    '--main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT" '
    "--mixed_precision=no --dynamo_backend=no $several",
}
#: $1 is the Python to use; empty: the one on PATH. `exec`: signals reach the launcher, and its exit code is the task's.
SCRIPT = """\
python=$1; shift
[ -n "$python" ] || python=$(command -v python || command -v python3) || python=python
nodes=${{WORLD_SIZE:-1}} node=${{RANK:-0}} gpus=${{NUM_GPUS:-1}}
[ "$gpus" -gt 0 ] || gpus=1
[ $((nodes * gpus)) -gt 1 ] && several=--multi_gpu || several=
"$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("{package}") is None)' || {{
  echo "swell: --{launcher} needs the package {package}, which $python does not have; activate the environment that" \\
    "has it, or name its Python: swell run --{launcher} -- /path/to/python train.py" >&2
  exit 127
}}
exec "$python" {options} "$@"
"""


#: `-I`: what the job has in its folder and its PYTHONPATH is for its ranks
MPI_SCRIPT = """\
for python in python3 /usr/bin/python3 python; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
  python=
done
[ -n "$python" ] || { echo "swell: --mpi needs Python 3.9 or newer as python3 on PATH, in each task" >&2; exit 127; }
[ -r "${SWELL_SDK-}/swell_sdk/mpi/program.py" ] || {
  echo "swell: --mpi needs the package swell-sdk; install it on $(uname -n), beside Swell" >&2
  exit 127
}
exec "$python" -I -c 'import sys; sys.path.insert(0, sys.argv.pop(1))
from swell_sdk.mpi.program import main
sys.exit(main(sys.argv[1:]))' "$SWELL_SDK" run "$@"
"""
MPI_SLOTS = "SWELL_MPI_SLOTS"  # how many ranks a launcher may start in a task


class BadCommand(ValueError):
    """What a launcher cannot start, in words."""


def launch_words(launcher: Launcher, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command of a task that starts `command` once for each of its GPUs, or as MPI's launcher."""
    if launcher is Launcher.MPI:
        return ("sh", "-c", MPI_SCRIPT, "swell", *command)
    script = SCRIPT.format(launcher=launcher, package=PACKAGES[launcher], options=OPTIONS[launcher])
    return ("sh", "-c", script, "swell", *_split(launcher, command))


def mentions_launcher(command: tuple[str, ...]) -> bool:
    """Does it start ranks itself, as far as its words tell, those of a shell's included?"""
    words = [word.rpartition("/")[2] for text in command for word in text.split()]
    return any(word in PROGRAMS or word.startswith(MODULES) for word in words)


def _refuse_second(launcher: Launcher, command: tuple[str, ...]) -> None:
    started = command[0].rpartition("/")[2]
    if "-m" in command[1:3]:
        module = command[command.index("-m") + 1 :][:1]
        started = next((name for name in module if name.startswith(MODULES)), started)
    if started in PROGRAMS or started.startswith(MODULES):
        raise BadCommand(
            f"--{launcher} starts one rank for each GPU, and {started} would start its own ranks in each of them; "
            f"write only the script after `--`, or leave out --{launcher}"
        )


def _split(launcher: Launcher, command: tuple[str, ...]) -> tuple[str, ...]:
    """The Python (empty: any), and the rest as launchers take it: a script, `-m` and a module, or a program."""
    first, *rest = command
    _refuse_second(launcher, command)
    if not PYTHON.fullmatch(first.rpartition("/")[2]):
        return ("", *command) if first.endswith(".py") else ("", "--no_python", *command)
    while rest and rest[0] == "-u":  # its output is not buffered anyway
        rest = rest[1:]
    if rest and (not rest[0].startswith("-") or (rest[0] == "-m" and len(rest) > 1)):
        return (first, *rest)
    found = f"{rest[0]} after {first}" if rest else f"{first} alone"
    raise BadCommand(
        f"{launcher} starts a script (train.py), a module (python -m package.train) or a program, but the command has "
        f"{found}; leave out the options of {first}"
    )
