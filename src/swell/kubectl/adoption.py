"""Which jobs came by kubectl?

Pods that name us as their scheduler and that we have not made. Which of them are one job is in `pod_groups.py`. They
are submitted as everybody's jobs are, once, under a key made from their uid. When they are deleted before they have
begun, their job is cancelled; afterwards the engine sees it. So it is when somebody else has placed them, or when
another server takes in by now (`intake.py`); should they be ours to take in again, they are another job.

When only some pods of a group are deleted, its job is over, and the pods that are left and wait are grouped anew, with
those that replace the lost ones. What runs of the group beside that job goes on as long as enough of the group run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from swell.config import UserLimits
from swell.engines.kubernetes.attempt.live_attempt import LEAST, uids
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import NotServed
from swell.engines.kubernetes.converger import Converger, TurnPace, TurnTime
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import SERVER, PodSeen
from swell.engines.kubernetes.watch.volumes import Volumes
from swell.errors import Denied, NotFound, Rejected, SwellError, TooMany, Unavailable
from swell.kubectl.adopted_objects import read_object, read_pods, refuse_shares
from swell.kubectl.member_places import MemberPlaces, counts, group_of_reference
from swell.kubectl.pod_groups import SETTLED_S, GroupStart, PodGroup, PodGroups, group_of
from swell.model.cluster import PriorityClass
from swell.model.job import JobId, JobSpec, JobState
from swell.model.member_loss import CHANGED, GIVEN_UP_BY, OTHER
from swell.model.quota import DiskUse, Quota
from swell.model.reason import Code
from swell.store import JobRecord, NewJob
from swell.store.quotas import refuse_without_disk

log = logging.getLogger(__name__)

GATHER_S = 0.02  # pods come in bursts; and where looking takes long because many wait, it is done less often
GATHER_S_MAX = 2.0  # also after a question that the API server took long to answer
FULL_S = 5.0  # a namespace that has as many jobs as it may have is asked again after this
LET_GO_S = 1.0  # so long what was deleted may go unnoticed,
LET_GO_SHARE = 0.02  # or longer where there are thousands to look for: so much of a core goes into it
NOT_GIVEN = (
    "Swell may not bind pods in namespace {!r}; an administrator adds it to `namespaces` of Swell's chart, "
    "or runs the pod with another schedulerName"
)
BY = "kubectl"
TASK = "taking in what came by kubectl"
ANEW = "job {} was cancelled by {}; its pods that are left and wait are this job now"
DELETED = "its job was deleted with `swell delete` before it had begun; create it again to run it"


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str
    versions: Mapping[str, str] | None  #: uid → version of all that was refused together; None: whatever it becomes


class JobManager(Protocol):
    """What the controller offers."""

    def take_in(
        self,
        jobs: Mapping[str, NewJob],
        known: Callable[[list[JobRecord | None]], None],
        *,
        origin: str,
        quota: Quota,
    ) -> Future[list[JobRecord | None]]: ...

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str) -> Future[None]: ...

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str) -> Future[None]: ...


class IntakeRule(Protocol):
    """Who takes in what."""

    def look_now_and_then(self) -> None: ...

    def takes(self, namespace: str) -> bool: ...

    def leaves(self, namespace: str) -> bool: ...


class Adopter:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        jobs: JobManager,
        is_begun: Callable[[JobId], bool],
        record: Callable[[JobId], JobRecord | None],
        priority_classes: Callable[[], Mapping[str, PriorityClass]],
        intake: IntakeRule,
        store: str,
        limits: Callable[[str], UserLimits],
        disk_use: Callable[[str], DiskUse | None],
        may_bind: Callable[[str], bool],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._port = port
        self._volumes = Volumes(port)
        self._cluster = cluster
        self._jobs = jobs
        self._is_begun = is_begun  #: has there been an attempt of it? Then its pods are the engine's to judge
        self._record = record  #: of a job; None: it has ended long ago, and was erased
        self._priority_classes = priority_classes
        self._intake = intake
        self._store = store
        self._limits = limits  #: of what is in a namespace, as through the API
        self._disk_use = disk_use  #: of the jobs of a namespace; None: nothing limits it
        self._may_bind = may_bind  #: pods of a namespace
        self._now = now
        self._times: dict[str, int] = {}  #: uid of an object or first pod → how often it was left to another
        self._taken: dict[str, JobId | None] = {}  #: uid of an object or pod → its job; None: refused
        self._refusals: dict[str, Refusal] = {}  #: uid of an object or pod → why it is not for us
        self._said: set[str] = set()  #: why something was refused, and still is: in the log already
        self._incomplete: dict[str, str] = {}  #: uid of a pod → what its group waits for
        self._references: dict[JobId, Document] = {}
        self._anew: dict[str, str] = {}  #: uid of a pod that waits → why its last job was given up
        self._begun: set[JobId] = set()  #: of those; as far as it was asked
        self._groups = PodGroups(port, cluster, self._is_taken, self._ahead, self._staying, now)
        self._places = MemberPlaces(port, cluster, store, self._references, record, is_begun)
        self._full: dict[str, tuple[float, str]] = {}  #: namespace → until when it has no further jobs, and why
        self._logged: set[str] = set()  #: namespaces in which we may bind no pod, as the log has them
        self._lost: set[tuple[str, str]] = set()  #: groups of which a job is over because a pod of it was deleted
        self._let_go_at = 0.0
        pace = TurnPace(look_s=SETTLED_S, rest_s=_rest_s, trouble_s=GATHER_S_MAX, denied_s=GATHER_S_MAX)
        self._converger = Converger("adopter", TASK, self._turn, pace)

    def know(self, job: JobId, reference: Document) -> None:
        """It is this job."""
        self._references[job] = reference
        self._taken |= dict.fromkeys(uids(reference), job)

    # -- questions of other threads --------------------------------------------------------------------------------

    def job_of(self, pod: PodSeen) -> JobId | None:
        """None: it is not taken in, or came another way."""
        return self._taken.get(self._cluster.root(pod)) or self._taken.get(pod.uid) or self._places.job_of(pod)

    def why_not(self, pod: PodSeen) -> str | None:
        """Why it is no job; None: it is, or nobody has looked yet."""
        refusal = self._refusals.get(self._cluster.root(pod)) or self._refusals.get(pod.uid)
        return self._incomplete.get(pod.uid) if refusal is None else refusal.why

    def is_refused(self, pod: PodSeen) -> bool:
        """For good, as it is."""
        return self._cluster.root(pod) in self._refusals or pod.uid in self._refusals

    def takes(self, namespace: str) -> bool:
        """Is what kubectl applies there ours to take in, or to refuse?"""
        return self._intake.takes(namespace)

    def reference(self, job: JobId) -> Document | None:
        """What came by kubectl and is this job; None: it came another way, or is gone."""
        return self._references.get(job)

    # -- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._converger.start()

    def ring(self) -> None:
        self._converger.ring()

    def close(self) -> None:
        self._converger.close()

    def _turn(self) -> bool:
        self.look()
        return False

    def look(self) -> None:
        self._intake.look_now_and_then()
        groups: dict[PodGroup, list[PodSeen]] = {}
        waiting = self._cluster.waiting_pods()
        ours = {name for name in {pod.namespace for pod in waiting} if self._intake.takes(name)}
        self._full = {name: found for name, found in self._full.items() if self._now() < found[0]}
        self._full |= self._not_given(ours)
        self._forget_refused(waiting)
        for pod in waiting:
            if pod.namespace in ours and not self._is_taken(pod):
                groups.setdefault(group_of(pod), []).append(pod)
        arrivals = self._arrivals({group: pods for group, pods in groups.items() if group.namespace not in self._full})
        for namespace in dict.fromkeys(group_of_reference(reference)[0] for _, reference in arrivals):
            self._submit(namespace, [one for one in arrivals if group_of_reference(one[1])[0] == namespace])
        full = [pod for pods in groups.values() for pod in pods if pod.namespace in self._full]
        self._incomplete |= {pod.uid: self._full[pod.namespace][1] for pod in full if not self._is_taken(pod)}
        self._anew = {pod.uid: self._anew[pod.uid] for pod in waiting if pod.uid in self._anew}
        if time.monotonic() > self._let_go_at:
            began = time.thread_time()
            try:
                self._let_go()
                self._regroup()
                self._leave()
            finally:
                self._let_go_at = time.monotonic() + max(LET_GO_S, (time.thread_time() - began) / LET_GO_SHARE)

    def _not_given(self, namespaces: Iterable[str]) -> dict[str, tuple[float, str]]:
        """Those in which we may bind no pod. Most likely we may tell their users nothing either, so it is logged."""
        found = {name: NOT_GIVEN.format(name) for name in sorted(namespaces) if not self._may_bind(name)}
        for name in found.keys() - self._logged:
            log.warning("%s", found[name])
        self._logged = set(found)
        return {name: (self._now(), why) for name, why in found.items()}

    def _is_taken(self, pod: PodSeen) -> bool:
        return self._cluster.root(pod) in self._taken or pod.uid in self._taken

    def _arrivals(self, groups: dict[PodGroup, list[PodSeen]]) -> list[tuple[JobSpec, Document]]:
        found = []
        incomplete: dict[str, str] = {}
        for group, pods in groups.items():
            try:
                pods = self._places.fill(group, pods, self._taken)
                if not pods:
                    continue
                start = self._groups.start(group, pods) if group.kind == "PodGroup" else GroupStart((tuple(pods),))
                arrivals = [one for members in start.jobs if (one := self._read(group, members, start.least))]
                for spec, _ in arrivals:
                    refuse_shares(group.kind, spec)
            except (NotFound, NotServed):
                continue  # deleted meanwhile
            except (Unavailable, Denied) as trouble:  # it is looked at again; the others have nothing to do with it
                if str(trouble) not in self._incomplete.values():
                    log.warning("%s %s/%s cannot be read: %s", group.kind, group.namespace, group.name, trouble)
                incomplete |= dict.fromkeys((pod.uid for pod in pods), str(trouble))
                continue
            except Rejected as refusal:
                self._refuse(group, pods, str(refusal))
                continue
            except Exception as error:  # one that we did not think of must not keep the others out
                log.exception("%s %s/%s cannot be read", group.kind, group.namespace, group.name)
                self._refuse(group, pods, f"it cannot be read: {type(error).__name__}: {error}")
                continue
            starting = {pod.uid for members in start.jobs for pod in members}
            if start.waits:
                incomplete |= {pod.uid: start.waits for pod in pods if pod.uid not in starting}
            found += [one for one in arrivals if not any(uid in self._taken for uid in uids(one[1]))]
        self._incomplete = incomplete
        return found

    def _refuse(self, group: PodGroup, pods: list[PodSeen], why: str) -> None:
        """As it is: when something of it changes, it is read again."""
        versions = {self._cluster.root(pod): self._version(pod) for pod in pods}
        if why not in self._said:
            log.warning("%s %s/%s is not for us: %s", group.kind, group.namespace, group.name, why)
        self._taken |= dict.fromkeys(versions, None)
        self._refusals |= dict.fromkeys(versions, Refusal(why, versions))

    def _forget_refused(self, waiting: Sequence[PodSeen]) -> None:
        """Those that are gone, for another of that uid will not come, and those of which anything has changed."""
        self._said = {refusal.why for refusal in self._refusals.values()}
        there = {uid: pod for pod in waiting for uid in (self._cluster.root(pod), pod.uid) if uid in self._refusals}
        for uid, refusal in list(self._refusals.items()):
            versions = refusal.versions or {}
            if uid not in there or any(self._version(there[one]) != versions[one] for one in versions if one in there):
                del self._refusals[uid]
                self._taken.pop(uid, None)

    def _version(self, pod: PodSeen) -> str:
        """Of what we take for a job: the object that makes the pod, or the pod itself."""
        group = group_of(pod)
        found = self._cluster.object(group.kind, group.namespace, group.name) if group.kind in KINDS else None
        return (
            ((pod.document or {}).get("metadata") or {}).get("resourceVersion", "") if found is None else found.version
        )

    def _submit(self, namespace: str, arrivals: Sequence[tuple[JobSpec, Document]]) -> None:
        """All at once, or as many as the limits of the namespace allow; one that cannot be stored is refused alone."""
        if not arrivals or namespace in self._full:
            return
        try:
            self._take_in(namespace, arrivals)
        except TooMany as refusal:
            if len(arrivals) == 1:
                self._full[namespace] = self._now() + FULL_S, str(refusal)
                return
            for half in (arrivals[: len(arrivals) // 2], arrivals[len(arrivals) // 2 :]):
                self._submit(namespace, half)
        except SwellError:
            raise
        except Exception as error:
            if len(arrivals) > 1:
                for one in arrivals:
                    self._submit(namespace, [one])
                return
            log.exception("%s cannot be stored", arrivals[0][1]["metadata"])
            why = Refusal(f"it cannot be stored: {type(error).__name__}: {error}", None)
            self._taken |= dict.fromkeys(uids(arrivals[0][1]))
            self._refusals |= dict.fromkeys(uids(arrivals[0][1]), why)

    def _take_in(self, namespace: str, arrivals: Sequence[tuple[JobSpec, Document]]) -> None:
        jobs = {self._key(reference): NewJob(spec, namespace, {}, None, reference) for spec, reference in arrivals}
        references = [reference for _, reference in arrivals]
        refuse_without_disk(namespace, self._disk_use(namespace))
        quota = self._limits(namespace).quota
        self._jobs.take_in(jobs, lambda records: self._became(references, records), origin=BY, quota=quota).result()

    def _key(self, reference: Document) -> str:
        uid = reference["metadata"]["uid"]
        times = self._times.get(uid, 0)
        return f"kubernetes:{uid}:{times}" if times else f"kubernetes:{uid}"

    def _became(self, references: Sequence[Document], records: Sequence[JobRecord | None]) -> None:
        for reference, record in zip(references, records, strict=True):
            if record is not None and _is_to_come_again(record):
                uid = reference["metadata"]["uid"]
                self._times[uid] = self._times.get(uid, 0) + 1
                self.ring()
            elif record is not None:
                self.know(record.id, reference)
            else:
                self._taken |= dict.fromkeys(uids(reference))
                self._refusals |= dict.fromkeys(uids(reference), Refusal(DELETED, None))

    # -- what they ask for -----------------------------------------------------------------------------------------

    def _read(self, group: PodGroup, pods: Sequence[PodSeen], least: int | None) -> tuple[JobSpec, Document] | None:
        """None: the engine has not seen it yet, or it is a job of another server."""
        if group.kind in ("Pod", "PodGroup"):
            spec, reference = read_pods(group, pods, self._limits(group.namespace).priority, least, self._volumes)
            anew = dict.fromkeys(self._anew[pod.uid] for pod in pods if pod.uid in self._anew)
            return replace(spec, notes=(*spec.notes, *anew)), reference
        resource = self._cluster.resources.get(group.kind)
        if resource is None or self._cluster.object(group.kind, group.namespace, group.name) is None:
            return None
        document = self._port.get(resource, group.name, group.namespace)
        if (document["metadata"].get("annotations") or {}).get(SERVER, self._store) != self._store:
            return None
        priority_max = self._limits(group.namespace).priority
        return read_object(document, self._priority_classes(), priority_max, self._volumes)

    # -- what is gone ----------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        gone = [job for job, reference in self._references.items() if not self._is_there(job, reference)]
        waiting = [job for job in gone if not self._is_begun(job) or self._waits_in_vain(job)]
        for by in {self._deleted_by(job) for job in waiting}:
            mine = [job for job in waiting if self._deleted_by(job) == by]
            self._jobs.cancel(mine, by=by, grace_s=None, origin=BY).result()
        self._lost |= {group_of_reference(self._references[job]) for job in gone if LEAST in self._references[job]}
        self._forget(gone)

    def _deleted_by(self, job: JobId) -> str:
        namespace = self._references[job]["metadata"]["namespace"]
        return f"the deletion of namespace {namespace}" if self._cluster.is_ending(namespace) else BY

    def _waits_in_vain(self, job: JobId) -> bool:
        """We have taken its pods away, to make room, and their controller has made others: those are other jobs."""
        reference, record = self._references[job], self._record(job)
        is_remade = reference["kind"] == "Pods" and not all("document" in pod for pod in reference["pods"])
        return is_remade and record is not None and record.state in (JobState.QUEUED, JobState.HELD)

    def _regroup(self) -> None:
        """A job of which a pod was deleted is over before its pods begin; those that are left are grouped anew."""
        broken = {job: one for job, one in self._references.items() if one["kind"] == "Pods" and self._is_broken(one)}
        waiting = [job for job in broken if not self._is_begun(job)]
        over = [job for job in broken if self._is_deleted(job)]
        self._lost |= {group_of_reference(broken[job]) for job in over}
        self._end_rest()
        if waiting:
            self._give_up(waiting, by=CHANGED)
        self._forget([*over, *(job for job in waiting if not self._is_begun(job))])

    def _end_rest(self) -> None:
        """Of a group never fewer run than must run together: when too few are left, the rest of it ends as well.

        Only where a job of the group is over, or, as after a restart of ours, where a member waits.
        """
        beside = {job: one for job, one in self._references.items() if one.get(LEAST, 0) > self._places.size(job, one)}
        short = {
            group
            for group, least in {(group_of_reference(one), one[LEAST]) for one in beside.values()}
            if self._is_short(group, least)
        }
        ending = [job for job, one in beside.items() if group_of_reference(one) in short and self._is_begun(job)]
        if ending:
            self._jobs.cancel(ending, by=CHANGED, grace_s=None, origin=BY).result()
        self._lost.clear()

    def _is_short(self, group: tuple[str, str], least: int) -> bool:
        """Are fewer of a group left than must run together, and were some of it lost?"""
        members = [pod for pod in self._cluster.pods_of_group(*group) if counts(pod)]
        begun = {job for job in map(self.job_of, members) if job is not None and self._is_begun(job)}
        is_waiting = [not (pod.node or pod.has_ended or self.job_of(pod) in begun) for pod in members]
        working = [pod for pod, waits in zip(members, is_waiting, strict=True) if not waits]
        done = [pod for pod in working if pod.has_ended]
        left = {pod.uid for pod in (*done, *self._staying(working))}
        kept = self._places.kept(group)
        return len(left) + kept < least and (group in self._lost or any(is_waiting))

    def _ahead(self, pods: Sequence[PodSeen]) -> int:
        """How many of them are of a job that has not ended?"""
        counts = Counter(job for job in map(self.job_of, pods) if job is not None)
        return sum(count for job, count in counts.items() if not self._has_ended(job))

    def _has_ended(self, job: JobId) -> bool:
        record = self._record(job)
        return record is None or record.state.has_ended

    def _is_deleted(self, job: JobId) -> bool:
        """Has it ended because somebody deleted a pod of it?"""
        record = self._record(job)
        return record is None or record.reason_code is Code.OBJECT_DELETED

    def _is_broken(self, reference: Document) -> bool:
        """Some of its pods are gone, or on their way, before they had succeeded, and some are not."""
        there = [pod for pod in self._cluster.pods(uids(reference)) if counts(pod)]
        if not there or len(there) == len(uids(reference)):
            return False
        known = {pod.uid for pod in there}
        gone = [self._cluster.departed(uid) for uid in uids(reference) if uid not in known]
        return any(pod is None or pod.phase != "Succeeded" for pod in gone)

    def _staying(self, pods: Sequence[PodSeen]) -> list[PodSeen]:
        """Those of them that no lost pod of the same job takes along."""
        jobs = {pod.uid: self.job_of(pod) for pod in pods}
        references = {job: self._references[job] for job in set(jobs.values()) if job in self._references}
        broken = {job for job, one in references.items() if one["kind"] == "Pods" and self._is_broken(one)}
        broken -= {job for job in broken if self._places.survives(job)}
        return [pod for pod in pods if jobs[pod.uid] not in broken]

    def _leave(self) -> None:
        """What another places, or takes in, is not ours any more; unless it has begun, then it is ours to the end."""
        found = [
            job
            for job, reference in self._references.items()
            if job not in self._begun
            and (self._intake.leaves(reference["metadata"]["namespace"]) or self._is_placed(reference))
        ]
        self._begun.update(filter(self._is_begun, found))  # asked last: what is placed and has begun was placed by us
        left = [job for job in found if job not in self._begun]
        if not left:
            return
        self._give_up(left, by=OTHER)
        self._forget(job for job in left if not self._is_begun(job))

    def _give_up(self, jobs: Sequence[JobId], by: str) -> None:
        """What becomes of the pods that are left is told with the job that they are next."""
        self._jobs.give_up(jobs, by=by, origin=BY).result()
        for job in jobs:
            self._anew |= dict.fromkeys(uids(self._references[job]), ANEW.format(job, by))

    def _forget(self, jobs: Iterable[JobId]) -> None:
        """Last: what could not be recorded is tried again."""
        for job in jobs:
            self._begun.discard(job)
            for uid in uids(self._references.pop(job)):
                self._taken.pop(uid, None)

    def _is_placed(self, reference: Document) -> bool:
        is_plain = reference["kind"] == "Pods"
        return is_plain and any(pod.node and not pod.has_ended for pod in self._cluster.pods(uids(reference)))

    def _is_there(self, job: JobId, reference: Document) -> bool:
        metadata = reference["metadata"]
        if reference["kind"] == "Pods":
            pods = [*self._cluster.pods(uids(reference)), *self._places.replacements(job, reference)]
            return any(not pod.is_deleting for pod in pods)
        return self._cluster.has_object(reference["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _rest_s(took: TurnTime) -> float:
    return min(GATHER_S_MAX, max(GATHER_S, 2 * took.elapsed_s))


def _is_to_come_again(record: JobRecord) -> bool:
    """Was it cancelled only because its pods were to become another job?"""
    return record.cancel_requested_by in GIVEN_UP_BY or record.reason_code is Code.OBJECT_DELETED
