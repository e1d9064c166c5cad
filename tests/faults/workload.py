"""Which jobs come in a round, by which way, and how must each of them end?

They end by themselves: kwok ends their pods after the time that an annotation, or `sleep`, says. What makes pods makes
them again when they are lost, so that no fault may change the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from cluster.api import Object
from cluster.jobs import JOBS, JOBSETS, ON_KWOK, PODS, PYTORCHJOBS, job, jobset, pod, pytorchjob
from cluster.kwok import FAIL, LINGER, SUCCEED

AGAIN = 50  # lost pods that an object's controller makes again
PATHS = {"Pod": PODS, "Job": JOBS, "JobSet": JOBSETS, "PyTorchJob": PYTORCHJOBS}


@dataclass(frozen=True)
class Case:
    """One job."""

    name: str
    way: str  #: submit: by Swell's API; kubectl: created in the cluster
    kind: str
    documents: tuple[Object, ...] = field(repr=False)
    end: str = "succeeded"
    tasks: int = 1
    is_gang: bool = False
    width: int = 0  #: the one it must end with; 0: it has but one, or any will do
    epochs: int = 0  #: how many it must have done; 0: it reports none

    @property
    def is_bare_by_kubectl(self) -> bool:
        return self.way == "kubectl" and self.kind in ("Pod", "pods")

    def __str__(self) -> str:
        return f"{self.name} ({self.kind} by {self.way})"


def draw(lots: random.Random, count: int) -> list[Case]:
    makers = [_pytorchjob, _pytorchjob, _jobset, _job, _pod, _native, _native_array, _pods]
    return [lots.choice(makers)(lots, f"c{number:02}") for number in range(count)]


def gang(name: str, *, tasks: int, way: str = "submit", is_endless: bool = False) -> Case:
    """Of bare pods, each with a node's GPUs, that run for a second; endless: by kubectl, until they are told."""
    if way == "submit":
        document = notation(name, "45s" if is_endless else "1s", tasks=tasks, gpus=8)
        return Case(name, way, "native", (document,), "succeeded", tasks, True)
    annotations = {} if is_endless else {SUCCEED: "1s"}
    return Case(name, way, "pods", _group(name, tasks, gpus=8, annotations=annotations), "succeeded", tasks, True)


def _options(lots: random.Random, *, may_fail: bool) -> tuple[dict[str, object], str]:
    """For `template`, and the end that follows."""
    is_failure = may_fail and lots.random() < 0.15
    annotations = {FAIL if is_failure else SUCCEED: f"{lots.randint(500, 4000)}ms"}
    if lots.random() < 0.6:
        annotations[LINGER] = f"{lots.randint(200, 2500)}ms"
    options: dict[str, object] = {"on": ON_KWOK, "gpus": lots.choice([1, 2, 4]), "annotations": annotations}
    return options, "failed" if is_failure else "succeeded"


def _way(lots: random.Random, options: dict[str, object]) -> str:
    way = lots.choice(["submit", "kubectl"])
    if way == "kubectl":
        options["schedulerName"] = "swell"
    return way


def _pytorchjob(lots: random.Random, name: str) -> Case:
    options, end = _options(lots, may_fail=True)
    way, workers = _way(lots, options), lots.randint(1, 3)
    document = pytorchjob(name, "true", "true", workers=workers, **options)
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "Never" if end == "failed" else "OnFailure"
    document["spec"]["runPolicy"]["backoffLimit"] = AGAIN
    return Case(name, way, "PyTorchJob", (document,), end, workers + 1, True)


def _jobset(lots: random.Random, name: str) -> Case:
    options, _ = _options(lots, may_fail=False)
    way, count = _way(lots, options), lots.randint(2, 4)
    document = jobset(name, "true", count=count, **options)
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = AGAIN
    return Case(name, way, "JobSet", (document,), "succeeded", count, True)


def _job(lots: random.Random, name: str) -> Case:
    options, end = _options(lots, may_fail=True)
    way, count = _way(lots, options), lots.randint(2, 6)
    document = job(name, "true", count=count, **options)
    document["spec"]["backoffLimit"] = 0 if end == "failed" else AGAIN
    return Case(name, way, "Job", (document,), end, count)


def _pod(lots: random.Random, name: str) -> Case:
    options, end = _options(lots, may_fail=True)
    way = _way(lots, options)
    return Case(name, way, "Pod", (pod(name, "true", **options),), end)


def _pods(lots: random.Random, name: str) -> Case:
    options, _ = _options(lots, may_fail=False)
    count = lots.randint(2, 4)
    documents = _group(name, count, gpus=options["gpus"], annotations=options["annotations"])
    return Case(name, "kubectl", "pods", documents, "succeeded", count, True)


def _native(lots: random.Random, name: str) -> Case:
    tasks = lots.randint(1, 4)
    document = notation(name, f"{lots.randint(1, 4)}s", tasks=tasks, gpus=lots.choice([1, 2, 4]))
    return Case(name, "submit", "native", (document,), "succeeded", tasks, tasks > 1)


def _native_array(lots: random.Random, name: str) -> Case:
    count = lots.randint(2, 6)
    document = notation(name, f"{lots.randint(1, 3)}s", array=f"0-{count - 1}%2", gpus=1, retries=AGAIN)
    return Case(name, "submit", "native array", (document,), "succeeded", count)


def _group(name: str, count: int, **options: object) -> tuple[Object, ...]:
    made = []
    for number in range(count):
        one = pod(f"{name}-{number}", "true", on=ON_KWOK, schedulerName="swell", **options)
        one["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name, "fluence.group-size": str(count)}
        made.append(one)
    return tuple(made)


def notation(name: str, seconds: str, **spec: object) -> Object:
    return {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"command": ["sleep", seconds], "image": "busybox", "cpus": 0.1, **spec},
    }
