"""How does one ask for more or less of something, in the words that a job was written in?

An object of Kubernetes has fields and annotations; what came by `swell run`, or in our own notation, has options, and
the fields of a job file are called like them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swell.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Asking:
    gpus: str
    cpus: str
    memory: str
    share: str  #: of a GPU, in MiB
    tasks: str
    between: str  #: several of them
    before: str = ""  #: all of them
    more_memory: str = "--memory"
    more_time: str = "--time"

    def less(self, wants: Resources, there: Resources) -> str:
        """What would have to be asked for; empty: there is as much as it wants."""
        lower = [
            words.format(has)
            for words, wanted, has in (
                (self.gpus, wants.gpus, there.gpus),
                (self.cpus, wants.cpus_milli / 1000, there.cpus_milli / 1000),
                (self.memory, wants.memory_mib, there.memory_mib),
                (self.share, wants.gpu_memory_mib, there.gpu_memory_mib),
            )
            if wanted > has
        ]
        return self._at_most(lower, is_none=lower == [self.gpus.format(0)])

    def fewer(self, tasks: int) -> str:
        return f"{self.tasks.format(tasks)} or less"

    def fewer_gpus(self, gpus: int) -> str:
        return self._at_most([self.gpus.format(gpus)], is_none=gpus == 0)

    def _at_most(self, lower: Sequence[str], *, is_none: bool) -> str:
        if is_none:
            return f"no {self.gpus.format('').rstrip(': ')}"
        return f"{self.before}{self.between.join(lower)} or less" if lower else ""


OPTIONS = Asking(
    gpus="--gpus {}",
    cpus="--cpus {:g}",
    memory="--memory {}MiB",
    share="--gpu-memory {}MiB",
    tasks="--tasks {}",
    between=" ",
)
FIELDS = Asking(
    gpus="nvidia.com/gpu: {}",
    cpus="cpu: {:g}",
    memory="memory: {}Mi",
    share="the annotation swell.dev/gpu-memory: {}MiB",
    tasks="{} pods",
    between=", ",
    before="resources.requests of ",
    more_memory="resources.limits.memory",
    more_time="the annotation swell.dev/time",
)


def asking(kind: str) -> Asking:
    """`kind`: of the object it was written as; empty: in our own notation."""
    return FIELDS if kind else OPTIONS
