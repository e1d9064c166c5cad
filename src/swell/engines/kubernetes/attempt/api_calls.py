"""How is a step carried out?

Each method is one step of `steps.py`: a call or two, whose answer is remembered until the watches show it. A failure is
one of `failures.py`; nothing is tried again here.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator

from swell.engines.kubernetes.attempt.gang_quotas import GangQuotas
from swell.engines.kubernetes.attempt.steps import (
    AskBudgets,
    BindPod,
    CreateObject,
    DeletePod,
    MarkObject,
    RemoveObject,
    ResizeObject,
    ResumeObject,
    Step,
    SuspendObject,
    UpdateSecret,
)
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.client.api_client import ApiClient, PatchKind, Selection
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import (
    BUDGETS,
    CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.kinds.job import has_done_some
from swell.engines.kubernetes.objects.objects import (
    DEPENDANTS_FIRST,
    Filling,
    JobPlaces,
    ObjectSeen,
    without_server_fields,
)
from swell.engines.kubernetes.objects.pod_template import make_pod, make_services
from swell.engines.kubernetes.watch.budgets import parse_budget, refusal_of
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import (
    ATTEMPT,
    DEVICE,
    JOB,
    JOBSET_NAME,
    NUMBER,
    RANK,
    SHARE_MIB,
    SUSPENDED,
    PodSeen,
    labelled_job,
)
from swell.engines.kubernetes.watch.unreadable import STORE, readable
from swell.errors import Conflict, NotFound, SwellError
from swell.model.job import AttemptId
from swell.model.shared_volume import claim_of, render_claim
from swell.model.task_environment import DEFAULTS, attempt_variables, rank_variables

SELECTED_NODE = "volume.kubernetes.io/selected-node"  # what whoever makes volumes looks at
MANAGER = "swell"  # who owns the fields we apply
TERMINATION_MESSAGE = "/dev/termination-log"  # where a kubelet finds it, unless the container says another place
POD_KINDS = ("Pod", "List", "Pods")  # jobs without an object that makes their pods


class ApiCalls:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        manifests: Callable[[Wanted], Document],
        *,
        store: str,
        places: JobPlaces,
        is_active: Callable[[int], bool],
        runtime_class: Callable[[], str | None],
        on_behalf: Callable[[Wanted], Headers] = lambda _: (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._cluster = cluster
        self.manifest = manifests
        self.store = store
        self._places = places
        self._is_active = is_active  #: does a job still want its objects?
        self._runtime_class = runtime_class  #: of pods that share a GPU
        #: In whose name its objects are made; raises where who submitted it may not create them any more.
        self._on_behalf = on_behalf
        self._quotas = GangQuotas(port, monotonic)

    def do(self, step: Step, wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> None:
        self._check_rights(step, wanted, memory)
        self._check_quotas(step, wanted, seen, memory)
        match step:
            case CreateObject(rank=None):
                self._create(wanted, memory)
            case CreateObject(rank=rank) if rank is not None:
                self._create_pod(wanted, memory, rank)
            case UpdateSecret():
                self._tell(wanted, seen, memory)
            case ResizeObject():
                self._change(wanted, seen, memory)
            case MarkObject():
                self._patch(_found(seen), self._mark(wanted), memory)
            case SuspendObject():
                self._suspend(wanted, _found(seen), memory)
            case ResumeObject():
                self._resume(_found(seen), {}, memory)
            case RemoveObject():
                self._remove(_found(seen), memory)
            case DeletePod(pod, grace_s, evicts):
                self._end_pod(pod, grace_s, memory, evicts=evicts and not pod.is_deleting)
            case AskBudgets():
                self._ask_budgets(seen)
                memory.may_evict = True
            case BindPod():
                self._bind(step, memory, wanted.shares_mib[step.place.role])

    # -- objects ---------------------------------------------------------------------------------------------------

    def _filling(self, wanted: Wanted) -> Filling:
        return Filling(
            job=wanted.attempt.job,
            store=self.store,
            attempt=wanted.attempt,
            roles=wanted.sizes(),
            secret=self._secret(wanted),
            is_array=wanted.is_array,
            is_ours="uid" not in self.manifest(wanted)["metadata"],
            rewrites_width=wanted.rewrites_width,
            runtime_class=self._runtime_class() if any(wanted.shares_mib) else None,
        )

    def _check_rights(self, step: Step, wanted: Wanted, memory: AttemptMemory) -> None:
        """Before an attempt makes pods, or lets a controller make them: rights may be taken away while a job waits."""
        is_making = isinstance(step, CreateObject | ResizeObject | ResumeObject)
        if is_making and not memory.may_create:
            self._on_behalf(wanted)
            memory.may_create = True

    def _check_quotas(self, step: Step, wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> None:
        """Before any pod of a gang is made: a quota that has room for some of them would leave the gang half made."""
        is_first_pod = isinstance(step, CreateObject) and step.rank is not None and not memory.created
        makes_pods = is_first_pod or isinstance(step, ResizeObject | ResumeObject)
        if makes_pods and not (wanted.is_array or seen.alive):
            document = self.manifest(wanted)
            namespace = self._places.namespace(document)
            self._quotas.check(wanted.attempt, namespace, lambda: self._pods_of(wanted, document, namespace))
        elif wanted.is_stopping or isinstance(step, BindPod):  # all of them are there when the first is bound
            self._quotas.end(wanted.attempt)

    def _pods_of(self, wanted: Wanted, document: Document, namespace: str) -> list[tuple[Document, int]]:
        """What the pods of a gang will be specified as, and how many of each there will be."""
        filling = self._filling(wanted)
        if document["kind"] in POD_KINDS:
            return [(make_pod(document, rank, wanted, filling)["spec"], 1) for rank in sorted(wanted.places)]
        kind, resource = self._cluster.served(document["kind"])
        if "uid" in document["metadata"]:  # only a reference to what kubectl made
            document = self._port.get(resource, document["metadata"]["name"], namespace)
        templates = kind.templates(kind.fill(without_server_fields(document), filling))
        return [(one["spec"], size.tasks) for one, size in zip(templates, filling.roles, strict=True)]

    def _secret(self, wanted: Wanted) -> str:
        return f"swell-{self.store[:8]}-{wanted.attempt.job}"

    def _create(self, wanted: Wanted, memory: AttemptMemory) -> None:
        document = self.manifest(wanted)
        self._create_claim(document, wanted)
        kind, resource = self._cluster.served(document["kind"])
        filled = kind.fill(without_server_fields(document), self._filling(wanted))
        body = _merged(filled, _suspended_in(wanted.attempt))
        made = self._create_named(resource, body, wanted, _is_named_by_us(document))
        memory.fresh, memory.kind = kind.read(made), kind.name

    def _create_claim(self, document: Document, wanted: Wanted) -> None:
        """The volume that is made for the job. It outlives attempts, so it is not the object's: see `leftovers.py`."""
        if not claim_of(document["metadata"]):
            return
        claim = render_claim(document["metadata"], {JOB: str(wanted.attempt.job), STORE: self.store})
        made = self._create_named(CLAIMS, _merged(claim, _placed(document)), wanted, is_named_by_us=False)
        if "deletionTimestamp" in made["metadata"]:
            raise Conflict(f"{CLAIMS} {made['metadata']['name']} of an earlier attempt is being removed first")

    def _create_named(self, resource: Resource, document: Document, wanted: Wanted, is_named_by_us: bool) -> Document:
        """Under its own name. Where another has that: one that we chose gets the job's number; one of the user's waits
        until it is free, because what is in the object may go by it (the address of a JobSet's first pod)."""
        namespace, name = self._places.namespace(document), document["metadata"]["name"]
        if "uid" not in self.manifest(wanted)["metadata"]:  # what kubectl made there was its user's to make
            self._places.refuse(namespace)
        for tried in (name, f"{name}-{wanted.attempt.job}") if is_named_by_us else (name,):
            metadata = {**document["metadata"], "name": tried, "namespace": namespace}
            try:
                made = {**document, "metadata": metadata}
                return self._port.create(resource, made, namespace, headers=self._on_behalf(wanted))
            except AlreadyExists:
                there = self._port.get(resource, tried, namespace)
                whose = labelled_job(there["metadata"].get("labels") or {}, self.store)
                if whose == wanted.attempt.job:
                    return there
                if whose is not None and not self._is_active(whose):  # left over
                    uid = there["metadata"]["uid"]
                    self._port.delete(resource, tried, namespace, propagation=DEPENDANTS_FIRST, uid=uid)
                    raise Conflict(f"{resource} {namespace}/{tried} of an ended job is being removed first") from None
        raise AlreadyExists(taken(resource, name, namespace, whose))

    def _change(self, wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> None:
        found = _found(seen)
        document = self.manifest(wanted)
        kind, resource = self._cluster.served(found.kind)
        live = self._port.get(resource, found.name, found.namespace)
        jobs = self._jobs_of(found, live)
        _refuse_uncounted(found, jobs)
        if kind.makes_jobs and not wanted.is_array:
            self._renew(found, jobs)
        source = live if "uid" in document["metadata"] else document
        filled = kind.fill(without_server_fields(source), self._filling(wanted))
        patch = kind.change(live, filled, is_array=wanted.is_array)
        if patch is None and "uid" in document["metadata"]:
            raise Conflict(
                f"{found.kind} {found.namespace}/{found.name} cannot be started as it is: some of its pods have "
                "succeeded, or its size would have to change, and Swell does not delete objects created with kubectl; "
                "delete it with kubectl and create it again"
            )
        if patch is None:
            self._remove(found, memory)
            return
        self._resume(found, patch, memory)

    def _jobs_of(self, found: ObjectSeen, live: Document) -> list[Document]:
        """The Jobs whose controller makes its pods: itself, those of a JobSet, or none."""
        kind = KINDS[found.kind]
        if not kind.makes_jobs:
            return [live] if kind.is_job else []
        labels = f"{JOBSET_NAME}={found.name}"
        return list(self._port.list(Selection(self._cluster.resources["Job"], found.namespace, labels=labels)).items)

    def _renew(self, found: ObjectSeen, jobs: list[Document]) -> None:
        """Of a JobSet: what has succeeded in a Job is not done again, and a gang needs all its ranks. Removed, such
        Jobs are made anew by their set."""
        begun = [job["metadata"] for job in jobs if has_done_some(job)]
        resource = self._cluster.resources["Job"]
        for one in begun:
            if "deletionTimestamp" not in one:
                with contextlib.suppress(NotFound):
                    self._port.delete(
                        resource, one["name"], one["namespace"], propagation=DEPENDANTS_FIRST, uid=one["uid"]
                    )
        if begun:
            said = f"recreating Jobs of JobSet {found.namespace}/{found.name} that have partly completed"
            raise Conflict(said)

    def _suspend(self, wanted: Wanted, found: ObjectSeen, memory: AttemptMemory) -> None:
        """Unless somebody else has, or does meanwhile: our stop is often an answer to that, and it is theirs then."""
        kind = KINDS[found.kind]
        with _noting_absence(memory):
            live = kind.read(self._port.get(self._cluster.resources[found.kind], found.name, found.namespace))
        if live.uid == found.uid and live.is_suspended:
            memory.fresh = live
            return
        mark = _merged(_suspended_in(wanted.attempt), {"metadata": {"resourceVersion": live.version}})
        self._patch(found, _merged(kind.suspension(True), mark), memory)

    def _resume(self, found: ObjectSeen, change: Document, memory: AttemptMemory) -> None:
        patch = _merged(change, KINDS[found.kind].suspension(False))
        self._patch(found, _merged(patch, _suspended_in(None)), memory)

    def _mark(self, wanted: Wanted) -> Document:
        return {"metadata": self._filling(wanted).marked({})}

    def _patch(self, found: ObjectSeen, patch: Document, memory: AttemptMemory) -> None:
        kind = KINDS[found.kind]
        resource = self._cluster.resources[found.kind]
        # Not one of the same name that was made since.
        body = _merged({"metadata": {"uid": found.uid}}, patch)
        with _noting_absence(memory):
            memory.fresh = kind.read(self._port.patch(resource, found.name, body, found.namespace))

    def _remove(self, found: ObjectSeen, memory: AttemptMemory) -> None:
        if found.uid in memory.deleted:
            return
        resource = self._cluster.resources[found.kind]
        with contextlib.suppress(NotFound):
            self._port.delete(resource, found.name, found.namespace, propagation=DEPENDANTS_FIRST, uid=found.uid)
        memory.deleted.add(found.uid)
        memory.fresh = None

    # -- pods ------------------------------------------------------------------------------------------------------

    def _create_pod(self, wanted: Wanted, memory: AttemptMemory, rank: int) -> None:
        manifest = self.manifest(wanted)
        filling = self._filling(wanted)
        self._create_named(PODS, make_pod(manifest, rank, wanted, filling), wanted, _is_named_by_us(manifest))
        memory.created.add(rank)

    def _tell(self, wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> None:
        """A Secret, and the Service by which pods of ours find each other.

        Owned by what they are for: they go with it, whatever becomes of us.
        """
        if seen.object is not None:
            api_version = KINDS[seen.object.kind].api_version
            namespace = seen.object.namespace
            owners = [_owner(api_version, seen.object.kind, seen.object.name, seen.object.uid)]
        else:
            namespace = seen.pods[0][1].namespace
            owners = [_owner("v1", "Pod", pod.name, pod.uid) for _, pod in seen.pods]
            for service in make_services(self.manifest(wanted), self._filling(wanted)):
                self._apply(SERVICES, service, namespace, owners)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._secret(wanted),
                "labels": {JOB: str(wanted.attempt.job), STORE: self.store},
            },
            "data": {
                key: base64.b64encode(text.encode()).decode() for key, text in variables(wanted, self.store).items()
            },
        }
        self._apply(SECRETS, secret, namespace, owners)
        memory.told = True

    def _apply(self, resource: Resource, document: Document, namespace: str, owners: list[Document]) -> None:
        metadata = {**document["metadata"], "namespace": namespace, "ownerReferences": owners}
        body = {**document, "metadata": metadata}
        name = metadata["name"]
        self._port.patch(resource, name, body, namespace, kind=PatchKind.APPLY, manager=MANAGER, force=True)

    def _bind(self, step: BindPod, memory: AttemptMemory, share_mib: int) -> None:
        pod, node = step.pod, step.place.node
        memory.bound[pod.uid] = node  # its room is in use from before we ask until we are refused
        try:
            for claim in pod.claims:
                self._choose_for(claim, pod.namespace, node)
            notes = {} if step.rank is None else {RANK: str(step.rank)}
            if step.gpu:
                memory.shared[pod.uid] = step.place.devices[0]
                notes |= {DEVICE: step.gpu, NUMBER: step.place.devices[0], SHARE_MIB: str(share_mib)}
            if notes:
                self._port.patch(PODS, pod.name, {"metadata": {"uid": pod.uid, "annotations": notes}}, pod.namespace)
            of_attempt = {} if step.attempt is None else {ATTEMPT: str(step.attempt)}
            self._port.bind(pod.name, pod.namespace, pod.uid, node, of_attempt)
        except SwellError as error:
            self._cluster.leave_room(pod)
            memory.bound.pop(pod.uid)
            if not isinstance(error, Conflict):
                raise
            there = self._port.get(PODS, pod.name, pod.namespace)
            found = (there.get("spec") or {}).get("nodeName", "")
            if there["metadata"]["uid"] != pod.uid or not found:
                raise  # another one by now, which the watch will show; or something else is wrong
            memory.bound[pod.uid] = found

    def _choose_for(self, claim: str, namespace: str, node: str) -> None:
        """A volume that waits for its first consumer is made where the scheduler says, and we are the scheduler."""
        found = self._port.get(CLAIMS, claim, namespace)
        name = found["spec"].get("storageClassName")
        is_bound = (found.get("status") or {}).get("phase") == "Bound"
        if is_bound or not name or SELECTED_NODE in (found["metadata"].get("annotations") or {}):
            return
        kind = self._port.get(STORAGE_CLASSES, name)
        if kind.get("volumeBindingMode") == "WaitForFirstConsumer":
            self._port.patch(CLAIMS, claim, {"metadata": {"annotations": {SELECTED_NODE: node}}}, namespace)

    def _end_pod(self, pod: PodSeen, grace_s: float, memory: AttemptMemory, *, evicts: bool) -> None:
        seconds = max(0, round(grace_s))
        with contextlib.suppress(NotFound):
            if evicts:
                self._port.evict(pod.name, pod.namespace, pod.uid, grace_s=seconds)
            else:
                self._port.delete(PODS, pod.name, pod.namespace, grace_s=seconds, uid=pod.uid)
        memory.deleted.add(pod.uid)

    def _ask_budgets(self, seen: AttemptSeen) -> None:
        """Raises where a PodDisruptionBudget does not allow that all of its pods are evicted now."""
        ending = [pod for _, pod in seen.pods if pod.node and not (pod.has_ended or pod.is_deleting)]
        for namespace in sorted({pod.namespace for pod in ending}):
            here = {pod.uid for pod in ending if pod.namespace == namespace}
            for budget in readable(self._port.list(Selection(BUDGETS, namespace)).items, parse_budget):
                if budget.selector is None:
                    continue
                meant = self._port.list(Selection(PODS, namespace, labels=budget.selector)).items
                guarded = here & {pod["metadata"]["uid"] for pod in meant}
                if len(guarded) > budget.allowed:
                    raise Conflict(refusal_of(budget, len(guarded)))


