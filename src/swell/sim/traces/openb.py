"""How are the published nodes and pods of Alibaba's cluster ("openb") read?

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`, and where it is known
`creation_time,deletion_time`. A pod with fewer than 1000 thousandths of one GPU takes that part of its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swell.engines.simulated.behavior import Table
from swell.model.cluster import Device, Node
from swell.model.resources import Resources
from swell.sim.traces.lines import TraceRow, read_csv, refuse
from swell.sim.workload import SimCluster, SimJob, Workload

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
CARD_MIB = 1000  # a thousandth of a GPU is one MiB of it
GPUS_MAX = 64  # of one node


@dataclass(frozen=True, slots=True)
class OpenbPod:
    name: str
    needs: Resources
    models: tuple[str, ...]  #: of GPUs it may use; empty: any
    submit_s: float
    lasts_s: float

    @property
    def gpu_milli(self) -> int:
        return self.needs.gpu_memory_mib if self.needs.is_share else 1000 * self.needs.gpus


def read_nodes(path: Path) -> SimCluster:
    return SimCluster(tuple(_node(row) for row in read_csv(path, NODE_COLUMNS)))


def _node(row: TraceRow) -> Node:
    name, gpus = row.text("sn"), row.whole("gpu")
    if gpus > GPUS_MAX:
        raise row.line.refuse(f"gpu is {gpus}; a node has at most {GPUS_MAX}")
    model = row.text("model", "")
    devices = tuple(Device(f"{name}-{n}", CARD_MIB, model, simulated=True) for n in range(gpus))
    return Node(name, row.whole("cpu_milli"), row.whole("memory_mib"), devices)


def read_pods(path: Path) -> list[OpenbPod]:
    pods = [_pod(row) for row in read_csv(path, POD_COLUMNS)]
    if not pods:
        raise refuse(path, "there are no pods in it")
    return pods


def _pod(row: TraceRow) -> OpenbPod:
    gpus, milli = row.whole("num_gpu"), row.whole("gpu_milli")
    if milli > 1000 or (gpus > 1 and milli != 1000):
        raise row.line.refuse(f"gpu_milli is {milli} with {gpus} GPUs; a part of a GPU is of one GPU, up to 1000")
    is_share = gpus == 1 and milli < 1000
    needs = Resources(
        row.whole("cpu_milli"), row.whole("memory_mib"), 0 if is_share else gpus, milli if is_share else 0
    )
    created = row.number("creation_time", 0.0)
    lasts_s = max(1.0, row.number("deletion_time", created + 1.0) - created)
    models = tuple(filter(None, row.text("gpu_spec", "").split("|")))
    return OpenbPod(row.text("name"), needs, models, created, lasts_s)


def read(path: Path) -> Workload:
    """Every pod is a job of one task that cannot be resized."""
    pods = read_pods(path)
    jobs = [
        SimJob(
            pod.name,
            pod.submit_s,
            Table({(1, max(1, pod.needs.gpus)): pod.lasts_s}),
            epochs=1,
            width=1,
            width_min=1,
            width_max=1,
            per_task=pod.needs,
            resumes=False,
        )
        for pod in pods
    ]
    return Workload(path.stem, tuple(sorted(jobs, key=lambda job: job.submit_s)))
