"""Pods, objects and attempts for tables of tests: everything has a default, a row says what matters."""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.attempt.wanted import AttemptSeen, TaskPlace, Wanted
from swell.engines.kubernetes.objects.objects import ObjectSeen, ObjectVerdict, PodTemplateGroup
from swell.engines.kubernetes.watch.observed_objects import ATTEMPT, Ended, Owner, PodSeen
from swell.model.job import AttemptId
from swell.model.launch import TaskSeen
from swell.model.resources import Resources

NOW = 1000.0
FIRST, SECOND = AttemptId(7, 1), AttemptId(7, 2)
NODES = frozenset({"n1", "n2"})


def make_wanted(tasks: int = 2, *, attempt: AttemptId = FIRST, gpus: int = 1, **changes: Any) -> Wanted:
    """Ranks on n1, n2, n1 …, each with so many GPUs."""
    places = {
        rank: TaskPlace(f"n{1 + rank % 2}", tuple(f"gpu-{rank // 2 * gpus + number}" for number in range(gpus)), 0)
        for rank in range(tasks)
    }
    given: dict[str, Any] = {
        "attempt": attempt,
        "name": "train",
        "manifest": "m",
        "width": tasks,
        "revision": 1,
        "generation": 1,
        "places": places,
        "nodes": tuple(dict.fromkeys(place.node for place in places.values())),
        "shares_mib": (0,),
        "is_array": False,
        "indices": f"0-{tasks - 1}",
        "own": {},
        "is_stopping": False,
        "grace_s": 30.0,
        "has_begun": False,
        "tasks": tasks,
    }
    return Wanted(**{**given, **changes})


def make_object(kind: str = "PyTorchJob", *, attempt: AttemptId | None = FIRST, **changes: Any) -> ObjectSeen:
    given: dict[str, Any] = {
        "kind": kind,
        "namespace": "team",
        "name": "train",
        "uid": "object",
        "version": "1",
        "job": "7",
        "store": "s",
        "attempt": attempt,
        "is_suspended": False,
        "is_deleting": False,
        "verdict": None,
        "groups": (PodTemplateGroup("worker", 2, 1),),
        "pods_attempt": FIRST,
        "is_of_jobs": kind in ("Job", "JobSet"),
    }
    return ObjectSeen(**{**given, **changes})


def make_pod(rank: int = 0, **changes: Any) -> PodSeen:
    """Pending and not bound; of the first attempt."""
    given: dict[str, Any] = {
        "namespace": "team",
        "name": f"train-worker-{rank}",
        "uid": f"pod-{rank}",
        "created_at": 900.0,
        "scheduler": "swell",
        "node": "",
        "phase": "Pending",
        "needs": Resources(100, 64, 1),
        "owner": Owner("PyTorchJob", "train", "object"),
        "labels": {},
        "annotations": {ATTEMPT: str(FIRST)},
        "grace_s": 30.0,
        "is_deleting": False,
        "is_disrupted": False,
        "is_told": False,
        "started_at": None,
        "waiting": "",
        "ended": None,
    }
    return PodSeen(**{**given, **changes})


def running(rank: int = 0, **changes: Any) -> PodSeen:
    return make_pod(rank, **{"node": f"n{1 + rank % 2}", "phase": "Running", "started_at": 950.0, **changes})


def ended(rank: int = 0, code: int | None = 0, reason: str = "", message: str = "", **changes: Any) -> PodSeen:
    phase = "Succeeded" if code == 0 else "Failed"
    end = Ended(990.0, code, reason, message, has_run=code is not None)
    started_at = 950.0 if code is not None else None
    return running(rank, **{"phase": phase, "ended": end, "started_at": started_at, **changes})


def make_seen(found: ObjectSeen | None, *pods: PodSeen, ranks: tuple[int | None, ...] | None = None) -> AttemptSeen:
    numbers = ranks or tuple(int(pod.name.rsplit("-", 1)[1]) for pod in pods)
    return AttemptSeen(found, tuple(zip(numbers, pods, strict=True)), NODES)


SUCCEEDED = ObjectVerdict(True, 995.0)
FAILED = ObjectVerdict(False, 995.0, "JobFailed", "it failed")


def alive(rank: int, started_at: float = 950.0) -> TaskSeen:
    return TaskSeen(FIRST, rank, f"n{1 + rank % 2}", rank, started_at)


def over(
    rank: int, at: float, code: int | None, cause: str = "", problem: str = "", started_at: float = 950.0
) -> TaskSeen:
    return TaskSeen(FIRST, rank, f"n{1 + rank % 2}", rank, started_at, at, code, cause, problem)


def never(rank: int, cause: str, problem: str = "") -> TaskSeen:
    """It ended when it began."""
    return over(rank, NOW, None, cause, problem, started_at=NOW)
