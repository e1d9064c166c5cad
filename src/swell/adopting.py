"""Which jobs came by kubectl?

Pods that name us as their scheduler and that we have not made; which of them are one job is in `podgroups.py`. They are
submitted as everybody's jobs are, once, under a key made from their uid. When they are deleted before they have begun,
their job is cancelled; afterwards the engine sees it. So it is when somebody else has placed them, or when another
server takes in by now (`intake.py`); should they be ours to take in again, they are another job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from swell.adopted import read_object, read_pods, refuse_shares
from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.kinds import KINDS
from swell.engines.kubernetes.life import uids
from swell.engines.kubernetes.picture import SERVER, PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.resources import NotServed
from swell.errors import Denied, NotFound, Rejected, SwellError, Unavailable
from swell.model.job import JobId, JobSpec
from swell.podgroups import SETTLED_S, Group, PodGroups, group_of
from swell.store import JobRecord, NewJob

log = logging.getLogger(__name__)
Document = dict[str, Any]

GATHER_S = 0.02  # pods come in bursts; and where looking takes long because many wait, it is done less often
GATHER_S_MAX = 2.0  # also after a question that the API server took long to answer
LET_GO_S = 1.0  # so long what was deleted may go unnoticed,
LET_GO_SHARE = 0.02  # or longer where there are thousands to look for: so much of a core goes into it
BY = "kubectl"
OTHER = "another scheduler"  # by whom a job is cancelled whose pods are not ours to place any more
DELETED = "its job was deleted with `swell delete` before it had begun; create it again to run it"


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str
    versions: Mapping[str, str] | None  #: uid → version of all that was refused together; None: whatever it becomes


class Jobs(Protocol):
    """What the controller offers."""

    def take_in(
        self, jobs: Mapping[str, NewJob], known: Callable[[list[JobRecord | None]], None], *, origin: str
    ) -> Future[list[JobRecord | None]]: ...

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str) -> Future[None]: ...

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str) -> Future[None]: ...


class Intake(Protocol):
    """Who takes in what."""

    def look_now_and_then(self) -> None: ...

    def takes(self, namespace: str) -> bool: ...

    def leaves(self, namespace: str) -> bool: ...


class Adopter(threading.Thread):
    def __init__(
        self,
        port: Port,
        cluster: Cluster,
        jobs: Jobs,
        is_begun: Callable[[JobId], bool],
        priority_classes: Callable[[], Mapping[str, int]],
        intake: Intake,
        store: str,
        priority_max: Callable[[str], int | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="adopter", daemon=True)
        self._port = port
        self._cluster = cluster
        self._jobs = jobs
        self._is_begun = is_begun  #: has there been an attempt of it? Then its pods are the engine's to judge
        self._priority_classes = priority_classes
        self._intake = intake
        self._store = store
        self._priority_max = priority_max  #: the highest that what is in a namespace may ask for; None: any
        self._times: dict[str, int] = {}  #: uid of an object or first pod → how often it was left to another
        self._taken: dict[str, JobId | None] = {}  #: uid of an object or pod → its job; None: refused
        self._refusals: dict[str, Refusal] = {}  #: uid of an object or pod → why it is not for us
        self._said: set[str] = set()  #: why something was refused, and still is: in the log already
        self._incomplete: dict[str, str] = {}  #: uid of a pod → what its group waits for
        self._references: dict[JobId, Document] = {}
        self._begun: set[JobId] = set()  #: of those; as far as it was asked
        self._groups = PodGroups(port, cluster, self._is_taken, now)
        self._let_go_at = 0.0
        self._bell = threading.Event()
        self._closing = threading.Event()

    def know(self, job: JobId, reference: Document) -> None:
        """It is this job."""
        self._references[job] = reference
        self._taken |= dict.fromkeys(uids(reference), job)

    # -- questions of other threads --------------------------------------------------------------------------------

    def job_of(self, pod: PodSeen) -> JobId | None:
        """None: it is not taken in, or came another way."""
        return self._taken.get(self._cluster.root(pod)) or self._taken.get(pod.uid)

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

    def ring(self) -> None:
        self._bell.set()

    def close(self) -> None:
        self._closing.set()
        self._bell.set()
        self.join()

    def run(self) -> None:
        while not self._closing.is_set():
            self._bell.wait(SETTLED_S)
            self._bell.clear()
            began = time.monotonic()
            try:
                self.look()
            except SwellError as error:
                log.warning("what came by kubectl could not be taken in: %s; trying again", error)
            except Exception:  # a thread that ends would leave every pod waiting for ever
                log.exception("what came by kubectl could not be taken in; trying again")
            self._closing.wait(min(GATHER_S_MAX, max(GATHER_S, 2 * (time.monotonic() - began))))

    def look(self) -> None:
        self._intake.look_now_and_then()
        groups: dict[Group, list[PodSeen]] = {}
        waiting = self._cluster.waiting_pods()
        ours = {name for name in {pod.namespace for pod in waiting} if self._intake.takes(name)}
        self._forget_refused(waiting)
        for pod in waiting:
            if pod.namespace in ours and not self._is_taken(pod):
                groups.setdefault(group_of(pod), []).append(pod)
        self._submit(self._arrivals(groups))
        if time.monotonic() > self._let_go_at:
            began = time.thread_time()
            try:
                self._let_go()
                self._leave()
            finally:
                self._let_go_at = time.monotonic() + max(LET_GO_S, (time.thread_time() - began) / LET_GO_SHARE)

    def _is_taken(self, pod: PodSeen) -> bool:
        return self._cluster.root(pod) in self._taken or pod.uid in self._taken

    def _arrivals(self, groups: dict[Group, list[PodSeen]]) -> list[tuple[JobSpec, Document]]:
        found = []
        incomplete: dict[str, str] = {}
        for group, pods in groups.items():
            try:
                missing = self._groups.missing(group, pods) if group.kind == "PodGroup" else None
                if missing is not None:
                    incomplete |= dict.fromkeys((pod.uid for pod in pods), missing)
                    continue
                one = self._read(group, pods)
                if one is not None:
                    refuse_shares(group.kind, one[0])
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
            if one is not None and not any(uid in self._taken for uid in uids(one[1])):
                found.append(one)
        self._incomplete = incomplete
        return found

    def _refuse(self, group: Group, pods: list[PodSeen], why: str) -> None:
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

    def _submit(self, arrivals: Sequence[tuple[JobSpec, Document]]) -> None:
        """All of them at once; should one be of a kind that cannot be stored, each by itself."""
        if not arrivals:
            return
        try:
            self._take_in(arrivals)
        except SwellError:
            raise
        except Exception as error:
            if len(arrivals) > 1:
                for one in arrivals:
                    self._submit([one])
                return
            log.exception("%s cannot be stored", arrivals[0][1]["metadata"])
            why = Refusal(f"it cannot be stored: {type(error).__name__}: {error}", None)
            self._taken |= dict.fromkeys(uids(arrivals[0][1]))
            self._refusals |= dict.fromkeys(uids(arrivals[0][1]), why)

    def _take_in(self, arrivals: Sequence[tuple[JobSpec, Document]]) -> None:
        jobs = {
            self._key(reference): NewJob(spec, reference["metadata"]["namespace"], {}, None, reference)
            for spec, reference in arrivals
        }
        references = [reference for _, reference in arrivals]
        self._jobs.take_in(jobs, lambda records: self._became(references, records), origin=BY).result()

    def _key(self, reference: Document) -> str:
        uid = reference["metadata"]["uid"]
        times = self._times.get(uid, 0)
        return f"kubernetes:{uid}:{times}" if times else f"kubernetes:{uid}"

    def _became(self, references: Sequence[Document], records: Sequence[JobRecord | None]) -> None:
        for reference, record in zip(references, records, strict=True):
            if record is not None and record.reason_evidence.get("by") == OTHER:
                uid = reference["metadata"]["uid"]
                self._times[uid] = self._times.get(uid, 0) + 1
                self._bell.set()
            elif record is not None:
                self.know(record.id, reference)
            else:
                self._taken |= dict.fromkeys(uids(reference))
                self._refusals |= dict.fromkeys(uids(reference), Refusal(DELETED, None))

    # -- what they ask for -----------------------------------------------------------------------------------------

    def _read(self, group: Group, pods: list[PodSeen]) -> tuple[JobSpec, Document] | None:
        """None: the engine has not seen it yet, or it is a job of another server."""
        if group.kind in ("Pod", "PodGroup"):
            return read_pods(group, pods, self._priority_max(group.namespace))
        resource = self._cluster.resources.get(group.kind)
        if resource is None or self._cluster.object(group.kind, group.namespace, group.name) is None:
            return None
        document = self._port.get(resource, group.name, group.namespace)
        if (document["metadata"].get("annotations") or {}).get(SERVER, self._store) != self._store:
            return None
        return read_object(document, self._priority_classes(), self._priority_max(group.namespace))

    # -- what is gone ----------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        gone = [job for job, reference in self._references.items() if not self._is_there(reference)]
        waiting = [job for job in gone if not self._is_begun(job)]
        if waiting:
            self._jobs.cancel(waiting, by=BY, grace_s=None, origin=BY).result()
        self._forget(gone)

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
        self._jobs.give_up(left, by=OTHER, origin=BY).result()
        self._forget(job for job in left if not self._is_begun(job))

    def _forget(self, jobs: Iterable[JobId]) -> None:
        """Last: what could not be recorded is tried again."""
        for job in jobs:
            self._begun.discard(job)
            for uid in uids(self._references.pop(job)):
                self._taken.pop(uid, None)

    def _is_placed(self, reference: Document) -> bool:
        is_plain = reference["kind"] == "Pods"
        return is_plain and any(pod.node and not pod.has_ended for pod in self._cluster.pods(uids(reference)))

    def _is_there(self, reference: Document) -> bool:
        metadata = reference["metadata"]
        if reference["kind"] == "Pods":
            return any(not pod.is_deleting for pod in self._cluster.pods(uids(reference)))
        return self._cluster.has_object(reference["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"])
