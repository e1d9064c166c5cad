"""Which jobs of a round are in somebody's hands, and how must each of them end?

Those that are only brought are drawn (`workload.py`). These are resized, preempted, held or share GPUs, and are the
same in every round but for the ways they come; who does what with them, and has them end, is in `parts.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cluster.api import Object
from cluster.jobs import ON_KWOK, pytorchjob
from cluster.kwok import LINGER

from .workload import AGAIN, Case, notation

RESIZED, TRAINS, HELD, URGENT = "resized", "trains", "held", "urgent"
WIDTHS = (1, 2, 3, 4)  # GPUs of each of its two pods
TRAINS_AT = (3, 4)  # beside the urgent one there is room for two on each node
EPOCHS = 60


def cast(lots: random.Random) -> list[Case]:
    return [
        resized(RESIZED, way=_way(lots), linger_ms=lots.randint(0, 2500)),
        _trains(TRAINS, way=_way(lots), linger_ms=lots.randint(0, 800)),
        _held(HELD, way=_way(lots)),
        _urgent(URGENT),
        *(_shares(f"shares{number}", seconds=lots.randint(1, 5)) for number in range(3)),
    ]


def resized(name: str, *, way: str = "submit", linger_ms: int = 0) -> Case:
    """Endless, and stopped and started again at any moment."""
    document = _elastic(name, way, WIDTHS, linger_ms, {"swell.dev/resize": "immediate"})
    return Case(name, way, "PyTorchJob", (document,), "succeeded", 2, True, width=WIDTHS[0])


def _trains(name: str, *, way: str, linger_ms: int) -> Case:
    document = _elastic(name, way, TRAINS_AT, linger_ms, {"swell.dev/epochs": str(EPOCHS)})
    return Case(name, way, "PyTorchJob", (document,), "succeeded", 2, True, epochs=EPOCHS)


def _held(name: str, *, way: str) -> Case:
    """An object, or pods of ours; endless."""
    if way == "kubectl":
        document = _elastic(name, way, (2, 2), 0, {"swell.dev/resize": "immediate"})
        return Case(name, way, "PyTorchJob", (document,), "succeeded", 2, True)
    spec = notation(name, "", command=["true"], tasks=2, gpus=2, resize="immediate")
    return Case(name, way, "native", (spec,), "succeeded", 2, True)


def _urgent(name: str) -> Case:
    """Of every node it leaves two GPUs."""
    return Case(name, "submit", "native", (notation(name, "1s", tasks=3, gpus=6, priority=10),), "succeeded", 3, True)


def _shares(name: str, *, seconds: int) -> Case:
    """Two of them have room on one GPU, three have not."""
    return Case(name, "submit", "native", (notation(name, f"{seconds}s", gpuMemory="6GiB"),))


def _way(lots: random.Random) -> str:
    return lots.choice(["submit", "kubectl"])


def _elastic(name: str, way: str, widths: Sequence[int], linger_ms: int, annotations: dict[str, str]) -> Object:
    options: dict[str, object] = {"schedulerName": "swell"} if way == "kubectl" else {}
    options["annotations"] = {LINGER: f"{linger_ms}ms"}
    document = pytorchjob(name, "true", "true", workers=1, on=ON_KWOK, gpus=widths[0], **options)
    span = {"request": str(widths[0]), "limit": str(widths[-1]), "replicas": "2"}
    document["metadata"]["annotations"] = {**span, **annotations}
    document["spec"]["runPolicy"]["backoffLimit"] = AGAIN
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
    return document
