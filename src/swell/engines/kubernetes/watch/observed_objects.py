"""What is kept of the cluster's objects?

Of tens of thousands of pods, only what is needed to count, place and follow them; everything is read here, once, from
documents that the API server has checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.amounts import pod_resources, quantity, room
from swell.engines.kubernetes.objects.pod_group_name import group_name
from swell.engines.kubernetes.watch.unreadable import SCHEDULER, STORE
from swell.errors import Rejected
from swell.model.cluster import GPU_MEMORY_LABEL
from swell.model.job import AttemptId
from swell.model.kubernetes_quantity import GPU, ONE, whole
from swell.model.placement import Effect, Taint
from swell.model.placement_fields import POD_GROUP
from swell.model.resources import Resources

JOB = "swell.dev/job"  # label of everything we make: the job's id
#: annotation of objects, of the pods of their templates, of those that we make, and of plain ones that begin again
ATTEMPT = "swell.dev/attempt"
SUSPENDED = "swell.dev/suspended"  # annotation of objects: the attempt in which we have suspended one
SERVER = "swell.dev/server"  # annotation of objects that came by kubectl and are in an attempt: whose
RANK = "swell.dev/rank"  # annotation of pods that we make ourselves, and of those of a Job that have no number
INDEX = "batch.kubernetes.io/job-completion-index"
DEVICE = "swell.dev/gpu"  # annotation of pods that share a GPU, and of the pod that reserves it: its UUID
NUMBER = "swell.dev/gpu-number"  # annotation of pods that share a GPU: which of its node it is in our plans
SHARE_MIB = "swell.dev/gpu-memory-mib"  # annotation of pods that share a GPU: how much of it is theirs
RESERVATION = "swell.dev/reservation"  # label of pods that keep a GPU for those who share it: its number, too
NODE = "swell.dev/node"  # annotation of such pods: whose GPU
TOTAL = "swell.dev/gpu-total-mib"  # annotation of such pods: how much memory it has
STAND_IN = "swell.dev/stand-in"  # label of pods that call an autoscaler: the id of the job that waits
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"  # label of its pods since JobSet 0.9; a name may be used again
MPI_OPERATOR = "mpi-operator"
OPERATOR = "training.kubeflow.org/operator-name"  # label of pods that an operator of Kubeflow's makes
OPERATOR_JOB = "training.kubeflow.org/job-name"  # likewise: the object
MPI_ROLE = "training.kubeflow.org/job-role"  # label of an MPIJob's pods: launcher or worker
KEPT_LABELS = (
    JOB,
    STORE,
    RESERVATION,
    STAND_IN,
    "job-name",
    INDEX,
    OPERATOR,
    OPERATOR_JOB,
    MPI_ROLE,
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    JOBSET_NAME,
    JOBSET_UID,
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    POD_GROUP,
)
LAST_WORDS = '{"swell_attempt":'  # how the last report begins that a job leaves as its termination message
NOT_STARTED = ("StartError", "ContainerCannotRun")  # the runtime refused to start it: containerd's word, and docker's
GRACE_S_DEFAULT = 30
DIGITS_MAX = 18  # more than any job, rank or amount of memory has, and a database can still store it
GPUS_MAX = 4096  # of a node: each becomes a device in every plan
KEPT_ANNOTATIONS = (ATTEMPT, RANK, DEVICE, NUMBER, NODE, TOTAL, INDEX)


@dataclass(frozen=True, slots=True)
class Owner:
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pod ended, or why it never began."""

    at: float
    exit_code: int | None  #: None: nothing of it ran
    reason: str  #: Kubernetes' word: OOMKilled, Evicted, UnexpectedAdmissionError, Error, Completed …
    message: str
    has_run: bool
    last_words: str = ""  #: a report that nobody heard; empty: it has left none


@dataclass(frozen=True, slots=True)
class Restarted:
    """A container that ended and was begun again by its kubelet."""

    times: int
    exit_code: int  #: of its last life that is over
    reason: str  #: Kubernetes' word for that end: Error, OOMKilled, Completed …
    runs_since: float | None  #: None: it waits to be begun once more


