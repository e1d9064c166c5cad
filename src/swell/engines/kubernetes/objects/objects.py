"""What is kept of an object that makes pods, and what shall it look like?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.watch.observed_objects import ATTEMPT, JOB, SERVER, SUSPENDED, moment, parse_attempt
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.errors import Rejected
from swell.model.job import AttemptId
from swell.model.shared_volume import claim_of

#: How objects are deleted: they stay until what they made is gone. A new JobSet goes by names, and would take the Jobs
#: of the last one of its name, which have another size, for its own.
DEPENDANTS_FIRST = "Foreground"
FAILED = "Failed"  # what every controller of jobs calls it; for a success each has a word of its own


@dataclass(frozen=True, slots=True)
class ObjectVerdict:
    """Its own controller has said how it ended; it will not change."""

    is_success: bool
    at: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodTemplateGroup:
    """Pods of an object that are alike, in the order of ranks."""

    name: str
    pods: int
    gpus: int  #: of each; 0: none, or a share
    sets: int = 1  #: of a JobSet: Jobs with so many pods each
    at_once: int | None = None  #: of the pods of each Job; None: all of them
    is_led: bool = False  #: of a JobSet: the other pods of each Job are made when its first one is bound

    @property
    def count(self) -> int:
        return self.pods * self.sets


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    job: str  #: the label; empty: not made by us
    store: str  #: likewise
    attempt: AttemptId | None  #: which of our attempts it is in; None: none yet
    is_suspended: bool
    is_deleting: bool
    verdict: ObjectVerdict | None  #: None: not ended
    groups: tuple[PodTemplateGroup, ...]
    pods_attempt: AttemptId | None  #: which attempt its template writes on its pods; None: none
    failed_indexes: str = ""  #: of a Job: those it has given up
    suspended_in: AttemptId | None = None  #: in which of our attempts we have; None: it was not us
    is_of_jobs: bool = False  #: a Job, or made of Jobs: a pod of it that has ended is through
    claim: str = ""  #: of a volume that is made for its job; empty: none is
    maker: str = ""  #: uid of what has made it, and makes another if it goes; empty: nothing

    @property
    def leaders(self) -> frozenset[int]:
        """Ranks of pods that are bound before others are made; empty: none are."""
        found: list[int] = []
        first = 0
        for one in self.groups:
            if any(group.is_led for group in self.groups):
                found += range(first, first + one.count, one.pods if one.is_led else 1)
            first += one.count
        return frozenset(found)

    def offset(self, group: str) -> int | None:
        """The rank of the first pod of a group; None: there is no such group."""
        before = 0
        for one in self.groups:
            if one.name == group:
                return before
            before += one.count
        return None


@dataclass(frozen=True, slots=True)
class RoleSize:
    """How many tasks of a role, and what each has of GPUs."""

    tasks: int
    gpus: int
    share_mib: int = 0  #: of one GPU that is shared; 0: none


@dataclass(frozen=True, slots=True)
class Filling:
    """What an attempt makes of a manifest."""

    job: int
    store: str
    attempt: AttemptId
    roles: tuple[RoleSize, ...]  #: as in the job, in the order of ranks
    secret: str  #: holds what the attempt is told
    is_array: bool = False
    is_ours: bool = True  #: False: its object came by kubectl
    rewrites_width: bool = False  #: `--num_processes=` follows the GPUs
    runtime_class: str | None = None  #: for pods that share a GPU; None: the cluster's default

    def marked(self, metadata: Document) -> Document:
        """In which attempt, and whose it is: what has our labels goes with its job."""
        own = {JOB: str(self.job), STORE: self.store} if self.is_ours else {}
        labels = {**(metadata.get("labels") or {}), **own}
        notes = {ATTEMPT: str(self.attempt), **({} if self.is_ours else {SERVER: self.store})}
        annotations = {**(metadata.get("annotations") or {}), **notes}
        return {**metadata, "labels": labels, "annotations": annotations}


def read_object(
    document: Document,
    *,
    is_suspended: bool,
    verdict: ObjectVerdict | None,
    groups: Sequence[PodTemplateGroup],
    templates: Sequence[Document],
    failed_indexes: str = "",
    is_of_jobs: bool = False,
) -> ObjectSeen:
    """`templates`: of its pods; they are written together."""
    metadata = document["metadata"]
    on_pods = (templates[0].get("metadata") or {}).get("annotations") or {} if templates else {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return ObjectSeen(
        kind=document["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        job=labels.get(JOB, ""),
        store=labels.get(STORE, ""),
        attempt=parse_attempt(annotations.get(ATTEMPT, "")),
        is_suspended=is_suspended,
        is_deleting="deletionTimestamp" in metadata,
        verdict=verdict,
        groups=tuple(group for group in groups if group.count),
        pods_attempt=parse_attempt(on_pods.get(ATTEMPT, "")),
        failed_indexes=failed_indexes,
        is_of_jobs=is_of_jobs,
        suspended_in=parse_attempt(annotations.get(SUSPENDED, "")),
        claim=claim_of(metadata),
        maker=next((one["uid"] for one in metadata.get("ownerReferences") or () if one.get("controller")), ""),
    )


def read_verdict(document: Document, *, good: str) -> ObjectVerdict | None:
    """From the conditions, as every controller of jobs writes them."""
    for one in (document.get("status") or {}).get("conditions") or ():
        if one.get("type") in (good, FAILED) and one.get("status") == "True":
            said = one.get("reason") or "", one.get("message") or ""
            return ObjectVerdict(one["type"] == good, moment(one["lastTransitionTime"]), *said)
    return None


def without_server_fields(document: Document) -> Document:
    """What a document has that was read from a cluster, and that a new object must not."""
    metadata = {
        name: value
        for name, value in document["metadata"].items()
        if name in ("name", "namespace", "labels", "annotations")
    }
    return {**{name: value for name, value in document.items() if name != "status"}, "metadata": metadata}


def resized(groups: Sequence[PodTemplateGroup], roles: Sequence[RoleSize]) -> tuple[PodTemplateGroup, ...]:
    """The same groups at an attempt's size."""
    return tuple(
        replace(group, pods=role.tasks // group.sets, gpus=role.gpus) for group, role in zip(groups, roles, strict=True)
    )


@dataclass(frozen=True, slots=True)
class JobPlaces:
    default: str  #: of jobs that name none
    home: str | None = None  #: the server's own, where none are made; None: it has nothing to hide in the cluster

    @classmethod
    def of(cls, jobs: str | None, home: str | None, own: str) -> JobPlaces:
        """`jobs`: what the operator says; `home`: the namespace of our pod; `own`: where our Lease is."""
        hidden = own if home is None and jobs not in (None, own) else home
        if jobs is not None and jobs == hidden:
            raise Rejected(
                f"the namespace for jobs is {jobs!r}, which is the server's own: whoever may create pods there can "
                "mount its secrets; name another with --jobs-namespace (the chart: jobsNamespace)"
            )
        return cls(jobs or own, hidden)

    def namespace(self, document: Document) -> str:
        return str(document["metadata"].get("namespace") or self.default)

    def may_hold(self, document: Document, namespace: str) -> bool:
        """May objects of that job be there? Those that name none were made at home by servers before this one."""
        return namespace in self.all_of(document)

    def all_of(self, document: Document) -> frozenset[str]:
        """The namespaces in which objects of that job may be."""
        meant = self.namespace(document)
        return frozenset({meant, self.home} if meant == self.default and self.home is not None else {meant})

    def refuse(self, namespace: str) -> None:
        if namespace == self.home:
            hint = "" if self.default == self.home else f", or leave it out for {self.default!r}"
            raise Rejected(
                f"jobs are not made in namespace {namespace!r}, which is Swell's own: whoever may create pods there "
                f"can mount its secrets; write metadata.namespace with another{hint} (jobsNamespace in Swell's chart)"
            )
