"""What is the cluster like now?

One reflector per resource keeps a copy; here the copies are put in order, so that an attempt finds its object and its
pods, and a node what stands on it, without looking at all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import Unauthorized
from swell.engines.kubernetes.client.resources import NAMESPACES, NODES, PODS, NotServed, Resource, not_served
from swell.engines.kubernetes.objects.kinds import KINDS, Kind
from swell.engines.kubernetes.objects.objects import ObjectSeen
from swell.engines.kubernetes.watch.mirror import WatchChange
from swell.engines.kubernetes.watch.observed_objects import (
    JOBSET_NAME,
    JOBSET_UID,
    NodeSeen,
    PodSeen,
    parse_number,
    read_node,
    read_pod,
)
from swell.engines.kubernetes.watch.pod_index import Index, JobKey, PodIndex
from swell.engines.kubernetes.watch.reflector import Reflector
from swell.engines.kubernetes.watch.unreadable import Unreadable
from swell.errors import Denied, SwellError
from swell.model.kind import JOB, JOBSET, MPIJOB
from swell.model.resources import NOTHING

log = logging.getLogger(__name__)
K = TypeVar("K")
LAUNCHER = "-launcher"  # how the Job of an MPIJob's launcher is called after it
LOOK_FOR_KINDS_S = 30.0  # an operator may be installed while we run
ASK_AGAIN_S = 0.2
CONSTRAINTS = ("security.openshift.io/v1", "SecurityContextConstraints")


class Cluster:
    """Thread-safe. `changed` is told which pods, objects and nodes are not what they were."""

    def __init__(
        self, port: ApiClient, changed: Callable[[Sequence[PodSeen], Iterable[ObjectSeen], Iterable[str]], None]
    ) -> None:
        self._port = port
        self._changed = changed
        self._lock = threading.RLock()
        self._pods = PodIndex()
        self._objects: dict[tuple[str, str, str], ObjectSeen] = {}
        self._objects_by_job: dict[JobKey, set[tuple[str, str, str]]] = defaultdict(set)
        self._nodes: dict[str, NodeSeen] = {}
        self.resources: dict[str, Resource] = {"Pod": PODS}  #: kind → where it is, of those that are served
        self._reflectors: dict[str, Reflector[Any]] = {
            "Node": Reflector(port, Selection(NODES), read_node, self._node_changed),
            "Pod": Reflector(port, Selection(PODS), read_pod, self._pods_changed),
        }
        #: Of a role from before that may not see namespaces, nothing else depends on them.
        self._namespaces = Reflector(port, Selection(NAMESPACES), is_being_deleted, self._namespaces_changed)
        self._ending: set[str] = set()  #: namespaces that are being deleted, or were while we looked
        self._looked_at = 0.0
        self.assigns_users = False  #: OpenShift does, to each namespace its own, and refuses others

    def start(self, timeout_s: float) -> str | None:
        """Follow everything that is served. None: all of it was listed; otherwise what is wrong."""
        if (refusal := self._refusal()) is not None:
            return refusal
        for reflector in (*self._reflectors.values(), self._namespaces):
            reflector.start()
        until = time.monotonic() + timeout_s
        while (unknown := self._follow_kinds() or self._look_for_constraints()) is not None:
            # Objects of a kind that is not followed would seem to be gone.
            if time.monotonic() > until:
                return unknown
            time.sleep(ASK_AGAIN_S)
        for kind, reflector in list(self._reflectors.items()):
            if not reflector.wait_until_synced(max(0.0, until - time.monotonic())):
                return f"{kind}: {reflector.trouble}"
        return None

    def _refusal(self) -> str | None:
        """What no waiting helps against: a credential that is over, a role that may not look."""
        for resource in (NODES, PODS):
            try:
                next(self._port.pages(Selection(resource), limit=1))
            except (Unauthorized, Denied) as error:
                return str(error)
            except SwellError as error:
                log.info("%s; trying again", error)
        return None

    def _look_for_constraints(self) -> str | None:
        try:
            self.assigns_users = self._find(*CONSTRAINTS) is not None
        except SwellError as error:
            return f"{CONSTRAINTS[1]}: {error}"
        return None

    def stop(self) -> None:
        for reflector in (*list(self._reflectors.values()), self._namespaces):
            reflector.stop()

    @property
    def trouble(self) -> str | None:
        """Why the picture may be old; None: it is not."""
        reflectors = list(self._reflectors.values())  # another thread may find one more kind
        return next((one.trouble for one in reflectors if one.trouble is not None), None)

    def unreadable(self) -> list[Unreadable]:
        """Objects that are left out, or stay as they were, until they change."""
        reflectors = list(self._reflectors.values())
        return [one for reflector in reflectors for one in reflector.unreadable().values()]

    def look_for_kinds(self) -> None:
        """Those that are served by now; a cluster need not have every operator."""
        if time.monotonic() - self._looked_at < LOOK_FOR_KINDS_S and self._looked_at:
            return
        self._follow_kinds()

    def _follow_kinds(self) -> str | None:
        """None: it is known of each kind whether it is served; otherwise what is not, and why."""
        self._looked_at = time.monotonic()
        unknown = None
        for kind in KINDS.values():
            if kind.name in self._reflectors:
                continue
            try:
                resource = self._find(kind.api_version, kind.name)
            except SwellError as error:
                unknown = f"{kind.name}: {error}"
                continue
            if resource is None:
                continue
            self.resources[kind.name] = resource
            reflector = Reflector(self._port, Selection(resource), kind.read, self._objects_changed)
            self._reflectors[kind.name] = reflector
            reflector.start()
        return unknown

    def _find(self, api_version: str, kind: str) -> Resource | None:
        """None: it is not served."""
        try:
            return self._port.resource(api_version, kind)
        except NotServed:
            return None
        except SwellError as error:
            log.warning("cannot tell whether %s is served: %s", kind, error)
            raise

    def served(self, kind: str) -> tuple[Kind, Resource]:
        """Raises `NotServed` where whoever makes such objects is not installed."""
        found = KINDS[kind]
        if found.name not in self.resources:
            raise not_served(found.api_version, found.name)
        return found, self.resources[found.name]

    # -- questions -------------------------------------------------------------------------------------------------

    def object(self, kind: str, namespace: str, name: str) -> ObjectSeen | None:
        with self._lock:
            return self._objects.get((kind, namespace, name))

    def objects_of_job(self, key: JobKey) -> list[ObjectSeen]:
        """Those that carry its labels, which are easily written elsewhere, too."""
        with self._lock:
            return [self._objects[one] for one in sorted(self._objects_by_job.get(key, ()))]

    def pods_of_job(self, key: JobKey) -> list[PodSeen]:
        return self._sorted(self._pods.by_job, key)

    def jobs_of(self, store: str) -> set[int]:
        """Those that something here carries the labels of."""
        with self._lock:
            keys = [*self._pods.by_job, *self._objects_by_job]
        numbers = [parse_number(job) for its_store, job in keys if its_store == store]
        return {number for number in numbers if number is not None}

    def stand_ins(self, store: str) -> list[PodSeen]:
        return self._sorted(self._pods.stand_ins, store)

    def pods_of_object(self, kind: str, namespace: str, name: str, *, uid: str) -> list[PodSeen]:
        """Also of one that is gone, as long as the garbage collector has not reached them."""
        if KINDS[kind].makes_jobs:
            root = set_root(namespace, name, uid)
            there = self._sorted(self._pods.by_set, (namespace, name))
            return [pod for pod in there if self.root(pod) in (uid, root, set_root(namespace, name, ""))]
        makers = [uid, *self._launchers(namespace, name, uid)] if kind == MPIJOB.name else [uid]
        found = [pod for maker in makers for pod in self._sorted(self._pods.by_owner, maker)]
        return sorted(found, key=lambda pod: (pod.created_at, pod.uid))

    def _launchers(self, namespace: str, name: str, uid: str) -> list[str]:
        """Of an MPIJob: the Job whose pod is its launcher."""
        job = self.object(JOB.name, namespace, f"{name}{LAUNCHER}")
        return [job.uid] if job is not None and job.maker == uid else []

    def pods_of_group(self, namespace: str, name: str) -> list[PodSeen]:
        """Those with the label of a pod group, whoever made or places them."""
        return self._sorted(self._pods.by_group, (namespace, name))

    def pods(self, uids: Iterable[str]) -> list[PodSeen]:
        with self._lock:
            return self._pods.of(uids)

    def pods_on(self, node: str) -> list[PodSeen]:
        return self._sorted(self._pods.by_node, node)

    def take_room(self, pod: PodSeen, node: str) -> bool:
        """For a pod that is about to be bound, if there is any beside all that stands there or is being bound there,
        whoever does that: so its kubelet counts. It is taken until the watch shows the pod, or it is left."""
        with self._lock:
            seen = self._nodes.get(node)
            there = self._pods.of(self._pods.by_node.get(node, set()) | self._pods.promised.get(node, set()))
            taken = sum((one.needs for one in there if one.uid != pod.uid), NOTHING)
            has_room = seen is None or pod.needs.fits_in(seen.room - taken)
            if has_room:
                self._pods.promise(pod.uid, node)
            return has_room

    def give_room(self, pod: PodSeen, node: str) -> None:
        """To one that is about to be bound, however much there is."""
        with self._lock:
            self._pods.promise(pod.uid, node)

    def leave_room(self, pod: PodSeen) -> None:
        """It was not bound."""
        with self._lock:
            self._pods.break_promise(pod.uid)

    def departed(self, uid: str) -> PodSeen | None:
        """A pod that had ended when it was deleted, a moment ago; None: there was none."""
        with self._lock:
            return self._pods.departed.get(uid)

    def reservations(self, store: str) -> list[PodSeen]:
        """The pods that keep GPUs for those who share them."""
        return self._sorted(self._pods.reserving, store)

    def root(self, pod: PodSeen) -> str:
        """The uid of what we take for a job: an object of a kind that we read, or the pod itself.

        The pods of a JobSet say its name and uid, which anybody can write: believed is what belongs to the namespace.
        Of a JobSet that is gone they are known by both together (`set_root`), whatever else has its name by now.
        """
        if JOBSET_NAME not in pod.labels or self._is_left_alone(pod):
            return self._maker(pod)
        name, uid = pod.labels[JOBSET_NAME], pod.labels.get(JOBSET_UID, "")
        found = self.object(JOBSET.name, pod.namespace, name)
        return set_root(pod.namespace, name, uid) if found is None or uid not in ("", found.uid) else found.uid

    def roots(self, pod: PodSeen) -> set[str]:
        """What the attempt may be known by that a change of this pod concerns.

        Watches are not in order: another JobSet of the name may have been seen before the last of this pod, whose root
        is the other one's since.
        """
        name = pod.labels.get(JOBSET_NAME)
        others = {self._mpijob(pod)} - {""} if name is None else {set_root(pod.namespace, name, "")}
        return {self.root(pod), *others}

    def _maker(self, pod: PodSeen) -> str:
        """Pods of MPIJobs that are in a pod group are jobs with that: whoever put them there counts on it."""
        mpijob = self._mpijob(pod)
        if mpijob and not pod.group:
            return mpijob
        is_ours_to_read = pod.owner is not None and pod.owner.kind in KINDS and pod.owner.kind != MPIJOB.name
        return pod.owner.uid if pod.owner is not None and is_ours_to_read else pod.uid

    def _mpijob(self, pod: PodSeen) -> str:
        """The MPIJob that makes it, also by the Job of its launcher; empty: none does."""
        owner = pod.owner
        if owner is None or owner.kind not in (MPIJOB.name, JOB.name):
            return ""
        if owner.kind == MPIJOB.name:
            return owner.uid
        job = self.object(JOB.name, pod.namespace, owner.name)
        found = self.object(MPIJOB.name, pod.namespace, owner.name.removesuffix(LAUNCHER))
        is_launcher = job is not None and found is not None and (job.uid, job.maker) == (owner.uid, found.uid)
        return found.uid if is_launcher and found is not None else ""

    def _is_left_alone(self, pod: PodSeen) -> bool:
        """Its JobSet was deleted without its Jobs (`--cascade=orphan`): its Job is a Job by itself now."""
        made_by = None if pod.owner is None else self.object("Job", pod.namespace, pod.owner.name)
        return made_by is not None and pod.owner is not None and made_by.uid == pod.owner.uid and not made_by.maker

    def waiting_pods(self) -> list[PodSeen]:
        """Those that came by kubectl and are to be placed by us."""
        with self._lock:
            return list(self._pods.waiting.values())

    def has_object(self, kind: str, namespace: str, name: str, *, uid: str) -> bool:
        found = self.object(kind, namespace, name)
        return found is not None and found.uid == uid and not found.is_deleting

    def is_ending(self, namespace: str) -> bool:
        """Was the namespace deleted, and everything in it with it?"""
        with self._lock:
            return namespace in self._ending

    def nodes(self) -> dict[str, NodeSeen]:
        with self._lock:
            return dict(self._nodes)

    def _sorted(self, index: Index[K], key: K) -> list[PodSeen]:
        with self._lock:
            found = self._pods.of(index.get(key, ()))
        return sorted(found, key=lambda pod: (pod.created_at, pod.uid))

    # -- changes, from the reflectors' threads ---------------------------------------------------------------------

    def _pods_changed(self, changes: tuple[WatchChange[PodSeen], ...]) -> None:
        nodes: set[str] = set()
        touched = []
        with self._lock:
            for change in changes:
                for pod in (change.before, change.after) if _is_news(change) else ():
                    if pod is not None:
                        touched.append(pod)
                        nodes.add(pod.node)
                if change.before is not None:
                    self._pods.drop(change.before)
                if change.after is not None:
                    self._pods.keep(change.after)
                if change.before is not None and (change.after is None or change.after.uid != change.before.uid):
                    self._pods.break_promise(change.before.uid)
                    self._pods.depart(change.before)
        nodes.discard("")
        if touched:
            self._changed(touched, (), nodes)

    def _objects_changed(self, changes: tuple[WatchChange[ObjectSeen], ...]) -> None:
        with self._lock:
            for change in changes:
                before, after = change.before, change.after
                if before is not None:
                    key = (before.kind, before.namespace, before.name)
                    self._objects.pop(key, None)
                    self._objects_by_job[before.store, before.job].discard(key)
                    if not self._objects_by_job[before.store, before.job]:
                        del self._objects_by_job[before.store, before.job]
                if after is not None:
                    key = (after.kind, after.namespace, after.name)
                    self._objects[key] = after
                    if after.job:
                        self._objects_by_job[after.store, after.job].add(key)
        self._changed((), [one for change in changes for one in (change.before, change.after) if one is not None], ())

    def _namespaces_changed(self, changes: tuple[WatchChange[bool], ...]) -> None:
        with self._lock:
            for change in changes:
                if change.after is False:
                    self._ending.discard(change.key[1])
                elif change.after is True or change.before is not None:
                    self._ending.add(change.key[1])

    def _node_changed(self, changes: tuple[WatchChange[NodeSeen], ...]) -> None:
        with self._lock:
            news = [change for change in changes if change.before != change.after]  # most are heartbeats
            for change in news:
                if change.after is None:
                    self._nodes.pop(change.key[1], None)
                else:
                    self._nodes[change.key[1]] = change.after
        if news:
            self._changed((), (), [change.key[1] for change in news])


def is_being_deleted(document: Document) -> bool:
    return "deletionTimestamp" in document["metadata"]


def set_root(namespace: str, name: str, uid: str) -> str:
    """How the pods of a JobSet are known that is gone; `uid` empty: one that does not tell its pods its own."""
    return f"{JOBSET.name} {namespace}/{name} {uid}"


def object_roots(seen: ObjectSeen) -> set[str]:
    """What the attempts may be known by that a change of this object concerns.

    Whose the pods of a JobSet are also depends on who has made their Job, and on which JobSet has the name now.
    """
    named = {set_root(seen.namespace, seen.name, "")} if KINDS[seen.kind].makes_jobs else set()
    return {seen.uid, seen.maker, *named} - {""}


def _is_news(change: WatchChange[PodSeen]) -> bool:
    """Not what we have told a pod ourselves: thousands of them wait, and nobody needs to look at them for that."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return replace(before, is_told=after.is_told, document=after.document) != after
