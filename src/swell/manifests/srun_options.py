"""Which options has Slurm's `srun`, and what becomes of each inside a batch script?

A value that an option takes is always consumed, so that it never becomes the program. The table is that of Slurm's own
manual (22.05 to 24.11); docs/slurm.md has it in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Takes(StrEnum):
    """Does a value belong to it?"""

    NONE = "no"
    VALUE = "yes"
    PERHAPS = "perhaps"  # only behind = or, of a letter, in the same word


class SrunOutcome(StrEnum):
    KEPT = "kept"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SrunOption:
    name: str
    letter: str  #: empty: it has none
    takes: Takes
    outcome: SrunOutcome
    meaning: str  #: what it does, why it does nothing, or why it is refused; in words that follow its name

    @property
    def words(self) -> tuple[str, ...]:
        return (f"--{self.name}", *((f"-{self.letter}",) if self.letter else ()))


OF_JOB = "is of the job, not of a step, as in Slurm's own jobs"
PLACES = "all tasks run on the machine of the job, with its CPUs and memory"
BINDS = "tasks are not bound to single CPUs"
GPUS = "every task sees all GPUs of the job; `--gpus-per-task` divides them"
SAYS_NOTHING = "says nothing more or less"
NO_PROGRAM = "runs another program around each task; start it in the script"

KEPT = """
chdir D yes folder of the tasks
cpus-per-task c yes what a task reads in `SLURM_CPUS_PER_TASK`
error e yes file for standard error; patterns as for `output`
export - yes `ALL`, `NONE` or `ALL,LR=0.1`; without `ALL` only those, `PATH`, `HOME` and what Swell gives
gpus-per-task - yes so many of the job's GPUs for each task, each its own
help h no prints where the options are listed
input i yes file for standard input, `none`, or the number of the only task that has it
jobid - yes only this job's own
label l no each line of output begins with the number of its task
nodes N yes only with `ntasks-per-node`: tasks are both multiplied
ntasks n yes how many tasks are started
ntasks-per-node - yes where `ntasks` is not given: how many tasks are started for each node of `nodes`
open-mode - yes `append` or `truncate`
output o yes file: `%t` (the task) `%j %J %A %a %x %u %N %n %s %%`; `none`, or the number of the only task shown
time t yes the step is stopped after it
usage - no prints where the options are listed
version V no prints that it is Swell's
"""
IGNORED: dict[str, str] = {
    OF_JOB: """
account A yes, acctg-freq - yes, begin b yes, cluster-constraint - yes, clusters M yes, comment - yes, constraint C yes,
contiguous - no, deadline - yes, delay-boot - yes, dependency d yes, hold H no, immediate I perhaps, licenses L yes,
mail-type - yes, mail-user - yes, mcs-label - yes, nice - perhaps, no-kill k perhaps, partition p yes, power - yes,
prefer - yes, priority - yes, profile - yes, propagate - perhaps, qos q yes, reboot - no, reservation - yes,
signal - yes, spread-job - no, switches - yes, time-min - yes, tmp - yes, use-min-nodes - no, wckey - yes
""",
    PLACES: """
bcast - perhaps, bcast-exclude - yes, compress - perhaps, core-spec S yes, cores-per-socket - yes, cpu-freq - yes,
cpus-per-gpu - yes, distribution m yes, exact - no, exclude x yes, exclusive - perhaps, extra-node-info B yes,
mem - yes, mem-per-cpu - yes, mem-per-gpu - yes, mincpus - yes, nodefile F yes, nodelist w yes, ntasks-per-core - yes,
ntasks-per-gpu - yes, ntasks-per-socket - yes, ntasks-per-tres - yes, overcommit O no, overlap - no, oversubscribe s no,
relative r yes, resv-ports - perhaps, segment - yes, send-libs - perhaps, sockets-per-node - yes, stepmgr - no,
thread-spec - yes, threads T yes, threads-per-core - yes, treewidth - yes
""",
    BINDS: "accel-bind - yes, cpu-bind - yes, gres-flags - yes, hint - yes, mem-bind - yes, tres-bind - yes",
    GPUS: """
gpu-bind - yes, gpu-freq - yes, gpus G yes, gpus-per-node - yes, gpus-per-socket - yes, gres - yes, tres-per-task - yes
""",
    SAYS_NOTHING: """
disable-status X no, msg-timeout - yes, quiet Q no, quit-on-interrupt - no, slurmd-debug - yes, unbuffered u no,
verbose v no
""",
    "names a step, and steps have no names": "job-name J yes",
    "a program finds its peers by what it is told, or by `mpirun`": "mpi - yes",
    "a task that failed does not end the others": "kill-on-bad-exit K perhaps, oom-kill-step - perhaps",
    "a step lasts until its last task has ended": "wait W yes, wait-for-children - no",
    "a task has the variables of the step": "preserve-env E no",
    "there is no display": "x11 - perhaps",
}
REFUSED: dict[str, str] = {
    "starts different programs; write one `srun -n 1 PROGRAM &` for each, then `wait`": "multi-prog - no",
    "is of a heterogeneous job; write a job file with roles": "het-group - yes",
    "needs a terminal, which a batch script has not; use `swell exec`": "pty - perhaps, interactive - no",
    "starts nothing; use `swell submit --dry-run`": "test-only - no",
    "starts tasks outside of the job": "no-allocate Z no, external - no",
    "asks for another user or group; submit the script as that user": "uid - yes, gid - yes",
    "names an OCI bundle; write a job file with image": "container - yes, container-id - yes",
    "asks for a burst buffer, and there is none; copy the data in the script": "bb - yes, bbf - yes",
    "asks for a network switch, which Swell does not know": "network - yes",
    NO_PROGRAM: "prolog - yes, epilog - yes, task-prolog - yes, task-epilog - yes",
}


def _kept() -> Iterator[SrunOption]:
    for line in KEPT.strip().splitlines():
        name, letter, takes, meaning = line.split(" ", 3)
        yield SrunOption(name, letter.strip("-"), Takes(takes), SrunOutcome.KEPT, meaning)


def _others(groups: dict[str, str], outcome: SrunOutcome) -> Iterator[SrunOption]:
    for meaning, listed in groups.items():
        for one in listed.split(","):
            name, letter, takes = one.split()
            yield SrunOption(name, letter.strip("-"), Takes(takes), outcome, meaning)


OPTIONS = (*_kept(), *_others(IGNORED, SrunOutcome.IGNORED), *_others(REFUSED, SrunOutcome.REFUSED))
