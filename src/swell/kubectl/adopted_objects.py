"""What do pods and objects that came by kubectl ask for, and what is kept of them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from swell.engines.kubernetes.attempt.live_attempt import LEAST, ON_LOSS
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import without_server_fields
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.engines.kubernetes.watch.volumes import Choice, Volumes, with_volumes
from swell.errors import Rejected
from swell.kubectl.pod_groups import PodGroup, in_name_order
from swell.manifests import Context, read_document
from swell.manifests.affinity import NOT_KEPT
from swell.manifests.metadata import PRIORITY, SHARE
from swell.model.cluster import PriorityClass
from swell.model.job import Dimension, JobSpec, Role
from swell.model.member_loss import ON_MEMBER_LOST, MemberLoss
from swell.model.placement import Company

CONTEXT = Context(workdir="/", on_cluster=True)


def resizes_in_place(kind: str) -> bool:
    return kind in KINDS and KINDS[kind].resizes_in_place


def refuse_shares(kind: str, spec: JobSpec) -> None:
    """Which GPU a pod shares is a variable of its container, and nothing can be added to pods that are there."""
    if not resizes_in_place(kind) and any(role.resources.is_share for role in spec.roles):
        raise Rejected(
            f"{SHARE} asks for a share of a GPU, which a {kind} can have only through `swell submit -f`: nothing can "
            "be added to pods that kubectl has made; submit it, or leave the annotation out and ask for nvidia.com/gpu"
        )


def rigid(kind: str, spec: JobSpec, tasks: int | None = None) -> JobSpec:
    """Pods and JobSets keep their size while they exist, the pods of a Job cannot be told a new one, and what kubectl
    made is not ours to make again. `tasks`: so many it has; None: its size is that of its one task."""
    if resizes_in_place(kind) or spec.array is not None or spec.width_max == spec.width_min:
        return spec
    width = spec.width_min if tasks is None else tasks
    roles = spec.roles if tasks is None else tuple(replace(role, count=tasks) for role in spec.roles)
    note = (
        f"it came by kubectl as a {kind}, which Swell cannot resize: it runs at {width}, "
        f"and the range {spec.width_min}..{spec.width_max} has no effect; to have it resized, delete it with kubectl "
        "and submit it with `swell submit -f`"
    )
    return replace(spec, width_min=width, width_max=width, roles=roles, notes=(*spec.notes, note))


def within_limit(spec: JobSpec, document: Document, highest: int | None) -> JobSpec:
    """Whoever may create an object may write any priority on it: it counts as far as it may be asked for through the
    API. `highest` None: there is no limit. What a PriorityClass gives is the cluster's to allow."""
    metadata = document["metadata"]
    if highest is None or spec.priority <= highest or PRIORITY not in (metadata.get("annotations") or {}):
        return spec
    note = (
        f"{PRIORITY} asks for {spec.priority}, but the highest that namespace {metadata['namespace']!r} may ask for is "
        f"{highest}, so it waits with {highest}; to have more, ask an administrator (limits in Swell's config.json)"
    )
    return replace(spec, priority=highest, notes=(*spec.notes, note))


def read_object(
    document: Document,
    priority_classes: Mapping[str, PriorityClass],
    priority_max: int | None,
    volumes: Volumes | None = None,
) -> tuple[JobSpec, Document]:
    spec = read_document(document, replace(CONTEXT, priority_classes=priority_classes))
    spec = within_limit(spec, document, priority_max)
    if volumes is not None:
        spec = with_volumes(spec, _choices(document, volumes))
    is_counted = document["kind"] in KINDS and KINDS[document["kind"]].is_job and spec.dimension is Dimension.TASKS
    tasks = document["spec"].get("completions") if is_counted else None
    return replace(rigid(document["kind"], spec, tasks), is_held=False, retries=0), _reference(document)