def taken(resource: Resource, name: str, namespace: str, job: int | None, *, has_ended: bool = False) -> str:
    """That somebody has that name already, in the words of kubectl, and what to do. `job`: of ours; None: no job's."""
    if has_ended:
        return (
            f'{resource} "{name}" already exists in namespace "{namespace}" and has ended; add --replace to delete it '
            f"first, or give this one another metadata.name (--suffix adds to it), or write metadata.generateName: "
            f"{name}- to have one chosen"
        )
    owner = "" if job is None else f" as job {job}"
    delete = f"kubectl delete {resource.kind.lower()} {name} -n {namespace}"
    first = delete if job is None else f"swell cancel {job}, or wait until it has ended"
    return (
        f'{resource} "{name}" already exists in namespace "{namespace}"{owner}; give this one another metadata.name '
        f"(--suffix adds to it), or write metadata.generateName: {name}- to have one chosen, or end the first: {first}"
    )


def _placed(document: Document) -> Document:
    """Part of another document: the namespace that this one names, if it does."""
    namespace = document["metadata"].get("namespace")
    return {"metadata": {"namespace": namespace}} if namespace else {}


def _is_named_by_us(manifest: Document) -> bool:
    """Its user left the name to us, or has written a command and no object at all."""
    return manifest["kind"] == "List" or "generateName" in manifest["metadata"]


