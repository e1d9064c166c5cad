"""Do the jobs that wait for room call the cluster's autoscaler?

For the first in line, pods stand in (`make_placeholder`), as long as there is not enough in the cluster
for them. They are made and removed by a thread of its own at a bounded pace. Nothing is remembered: those that are
there are found by their labels, so what a killed server has left is kept if its job still waits, and removed otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from swell.engines.kubernetes.client.api_client import ApiClient, PatchKind
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.converger import DENIED_S, Converger, TurnPace, TurnTime
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import STAND_IN, PodSeen, read_pod
from swell.engines.kubernetes.watch.unreadable import SCHEDULER, STORE
from swell.errors import Conflict, Denied, NotFound, Rejected
from swell.kubectl.status_objects import condition_patch
from swell.model.job import JobId
from swell.model.kubernetes_quantity import GPU
from swell.model.placement import PlacementRules
from swell.model.placement_fields import render_rules
from swell.model.resources import Resources
from swell.planner import Shortage

ROLE = "swell.dev/stand-in-role"  # label: which role of the job, by its number; rules of company are about one role
IMAGE = "registry.k8s.io/pause:3.10"


def make_placeholder(
    resources: Resources, rules: PlacementRules | None, *, job: JobId, role: int, rank: int, store: str, namespace: str
) -> Document:
    """`rank`: of the task, in the whole job."""
    labels = {STAND_IN: str(job), ROLE: str(role), STORE: store}
    container = {
        "name": "stand-in",
        "image": IMAGE,
        "resources": _amounts(resources),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        **render_rules(rules, labels),
    }
    metadata = {"name": placeholder_name(store, job, rank), "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def placeholder_name(store: str, job: JobId, rank: int) -> str:
    return f"swell-stand-in-{store[:8]}-{job}-{rank}"


def _amounts(resources: Resources) -> Document:
    """A share of a GPU needs a GPU that is not there yet: a whole one."""
    gpus = 1 if resources.is_share else resources.gpus
    requests = {}
    if resources.cpus_milli:
        requests["cpu"] = f"{resources.cpus_milli}m"
    if resources.memory_mib:
        requests["memory"] = f"{resources.memory_mib}Mi"
    if gpus:
        requests[GPU] = str(gpus)
    limits = {GPU: requests[GPU]} if gpus else {}
    return {side: given for side, given in (("requests", requests), ("limits", limits)) if given}


log = logging.getLogger(__name__)

STAND_INS_MAX = 200  # pods; an autoscaler looks at all of them every few seconds
SETTLED_S = 5.0  # most jobs that find no room get some sooner, from one that ends
STEPS_MAX = 20  # in one go; then the line is looked at again
STEPS_PER_S = 20
LOOK_S = 1.0
GATHER_S = 0.05  # commits come in bursts, and a plan is told a moment after it is stored
CORE_SHARE = 0.1
SHOWN_S = 10.0  # within this the watch shows what we have made
REFUSED_S = 60.0  # a quota, or an admission rule: what was refused is refused for a while
TASK = "making placeholder pods for jobs that wait for nodes"


@dataclass(frozen=True, slots=True)
class CreatePlaceholder:
    document: Document


@dataclass(frozen=True, slots=True)
class UpdatePlaceholder:
    """Say that it cannot be placed."""

    pod: PodSeen


@dataclass(frozen=True, slots=True)
class RemovePlaceholder:
    pod: PodSeen


Step = CreatePlaceholder | UpdatePlaceholder | RemovePlaceholder


def choose(shortages: Iterable[Shortage], most: int = STAND_INS_MAX) -> tuple[Shortage, ...]:
    """The first in line, as many as may stand in; half a gang would call for nodes on which nothing can start."""
    chosen: list[Shortage] = []
    for one in shortages:
        if one.tasks <= most:
            chosen.append(one)
            most -= one.tasks
    return tuple(chosen)


def render(shortages: Iterable[Shortage], *, store: str, namespace: str) -> dict[str, Document]:
    """A pod for every task, by its name."""
    pods = [
        make_placeholder(
            group.resources, group.rules, job=one.job, role=role, rank=rank, store=store, namespace=namespace
        )
        for one in shortages
        for rank, (role, group) in enumerate(
            (role, group) for role, group in enumerate(one.groups) for _ in range(group.count)
        )
    ]
    return {pod["metadata"]["name"]: pod for pod in pods}


def find_steps(wanted: Mapping[str, Document], seen: Sequence[PodSeen], made: Collection[str]) -> tuple[Step, ...]:
    """`made`: names of those that are there although nobody has shown them yet."""
    there = {pod.name for pod in seen}.union(made)
    staying = [pod for pod in seen if not pod.is_deleting]
    useless = {pod.uid for pod in staying if pod.name not in wanted or pod.node or pod.has_ended}
    return (
        *(RemovePlaceholder(pod) for pod in staying if pod.uid in useless),
        *(CreatePlaceholder(pod) for name, pod in wanted.items() if name not in there),
        *(UpdatePlaceholder(pod) for pod in staying if pod.uid not in useless and not pod.is_told),
    )


class PlaceholderPods:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        shortages: Callable[[], Sequence[Shortage] | None],
        *,
        store: str,
        namespace: str,
        has_pods: Callable[[JobId], bool] = lambda _: False,
        may_act: Callable[[], bool] = lambda: True,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port  #: of its own: these calls never take a connection from those that matter
        self._cluster = cluster
        self._shortages = shortages  #: in line; None: nobody knows yet
        self._store = store
        self._namespace = namespace
        self._has_pods = has_pods  #: of a job that came by kubectl: its own pods call
        self._may_act = may_act  #: are we the server that acts?
        self._now = now
        self._monotonic = monotonic
        self._since: dict[JobId, float] = {}  #: when each was first seen to lack room
        self._made: dict[str, float] = {}  #: name → when, of those that the watch does not show yet
        self._refused: dict[JobId, float] = {}  #: whose pods the API server does not take, and until when
        pace = TurnPace(look_s=LOOK_S, rest_s=_rest_s, denied_s=DENIED_S)
        self._converger = Converger("placeholder-pods", TASK, self._turn, pace)

    def start(self) -> None:
        self._converger.start()

    def ring(self) -> None:
        """Somebody may have started, or ended."""
        self._converger.ring()

    def close(self) -> None:
        """What stands in stays: its job waits for the next server."""
        self._converger.end()
        self._port.close()
        self._converger.close()

    def _turn(self) -> bool:
        self._converger.pause(GATHER_S)
        return self._may_act() and self.converge()

    def converge(self) -> bool:
        """A few steps; is there more to do?"""
        steps = self.look()
        for step in steps[:STEPS_MAX]:
            if self._converger.is_closing or not self._may_act():
                return False
            is_taken = self._do(step)
            self._converger.pause(1 / STEPS_PER_S)
            if not is_taken:
                return False
        return len(steps) > STEPS_MAX

    def look(self) -> tuple[Step, ...]:
        shortages = self._shortages()
        if shortages is None:
            return ()
        seen = [pod for pod in self._cluster.stand_ins(self._store) if pod.namespace == self._namespace]
        now = self._monotonic()
        shown = {pod.name for pod in seen}
        self._made = {name: at for name, at in self._made.items() if name not in shown and now - at < SHOWN_S}
        chosen = choose(self._settled(shortages, seen, now))
        return find_steps(render(chosen, store=self._store, namespace=self._namespace), seen, self._made)

    def _settled(self, shortages: Sequence[Shortage], seen: Sequence[PodSeen], now: float) -> list[Shortage]:
        """Those that have waited for a while; also before this server has known of them."""
        lacking = [one for one in shortages if not self._has_pods(one.job)]
        self._since = {one.job: self._since.get(one.job, now) for one in lacking}
        self._refused = {job: until for job, until in self._refused.items() if now < until}
        known = {pod.labels[STAND_IN] for pod in seen}
        return [
            one
            for one in lacking
            if one.job not in self._refused and (str(one.job) in known or now - self._since[one.job] >= SETTLED_S)
        ]

    # -- calls -----------------------------------------------------------------------------------------------------

    def _do(self, step: Step) -> bool:
        """What is not as it was is looked at again. False: half a gang is there, and goes before anybody else comes."""
        try:
            if isinstance(step, CreatePlaceholder):
                return self._create(step.document)
            if isinstance(step, UpdatePlaceholder):
                self._tell(self._port.get(PODS, step.pod.name, self._namespace))
            else:
                self._port.delete(PODS, step.pod.name, self._namespace, uid=step.pod.uid)
        except (NotFound, Conflict, AlreadyExists) as news:
            log.debug("looking again: %s", news)
        return True

    def _create(self, document: Document) -> bool:
        metadata = document["metadata"]
        job = int(metadata["labels"][STAND_IN])
        self._made[metadata["name"]] = self._monotonic()
        try:
            created = self._port.create(PODS, document, self._namespace)
        except (AlreadyExists, Denied):
            raise
        except Rejected as refusal:
            self._refused[job] = self._monotonic() + REFUSED_S
            log.warning("nothing stands in for job %d for %.0f s: %s", job, REFUSED_S, refusal)
            return False
        self._tell(created)
        return True

    def _tell(self, document: Document) -> None:
        pod, version = read_pod(document), document["metadata"]["resourceVersion"]
        job = pod.labels.get(STAND_IN)
        message = f"job {job} of Swell waits for nodes that can hold it; this pod stands in for one of its tasks"
        patch = condition_patch(pod, version, message, self._now())
        self._port.patch(PODS, pod.name, patch, self._namespace, "status", kind=PatchKind.STRATEGIC)


def _rest_s(took: TurnTime) -> float:
    return max(GATHER_S, took.core_s / CORE_SHARE)
