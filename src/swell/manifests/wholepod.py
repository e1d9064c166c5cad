"""What does a pod ask for, when Kubernetes runs it?

One pod is one task, whatever is in it: Kubernetes starts its containers, mounts its volumes and gives it its
variables. We decide where it goes, so what counts here is its size, and what would take that decision from us.
"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.manifests.container import ContainerFields
from swell.manifests.demand import Demand, read_demand
from swell.manifests.fields import describe, shorten, take_list, take_optional

SCHEDULERS = ("", "swell", "default-scheduler")  # the last is what Kubernetes writes when nothing is said
#: Of gangs, in whose place users of genai's manager and of Fluence put Swell: their manifests run as they are.
FLUENCE = "fluence"
REPLACED = ("scheduler-plugins-scheduler", FLUENCE)
GATES = "keeps it from being placed until somebody takes the gate away; leave it out, or submit it and `swell hold` it"
NODE_NAME = (
    "names the node, but Swell places the pods of a job, all of them together; write "
    "nodeSelector: {kubernetes.io/hostname: NODE} to allow no other"
)


def read_whole_pod(spec: dict[str, Any], where: str) -> tuple[ContainerFields, tuple[str, ...]]:
    """The pod as one container of its size, and what of it is not looked after, in words."""
    _check_scheduler(spec.get("schedulerName"), f"{where}.schedulerName")
    demand = read_demand(spec, where)
    first = take_optional(take_list(spec["containers"], f"{where}.containers")[0], f"{where}.containers[0]")
    container = ContainerFields(
        where=where,
        name=demand.holders[0],
        command=_words(first),
        env=(),  # the object has them
        workdir="",
        cpus_milli=demand.cpus_milli,
        memory_mib=demand.memory_mib,
        gpus=demand.gpus,
        numbered=(),
        holders=demand.holders,
    )
    return container, tuple(_notes(spec, where, demand))


def _check_scheduler(value: object, where: str) -> None:
    if value is not None and value not in (*SCHEDULERS, *REPLACED):
        raise Rejected(
            f"{where} is {describe(value)}, but what is submitted here is placed by Swell; leave it out, or create it "
            "with kubectl for that scheduler"
        )


def _words(container: dict[str, Any]) -> tuple[str, ...]:
    """For people to read; without any, the image knows."""
    given = (container.get("command"), container.get("args"))
    return tuple(str(word) for words in given if isinstance(words, list) for word in words)


def _notes(spec: dict[str, Any], where: str, demand: Demand) -> list[str]:
    notes = []
    if spec.get("schedulerName") in REPLACED:
        notes.append(
            f"{where}.schedulerName {spec['schedulerName']}: Swell is in its place, and places what is submitted to it"
        )
    if demand.uncounted:
        names = shorten(", ".join(demand.uncounted))
        notes.append(
            f"{where} asks for {names}, which Swell does not count: the pod may be placed where "
            "there is none left, and its node refuse it"
        )
    if take_list(spec.get("topologySpreadConstraints"), f"{where}.topologySpreadConstraints"):
        notes.append(f"{where}.topologySpreadConstraints are wishes (ScheduleAnyway) and have no effect")
    if any(_host_ports(spec, where)):
        notes.append(f"{where} asks for a hostPort: a node where it is taken refuses the pod, and Swell does not know")
    return notes


def _host_ports(spec: dict[str, Any], where: str) -> list[object]:
    return [
        port.get("hostPort")
        for container in take_list(spec.get("containers"), where)
        for port in take_list(container.get("ports"), where)
        if isinstance(port, dict)
    ]