def read_pods(
    group: PodGroup,
    pods: Sequence[PodSeen],
    priority_max: int | None,
    least: int | None = None,
    volumes: Volumes | None = None,
) -> tuple[JobSpec, Document]:
    """In the order of their names; pods that are alike are one role. `least`: how many of their group must run
    together; None: nobody says, or they are no group."""
    ordered = in_name_order(pods)
    documents = [pod.document or {} for pod in ordered]
    specs = [within_limit(_read(one, volumes), one, priority_max) for one in documents]
    roles: list[Role] = []
    for spec in specs:
        [role] = spec.roles
        if roles and (roles[-1].resources, roles[-1].rules) == (role.resources, role.rules):
            roles[-1] = replace(roles[-1], count=roles[-1].count + 1)
        else:
            roles.append(role)
    if len(pods) == 1 or len(roles) > 1:
        _refuse_company(ordered, roles)
    first = rigid("Pod", specs[0])
    is_one = len(pods) == 1
    spec = replace(
        first,
        name=group.name,
        roles=tuple(roles),
        dimension=first.dimension if is_one else Dimension.TASKS,
        width_min=first.width_min if is_one else roles[0].count,
        width_max=first.width_min if is_one else roles[0].count,
        priority=max(spec.priority for spec in specs),
        preempts=any(spec.preempts for spec in specs),
        notes=tuple(dict.fromkeys(note for one in (first, *specs[1:]) for note in one.notes)),
        retries=0,
    )
    return spec, _pods_reference(group, ordered, least, _read_loss(group, ordered[0]))


def _choices(document: Document, volumes: Volumes) -> list[tuple[Choice, ...]]:
    """Of the pods of each role."""
    namespace, templates = document["metadata"]["namespace"], KINDS[document["kind"]].templates(document)
    return [volumes.choices(template["spec"], "", namespace) for template in templates]


def _read(pod: Document, volumes: Volumes | None) -> JobSpec:
    spec, metadata = read_document(pod, CONTEXT), pod["metadata"]
    if volumes is None:
        return spec
    return with_volumes(spec, [volumes.choices(pod["spec"], metadata["name"], metadata["namespace"])])


def _refuse_company(pods: Sequence[PodSeen], roles: Sequence[Role]) -> None:
    """Pods that keep away from each other, or want to be together, and are not of one role of one job: each is placed
    without looking at the others."""
    for role in roles:
        if role.rules is not None and role.rules.company is not Company.ANY:
            raise Rejected(f"spec.affinity of pod {pods[0].name} {NOT_KEPT}")


def _reference(document: Document) -> Document:
    metadata = {name: document["metadata"][name] for name in ("name", "namespace", "uid")}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}


def _read_loss(group: PodGroup, pod: PodSeen) -> MemberLoss:
    """What its annotation says, or else what whoever makes its pods expects: a controller makes another in the place of
    the lost one and leaves the others alone; of plain pods nobody makes another."""
    said = ((pod.document or {}).get("metadata") or {}).get("annotations") or {}
    if ON_MEMBER_LOST not in said:
        return MemberLoss.RESTART if pod.owner is None else MemberLoss.WAIT
    if group.kind != "PodGroup":
        raise Rejected(f"{ON_MEMBER_LOST} is for pods of a group, and pod {pod.name} is in none; leave it out")
    choices = [str(one) for one in MemberLoss]
    if said[ON_MEMBER_LOST] not in choices:
        raise Rejected(f"{ON_MEMBER_LOST} is {said[ON_MEMBER_LOST]!r}; it can be {', '.join(choices)}")
    loss = MemberLoss(said[ON_MEMBER_LOST])
    if loss is MemberLoss.WAIT and pod.owner is None:
        raise Rejected(
            f"{ON_MEMBER_LOST} is {loss}, but pod {pod.name} has no controller, so no other pod would replace it; "
            f"write {MemberLoss.RESTART} or {MemberLoss.GO_ON}, or have a StatefulSet or ReplicaSet make the pods"
        )
    return loss


def _pods_reference(group: PodGroup, pods: list[PodSeen], least: int | None, loss: MemberLoss) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pods",
        "metadata": {"name": group.name, "namespace": group.namespace, "uid": pods[0].uid},
        "pods": [{"name": pod.name, "uid": pod.uid, **_remade(pod)} for pod in pods],
        **({} if least is None else {LEAST: least}),
        **({} if loss is MemberLoss.RESTART or group.kind != "PodGroup" else {ON_LOSS: str(loss)}),
    }


def _remade(pod: PodSeen) -> Document:
    """What we make another from, should we have to take it away again: it is on disk before the pod is bound.

    Of a pod with a controller nothing: that makes another by itself.
    """
    if pod.owner is not None or pod.document is None:
        return {}
    return {"document": without_server_fields(pod.document)}
