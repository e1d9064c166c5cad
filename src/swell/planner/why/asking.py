"""How does one ask for more or less of something, in the words that a job was written in?

An object of Kubernetes has fields and annotations; what came by `swell run`, or in our own notation, has options, and
the fields of a job file are called like them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Asking:
    gpus: str
    cpus: str
    memory: str
    share: str  #: of a GPU, in MiB
    tasks: str
    between: str  #: several of them
    no_gpus: str
    before: str = ""  #: the first three
    more_memory: str = "--memory"
    more_time: str = "--time"
    resize: str = "--resize immediate"

    def less(self, wants: Resources, there: Resources) -> str:
        """What would have to be asked for; empty: there is as much as it wants."""
        lower = [
            words.format(has)
            for words, wanted, has in (
                (self.gpus, wants.gpus, there.gpus),
                (self.cpus, wants.cpus_milli / 1000, there.cpus_milli / 1000),
                (self.memory, wants.memory_mib, there.memory_mib),
            )
            if wanted > has
        ]
        is_share = wants.gpu_memory_mib > there.gpu_memory_mib
        if lower == [self.gpus.format(0)] and not is_share:
            return self.no_gpus
        parts = [f"{self.before}{self.between.join(lower)}"] if lower else []
        parts += [self.share.format(there.gpu_memory_mib)] if is_share else []
        return f"{self.between.join(parts)} or less" if parts else ""

    def fewer(self, tasks: int) -> str:
        return f"{self.tasks.format(tasks)} or less"

    def fewer_gpus(self, gpus: int) -> str:
        return f"{self.before}{self.gpus.format(gpus)} or less" if gpus else self.no_gpus


OPTIONS = Asking(
    gpus="--gpus {}",
    cpus="--cpus {:g}",
    memory="--memory {}MiB",
    share="--gpu-memory {}MiB",
    tasks="--tasks {}",
    between=" ",
    no_gpus="no --gpus",
)
FIELDS = Asking(
    gpus="nvidia.com/gpu: {}",
    cpus="cpu: {:g}",
    memory="memory: {}Mi",
    share="the annotation swell.dev/gpu-memory: {}MiB",
    tasks="{} pods",
    between=", ",
    no_gpus="no nvidia.com/gpu",
    before="resources.requests of ",
    more_memory="resources.limits.memory",
    more_time="the annotation swell.dev/time",
    resize="swell.dev/resize: immediate",
)


RUN_SCHEDULER = replace(
    OPTIONS, gpus="{} GPUs", share="--estimated_memory {}", no_gpus="`swell run`, which asks for no GPU by itself"
)
SBATCH = replace(
    OPTIONS,
    gpus="#SBATCH --gpus={}",
    cpus="#SBATCH --ntasks times --cpus-per-task of {:g}",
    memory="#SBATCH --mem={}M",
    no_gpus="no #SBATCH --gpus",
)
#: Whose clients have words of their own.
VIA = {
    "sbatch": SBATCH,
    "run-scheduler": RUN_SCHEDULER,
    "POST /submit": replace(RUN_SCHEDULER, share="estimatedMemory {}"),
}


def asking(kind: str, via: str = "") -> Asking:
    """`kind`: of the object it was written as; empty: in our own notation. `via`: what it was submitted with."""
    return VIA.get(via, FIELDS if kind else OPTIONS)
