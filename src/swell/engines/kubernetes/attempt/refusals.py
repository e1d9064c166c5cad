"""What do controllers say of pods that they cannot make, and kubelets of those that they cannot start?

A quota or Pod Security refuses the pods of a Job to its controller, not to us: it says so in an Event and tries again
for ever. So does a kubelet that waits for a Secret or a disk. Events are many and nobody needs most of them, so they
are not followed: those of one object are looked at when its pods have been missing for a while, and those of a pod when
it has been bound for a while.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import ObjectSeen
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.engines.kubernetes.watch.warnings import Warnings
from swell.errors import SwellError, Unavailable
from swell.model.quantity import IndexSet

FIRST_S = 5.0  # a controller that is well has made its pods by then
SLOW_S = 20.0  # a pod of which nothing is wrong has started by then, or is pulling its image
AGAIN_S = 15.0
#: What the controllers of Jobs, PyTorchJobs and JobSets call it; their other warnings are about pods that were there.
REASONS = frozenset(
    {
        "FailedCreate",
        "FailedCreatePod",
        "FailedCreateService",
        "JobCreationFailed",
        "HeadlessServiceCreationFailed",
    }
)


def missing(wanted: Wanted, seen: AttemptSeen) -> int:
    """How many pods the controller of its object has still to make; of an array those that would be bound at once."""
    found = seen.object
    if found is None or found.attempt != wanted.attempt:
        return 0
    if wanted.is_stopping or found.is_suspended or found.is_deleting or found.verdict is not None:
        return 0
    if not wanted.is_array:
        return len(wanted.places.keys() - seen.staying.keys())
    indices = IndexSet.parse(wanted.indices)  # without those that earlier attempts have done
    given_up = IndexSet.parse(found.failed_indexes) if found.failed_indexes else ()
    pods = [(rank, pod) for rank, pod in seen.pods if rank is not None and rank in indices]
    done = {rank for rank, pod in pods if pod.phase == "Succeeded" or rank in given_up}
    alive = sum(not pod.has_ended for _, pod in seen.pods)
    return max(0, min(len(wanted.places), _at_once(found, [index for index in indices if index not in done])) - alive)


def _at_once(found: ObjectSeen, left: list[int]) -> int:
    """How many of these tasks of an array its controller would run: each Job of a JobSet has a limit of its own."""
    few = next((group for group in found.groups if group.at_once is not None), None)
    if few is None or few.at_once is None:
        return len(left)
    of_jobs = Counter(index % few.sets for index in left)
    return sum(min(few.at_once, count) for count in of_jobs.values())


def _absent(wanted: Wanted, seen: AttemptSeen) -> set[int]:
    """Tasks of an array are not its places; any that is not there will do to tell whose Events to read."""
    ranks = set(IndexSet.parse(wanted.indices)) if wanted.is_array else set(wanted.places)
    return (ranks - seen.staying.keys()) or ranks


class Refusals:
    """Asks, and remembers nothing but when."""

    def __init__(self, port: ApiClient, cluster: Cluster, monotonic: Callable[[], float]) -> None:
        self._warnings = Warnings(port, monotonic)
        self._cluster = cluster
        self._monotonic = monotonic

    def is_due(self, memory: AttemptMemory) -> bool:
        """Is it time to ask, of an attempt whose pods are missing?"""
        since = math.inf if memory.waits_since is None else memory.waits_since
        return self._monotonic() >= max(since + FIRST_S, memory.asked_at + AGAIN_S)

    def ask(self, wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> str:
        """What its controller says; empty: nothing. Where nobody answers, what was said before."""
        found = seen.object
        assert found is not None, "only what an object's controller makes can be missing"
        memory.asked_at = self._monotonic()
        try:
            said = [self._warnings.about(uid, found.namespace) for uid in self._makers(wanted, seen, found)]
        except Unavailable:
            return memory.refused
        except SwellError as error:
            return f"why its pods are missing cannot be read: {error}"
        refusals = [one for warnings in said for one in warnings if one.reason in REASONS]
        if not refusals:
            return ""
        return f"{found.kind} {found.namespace}/{found.name} cannot make its pods: {max(refusals).message}"

    def is_slow(self, memory: AttemptMemory) -> bool:
        """Is it time to ask, of an attempt of which a pod does not start?"""
        since = math.inf if memory.starts_since is None else memory.starts_since
        return self._monotonic() >= max(since + SLOW_S, memory.asked_at + AGAIN_S)

    def ask_kubelet(self, pod: PodSeen, memory: AttemptMemory) -> str:
        """What it says of a pod that does not start; empty: nothing. Where nobody answers, what was said before."""
        memory.asked_at = self._monotonic()
        try:
            warnings = self._warnings.about(pod.uid, pod.namespace)
        except Unavailable:
            return memory.refused
        except SwellError as error:
            return f"why pod {pod.name} does not start cannot be read: {error}"
        last = max(warnings, default=None)
        return "" if last is None else f"pod {pod.name} does not start: {last.reason}: {last.message}"

    def _makers(self, wanted: Wanted, seen: AttemptSeen, found: ObjectSeen) -> list[str]:
        """Whose Events tell: the object's; of a JobSet also those of the Job that a missing pod belongs to."""
        if not KINDS[found.kind].makes_jobs:
            return [found.uid]
        job = self._cluster.object("Job", found.namespace, job_of(found, min(_absent(wanted, seen))))
        return [found.uid] if job is None else [found.uid, job.uid]


def starting(wanted: Wanted, seen: AttemptSeen) -> PodSeen | None:
    """A pod that is bound and neither runs nor says what keeps it; None: there is none."""
    for _, pod in () if wanted.is_stopping else seen.pods:
        if pod.node and pod.started_at is None and not (pod.has_ended or pod.is_deleting or pod.waiting):
            return pod
    return None


def job_of(found: ObjectSeen, rank: int) -> str:
    """The name of the Job of a JobSet that makes the pod of this rank."""
    first = 0
    for group in found.groups:
        if group.at_once is not None:
            return f"{found.name}-{group.name}-{rank % group.sets}"
        if rank < first + group.count:
            return f"{found.name}-{group.name}-{(rank - first) // group.pods}"
        first += group.count
    raise AssertionError(f"{found.name} has no rank {rank}")