@dataclass(frozen=True, slots=True)
class PodSeen:
    namespace: str
    name: str
    uid: str
    created_at: float
    scheduler: str
    node: str  #: empty: not bound
    phase: str
    needs: Resources
    owner: Owner | None  #: who makes another if it goes; None: nobody
    labels: dict[str, str]  #: only those of KEPT_LABELS
    annotations: dict[str, str]  #: only those of KEPT_ANNOTATIONS
    grace_s: float
    is_deleting: bool
    is_disrupted: bool  #: somebody's eviction, a lost node: not the job's own end
    is_told: bool  #: it carries the condition that it cannot be placed
    started_at: float | None  #: of its first container; None: it has not
    waiting: str  #: why its container does not start, in Kubernetes' words; empty: it does
    ended: Ended | None  #: None: it has not
    restarted: Restarted | None = None  #: None: none of its containers was
    runtime_class: str = ""  #: empty: the cluster's default
    claims: tuple[str, ...] = ()  #: volumes it wants, by the name of their claim
    named_group: str = ""  #: those that start with it, if no label says so (`pod_group_name.py`); empty: none
    document: Document | None = None  #: whole, while it waits for us and came by kubectl

    @property
    def group(self) -> str:
        """Of pods that start together; empty: it is in none."""
        return self.labels.get(POD_GROUP) or self.named_group

    @property
    def is_numbered(self) -> bool:
        """Does it say itself which of its Job's tasks it is? Only an Indexed Job numbers its pods."""
        return RANK in self.annotations or INDEX in self.annotations or INDEX in self.labels

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_refused(self) -> bool:
        """By its node: it has failed, and nothing of it ever ran."""
        return self.phase == "Failed" and self.ended is not None and not self.ended.has_run

    @property
    def is_evicted(self) -> bool:
        """By somebody who asked the API for it, or by its kubelet, which says so as it ends."""
        return self.is_disrupted or (self.ended is not None and self.ended.reason == "Evicted")

    @property
    def is_spoilt(self) -> bool:
        """It has failed, and not by itself: its node has refused it, or it was evicted."""
        return self.is_refused or (self.phase == "Failed" and self.is_evicted)

    @property
    def attempt(self) -> AttemptId | None:
        return parse_attempt(self.annotations.get(ATTEMPT, ""))


@dataclass(frozen=True, slots=True)
class NodeSeen:
    name: str
    room: Resources
    pods_max: int
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    is_cordoned: bool
    is_ready: bool
    not_ready_since: float | None  #: None: it is ready
    gpu_memory_mib: int  #: of each GPU; 0: the node does not say
    gpu_model: str
    has_address: bool = True  #: without one nobody can ask its kubelet for logs: it is simulated, or just joining


def labelled_job(labels: Mapping[str, str], store: str) -> int | None:
    """Which of a store's jobs something says that it is of; None: of none."""
    return parse_number(labels.get(JOB, "")) if labels.get(STORE) == store else None


def parse_number(text: str) -> int | None:
    """Of a label or an annotation, which anybody may have written; None: it is no number, or none of ours."""
    return int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal() else None


def parse_attempt(text: str) -> AttemptId | None:
    """None: nobody has written any, or somebody something else."""
    return AttemptId.parse(text) if re.fullmatch(r"[0-9]{1,18}\.[0-9]{1,9}", text) else None


def read_pod(document: Document) -> PodSeen:
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    containers = _main_first(spec, status)
    state = (containers[0].get("state") or {}) if containers else {}
    return PodSeen(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        created_at=moment(metadata["creationTimestamp"]),
        scheduler=spec.get("schedulerName", ""),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        needs=pod_resources(spec),
        owner=None if owner is None else Owner(owner["kind"], owner["name"], owner["uid"]),
        labels=_kept(metadata.get("labels"), KEPT_LABELS),
        annotations=_kept(metadata.get("annotations"), KEPT_ANNOTATIONS),
        grace_s=float(spec.get("terminationGracePeriodSeconds", GRACE_S_DEFAULT)),
        is_deleting="deletionTimestamp" in metadata,
        is_disrupted=(conditions.get("DisruptionTarget") or {}).get("status") == "True",
        is_told=(conditions.get("PodScheduled") or {}).get("reason") == "Unschedulable",
        started_at=_started(containers, state),
        waiting=_waiting(status, containers, state),
        ended=_ended(status) if status.get("phase") in ("Succeeded", "Failed") else None,
        restarted=_restarted(containers),
        runtime_class=spec.get("runtimeClassName", ""),
        claims=claims_of(spec, metadata["name"]),
        named_group=group_name(metadata.get("labels") or {}, spec),
        document=document if _waits_for_us(metadata, spec) else None,
    )


def claims_of(spec: Document, pod: str) -> tuple[str, ...]:
    """An ephemeral volume's claim is made under the pod's name and its own."""
    volumes = spec.get("volumes") or ()
    named = [one["persistentVolumeClaim"]["claimName"] for one in volumes if one.get("persistentVolumeClaim")]
    return tuple(named + [f"{pod}-{one['name']}" for one in volumes if one.get("ephemeral")])


def _waits_for_us(metadata: Document, spec: Document) -> bool:
    is_ours = STORE in (metadata.get("labels") or {})
    is_held_back = bool(spec.get("schedulingGates"))  # somebody else has to let it go first
    return spec.get("schedulerName") == SCHEDULER and "nodeName" not in spec and not (is_ours or is_held_back)