def variables(wanted: Wanted, store: str) -> dict[str, str]:
    """What every task of an attempt is told, beside what its container and its object's controller say, which wins."""
    gpus = next((len(place.devices) for place in wanted.places.values()), 0)
    is_alone = len(wanted.places) == 1 and not wanted.is_array
    ranks = rank_variables(wanted.ranks, rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    return {
        **DEFAULTS,
        **wanted.own,
        **(ranks if is_alone else {}),
        **attempt_variables(
            wanted.attempt,
            store=store,
            name=wanted.name,
            tasks=wanted.tasks,
            nodes=tuple(wanted.nodes),
            is_array=wanted.is_array,
        ),
        "SWELL_ON_YIELD": "wait",
        "SWELL_LAST_WORDS": TERMINATION_MESSAGE,
        "NUM_GPUS": str(gpus),
    }


@contextlib.contextmanager
def _noting_absence(memory: AttemptMemory) -> Iterator[None]:
    """The watch, too, may have missed that it came and went."""
    try:
        yield
    except NotFound:
        memory.fresh = None
        raise


def _found(seen: AttemptSeen) -> ObjectSeen:
    assert seen.object is not None, "this step is only for an object that was seen"
    return seen.object


def _refuse_uncounted(found: ObjectSeen, jobs: list[Document]) -> None:
    """Of a Job that is resumed before its controller has counted the pods that its suspension has ended, they are
    failures, which may be more than it allows."""
    statuses = [job.get("status") or {} for job in jobs]
    if any(any((status.get("uncountedTerminatedPods") or {}).values()) for status in statuses):
        raise Conflict(
            f"Kubernetes has not counted the finished pods of {found.kind} {found.namespace}/{found.name} yet"
        )


def _owner(api_version: str, kind: str, name: str, uid: str) -> Document:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def _suspended_in(attempt: AttemptId | None) -> Document:
    """Part of a patch that says whether it was us who suspended an object."""
    return {"metadata": {"annotations": {SUSPENDED: None if attempt is None else str(attempt)}}}


def _merged(one: Document, other: Document) -> Document:
    """As merge patches add up."""
    result = dict(one)
    for key, value in other.items():
        known = result.get(key)
        result[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result
