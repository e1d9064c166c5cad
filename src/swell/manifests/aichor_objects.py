"""Which object does an operator of AIchor's make of a manifest?

A JobSet of one replicated Job for each type, or a PyTorchJob. The operators jax and xgboost tell their processes of
each other in variables of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.manifests.downward import COMPLETION_INDEX, PREFIX
from swell.manifests.shards import SHARDS, Shards, render_shards
from swell.model.kind import JOBSET, PYTORCHJOB
from swell.model.shared_volume import ANNOTATION, SharedVolume

PORT = 23456  # of the operator of PyTorchJobs, and of coordinators in pods, which have all ports for themselves
JAX_WORKER = "worker"
#: variable → the label of its pod that it is
LABELS = {
    "JOB_COMPLETION_INDEX": COMPLETION_INDEX,
    "JOB_INDEX": f"{PREFIX}job-index",
    "JOB_GLOBAL_INDEX": f"{PREFIX}job-global-index",
    "GLOBAL_REPLICAS": f"{PREFIX}global-replicas",
    "REPLICATED_JOB_NAME": f"{PREFIX}replicatedjob-name",
    "REPLICATED_JOB_REPLICAS": f"{PREFIX}replicatedjob-replicas",
}
#: told by the operators: a manifest cannot give them another value
PROTECTED = frozenset(LABELS) | {
    *(SHARDS, "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "WORKER_ADDRS", "WORKER_PORT"),
    *("JAXOPERATOR_COORDINATOR_ADDRESS", "JAXOPERATOR_NUM_PROCESSES", "JAXOPERATOR_PROCESS_ID"),
}


@dataclass(frozen=True, slots=True)
class Type:
    """One of `spec.types`."""

    name: str
    count: int
    completions: int
    parallelisms: int
    cpus_milli: int
    pod: dict[str, Any]
    shm_mib: int = 0  #: 0: it does not say


@dataclass(frozen=True, slots=True)
class AIchorJob:
    """What a manifest says of the whole."""

    name: str
    types: list[Type]  #: in the order they are written
    deadline_s: int | None  #: None: endless
    retries: int
    on_cluster: bool
    shared: SharedVolume | None = None  #: that is made for the job; None: there is none


def render_object(operator: str, asked: AIchorJob) -> dict[str, Any]:
    made = {"jobset": _jobset, "jax": _jax, "pytorch": _pytorchjob, "xgboost": _xgboost}[operator](asked)
    notes = {} if asked.shared is None else {"annotations": {ANNOTATION: str(asked.shared)}}
    return {**made, "metadata": {"name": asked.name, **notes}}


def _jobset(asked: AIchorJob) -> dict[str, Any]:
    types = asked.types
    shards = render_shards([Shards(one.name, one.count, one.completions, one.cpus_milli) for one in types])
    entries = [_replicated(one, shards, asked.deadline_s) for one in sorted(types, key=lambda one: one.name)]
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.name,
        "spec": {"failurePolicy": {"maxRestarts": asked.retries}, "replicatedJobs": entries},
    }


def _replicated(one: Type, shards: str, deadline_s: int | None) -> dict[str, Any]:
    [container] = one.pod["containers"]
    told = [*_told(), {"name": SHARDS, "value": shards}]
    pod = {**one.pod, "containers": [{**container, "env": [*told, *container["env"]]}]}
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": one.completions,
        "parallelism": one.parallelisms,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    if deadline_s is not None:
        job["activeDeadlineSeconds"] = deadline_s
    return {"name": one.name, "replicas": one.count, "template": {"spec": job}}


def _told() -> list[dict[str, Any]]:
    """What AIchor tells a pod of itself, from the labels that the JobSet controller gives it."""
    paths = {name: f"metadata.labels['{label}']" for name, label in LABELS.items()}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _pytorchjob(asked: AIchorJob) -> dict[str, Any]:
    policy: dict[str, Any] = {"backoffLimit": asked.retries}
    if asked.deadline_s is not None:
        policy["activeDeadlineSeconds"] = asked.deadline_s
    replicas = {
        one.name: {"replicas": one.count, "restartPolicy": "OnFailure", "template": {"spec": _for_pytorch(one.pod)}}
        for one in asked.types
    }
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.name,
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
    }


# -- operators that tell more --------------------------------------------------------------------------------


def _jax(asked: AIchorJob) -> dict[str, Any]:
    """One Job, whose pods are numbered; the first is the coordinator."""
    [workers] = asked.types
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    told: list[dict[str, Any]] = [
        {"name": "JAXOPERATOR_NUM_PROCESSES", "value": str(workers.count)},
        {"name": "JAXOPERATOR_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": path}}},
    ]
    coordinator = "JAXOPERATOR_COORDINATOR_ADDRESS"
    there = {coordinator: f"{asked.name}-{JAX_WORKER}-0-0.{asked.name}:{PORT}"}
    pod = _telling(workers.pod, told, asked, here={coordinator: "$MASTER_ADDR:$MASTER_PORT"}, there=there)
    counted = replace(workers, name=JAX_WORKER, count=1, completions=workers.count, parallelisms=workers.count, pod=pod)
    return _jobset(replace(asked, types=[counted]))


def _xgboost(asked: AIchorJob) -> dict[str, Any]:
    workers = sum(one.count for one in asked.types if one.name == "Worker")
    names = [f"{asked.name}-worker-{number}" for number in range(workers)]
    here = {"WORKER_PORT": "$((MASTER_PORT + 1))", "WORKER_ADDRS": ",".join(["$MASTER_ADDR"] * workers)}
    there = {"WORKER_PORT": str(PORT), "WORKER_ADDRS": ",".join(names)}
    types = [replace(one, pod=_telling(one.pod, [], asked, here=here, there=there)) for one in asked.types]
    return _pytorchjob(replace(asked, types=types))


def _telling(
    pod: dict[str, Any],
    told: list[dict[str, Any]],
    asked: AIchorJob,
    *,
    here: dict[str, str],
    there: dict[str, str],
) -> dict[str, Any]:
    """`here`: in words of a shell, because where processes of a machine meet is known only when they start."""
    [container] = pod["containers"]
    if asked.on_cluster:
        env = [*told, *({"name": name, "value": text} for name, text in there.items())]
        return {**pod, "containers": [{**container, "env": [*env, *container["env"]]}]}
    exports = "; ".join(f'export {name}="{text}"' for name, text in here.items())
    command = ["sh", "-c", f'{exports}; exec "$@"', "sh", *container["command"]]
    return {**pod, "containers": [{**container, "command": command, "env": [*told, *container["env"]]}]}


def _for_pytorch(pod: dict[str, Any]) -> dict[str, Any]:
    """The operator looks for a container of this name, and gives pods a restart policy of its own."""
    [container] = pod["containers"]
    return {
        **{name: value for name, value in pod.items() if name != "restartPolicy"},
        "containers": [{**container, "name": "pytorch"}],
    }
