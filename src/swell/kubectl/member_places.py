"""Which pods replace members of a group that were lost while it runs, and which jobs go on without them?

What becomes of the others is said by `swell.dev/on-member-lost` (`MemberLoss`). Where they wait, the place of the lost
pod is kept, and a pod of the group with the same requests gets it: it is marked as a task of the running job, so that
the engine binds it where the lost one was, and finds it again after a restart of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from swell.engines.kubernetes.attempt.live_attempt import member_loss, uids
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import JOB, RANK, PodSeen, labelled_job
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.kubectl.adopted_objects import read_pods
from swell.kubectl.pod_groups import PodGroup, in_name_order
from swell.model.job import JobId, JobState, Role
from swell.model.member_loss import MemberLoss
from swell.store import JobRecord


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """Of a pod that was lost, kept for the pod that replaces it."""

    job: JobId
    rank: int
    name: str  #: of the lost pod
    role: Role


class MemberPlaces:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        store: str,
        references: Mapping[JobId, Document],
        record: Callable[[JobId], JobRecord | None],
        is_begun: Callable[[JobId], bool],
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._store = store
        self._references = references  #: what came by kubectl; the adopter adds to it and takes from it
        self._record = record
        self._is_begun = is_begun

    def fill(self, group: PodGroup, pods: list[PodSeen], taken: MutableMapping[str, JobId | None]) -> list[PodSeen]:
        """Give kept places to the pods that replace lost ones, and note whose they are; the pods that are left."""
        if group.kind != "PodGroup":
            return pods
        places = list(self._open(group.namespace, group.name))
        left = []
        for pod in in_name_order(pods):
            place = self._place_for(group, pod, places)
            if place is None:
                left.append(pod)
                continue
            places.remove(place)
            self._mark(pod, place)
            taken[pod.uid] = place.job
        return left

    def job_of(self, pod: PodSeen) -> JobId | None:
        """Of a pod that got the place of a lost one: the job that it says, if that keeps places in its group."""
        job = labelled_job(pod.labels, self._store)
        reference = None if job is None else self._references.get(job)
        if reference is None or member_loss(reference) is not MemberLoss.WAIT:
            return None
        return job if group_of_reference(reference) == (pod.namespace, pod.group) else None

    def replacements(self, job: JobId, reference: Document) -> list[PodSeen]:
        """Pods that got the places of lost ones."""
        if member_loss(reference) is not MemberLoss.WAIT:
            return []
        return [pod for pod in self._cluster.pods_of_job((self._store, str(job))) if self.job_of(pod) == job]

    def survives(self, job: JobId) -> bool:
        """Does it go on without a pod that was lost, until another replaces it or for good?"""
        return member_loss(self._references[job]) is not MemberLoss.RESTART and self._runs(job)

    def size(self, job: JobId, reference: Document) -> int:
        """Of how many pods is it, without those that it goes on without?"""
        known = uids(reference)
        if member_loss(reference) is not MemberLoss.GO_ON or not self._runs(job):
            return len(known)
        there = {pod.uid for pod in self._cluster.pods(known) if counts(pod)}
        return len(there) + sum(self._is_done(uid) for uid in known if uid not in there)

    def kept(self, group: tuple[str, str]) -> int:
        """How many places of a group are kept for pods that are not there yet."""
        return len(list(self._open(*group)))

    def _open(self, namespace: str, name: str) -> Iterator[KeptPlace]:
        for job, reference in self._references.items():
            is_of_group = group_of_reference(reference) == (namespace, name)
            if is_of_group and member_loss(reference) is MemberLoss.WAIT and self._runs(job):
                yield from self._open_in(job, reference)

    def _open_in(self, job: JobId, reference: Document) -> Iterator[KeptPlace]:
        """The places of pods that were lost and that no other replaces yet."""
        record = self._record(job)
        roles = [] if record is None else [role for role in record.spec.roles for _ in range(role.count)]
        there = {pod.uid for pod in self._cluster.pods(uids(reference)) if counts(pod)}
        replaced = {pod.annotations.get(RANK) for pod in self.replacements(job, reference) if counts(pod)}
        for rank, (pod, role) in enumerate(zip(reference["pods"], roles, strict=False)):
            if not (pod["uid"] in there or str(rank) in replaced or self._is_done(pod["uid"])):
                yield KeptPlace(job, rank, pod["name"], role)

    def _place_for(self, group: PodGroup, pod: PodSeen, places: Sequence[KeptPlace]) -> KeptPlace | None:
        """That of a pod of the same name, if there is one; None: it replaces none of them."""
        if pod.owner is None or not places:
            return None
        [role] = read_pods(group, [pod], None)[0].roles
        fitting = [place for place in places if place.role.resources == role.resources]
        return min(fitting, key=lambda place: (place.name != pod.name, place.job, place.rank), default=None)

    def _mark(self, pod: PodSeen, place: KeptPlace) -> None:
        labels = {JOB: str(place.job), STORE: self._store}
        metadata = {"uid": pod.uid, "labels": labels, "annotations": {RANK: str(place.rank)}}
        self._port.patch(PODS, pod.name, {"metadata": metadata}, pod.namespace)

    def _is_done(self, uid: str) -> bool:
        """Had it succeeded when it was deleted?"""
        gone = self._cluster.departed(uid)
        return gone is not None and gone.phase == "Succeeded"

    def _runs(self, job: JobId) -> bool:
        record = self._record(job)
        is_up = record is not None and record.state in (JobState.STARTING, JobState.RUNNING)
        return is_up and self._is_begun(job)


def counts(pod: PodSeen) -> bool:
    """As a pod of its group: it stays, or it has done its work."""
    return pod.phase == "Succeeded" or not (pod.is_deleting or pod.phase == "Failed")


def group_of_reference(reference: Document) -> tuple[str, str]:
    """The namespace and the name of a group that a job of pods belongs to."""
    return reference["metadata"]["namespace"], reference["metadata"]["name"]