def _main_first(spec: Document, status: Document) -> list[Document]:
    """The kubelet orders them by name; the first of the specification is the one that `kubectl logs` shows."""
    main = spec["containers"][0]["name"]
    return sorted(status.get("containerStatuses") or (), key=lambda one: one["name"] != main)


def _started(containers: Any, state: Document) -> float | None:
    """Of a container that restarts all the time too: its job has begun."""
    seen = state.get("running") or state.get("terminated")
    if seen is None and containers:
        seen = (containers[0].get("lastState") or {}).get("terminated")
    if not seen or not seen.get("startedAt") or seen.get("reason") in NOT_STARTED:
        return None
    return moment(seen["startedAt"])


def _waiting(status: Document, containers: Any, state: Document) -> str:
    """Only troubles; creating a container is none. One that could not even be started says why."""
    said: Document = state.get("waiting") or {}
    last = (containers[0].get("lastState") or {}).get("terminated") or {} if containers else {}
    if said.get("reason") == "CrashLoopBackOff" and last.get("reason") in NOT_STARTED:
        said = last
    for one in (*(status.get("initContainerStatuses") or ()), *containers[1:]):
        said = said if said.get("message") else (one.get("state") or {}).get("waiting") or said
    if said.get("reason") in (None, "ContainerCreating", "PodInitializing"):
        return ""
    return ": ".join(text for text in (said.get("reason"), said.get("message")) if text)


def _restarted(containers: Any) -> Restarted | None:
    """Of several the one that was so most often."""
    worst: Document = max(containers, key=lambda one: one.get("restartCount", 0), default={})
    state, before = worst.get("state") or {}, worst.get("lastState") or {}
    last = state.get("terminated") or before.get("terminated")
    if not worst.get("restartCount") or not last:
        return None
    started_at = (state.get("running") or {}).get("startedAt")
    since = None if started_at is None else moment(started_at)
    return Restarted(int(worst["restartCount"]), int(last.get("exitCode", 0)), str(last.get("reason") or ""), since)


def _ended(status: Document) -> Ended:
    """The worst of its containers tells: one may have ended well while another was killed."""
    ends = [
        one["state"]["terminated"]
        for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        if (one.get("state") or {}).get("terminated")
    ]
    worst = max(ends, key=lambda end: end.get("exitCode", 0) != 0, default=None)
    at = max((moment(end["finishedAt"]) for end in ends if end.get("finishedAt")), default=0.0)
    said = worst or {}
    messages = [str(one.get("message") or "") for one in (said, *ends)]
    last_words = next((message for message in messages if message.startswith(LAST_WORDS)), "")
    spoken = "" if messages[0] == last_words else messages[0]
    return Ended(
        at=at,
        exit_code=None if worst is None else int(worst.get("exitCode", 0)),
        reason=str(status.get("reason") or said.get("reason") or ""),
        message=str(status.get("message") or spoken).strip(),
        has_run=worst is not None,
        last_words=last_words,
    )


def read_node(document: Document) -> NodeSeen:
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    labels = metadata.get("labels") or {}
    ready: Document = next((one for one in status.get("conditions") or () if one["type"] == "Ready"), {})
    is_ready = ready.get("status") == "True"
    allocatable = status.get("allocatable") or {}
    if quantity(allocatable.get(GPU, 0)) > GPUS_MAX * ONE:
        raise Rejected(f"it offers {allocatable[GPU]} of {GPU}; a node has at most {GPUS_MAX}")
    return NodeSeen(
        name=metadata["name"],
        room=room(allocatable),
        pods_max=whole(quantity(allocatable.get("pods", 110)), up=False),
        labels=tuple(sorted(labels.items())),
        taints=tuple(
            Taint(one["key"], one.get("value", ""), Effect(one["effect"])) for one in spec.get("taints") or ()
        ),
        is_cordoned=bool(spec.get("unschedulable")),
        is_ready=is_ready,
        not_ready_since=None if is_ready else moment(ready.get("lastTransitionTime") or metadata["creationTimestamp"]),
        gpu_memory_mib=whole(quantity(labels.get(GPU_MEMORY_LABEL, 0)), up=False),
        gpu_model=labels.get(f"{GPU}.product", "GPU"),
        has_address=bool(status.get("addresses")),
    )


def _kept(given: dict[str, str] | None, names: tuple[str, ...]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given} if given else {}


@lru_cache(maxsize=4096)  # most of what happens at the same time happens to many pods
def moment(text: str) -> float:
    """Kubernetes writes whole seconds of UTC, or microseconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()
