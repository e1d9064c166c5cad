"""How does a job become objects of a cluster?

A foreign manifest is its own object. What was written in our own notation becomes pods or an Indexed Job, made anew at
each attempt's width. Before a job is accepted, its objects are shown to the API server, which refuses them in its own
words and creates nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from swell.engines.kubernetes.attempt.api_calls import taken
from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import CLAIMS, PODS, QUOTAS, SERVICES, Resource
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import (
    DEPENDANTS_FIRST,
    Filling,
    JobPlaces,
    RoleSize,
    without_server_fields,
)
from swell.engines.kubernetes.objects.pod_template import fill_pod
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import labelled_job
from swell.engines.kubernetes.watch.quotas import is_full_now, is_too_small, refusal_of_gang
from swell.engines.kubernetes.watch.volumes import Choice, Volumes, with_volumes
from swell.errors import Conflict, NotFound, Rejected
from swell.manifests import Manifest, is_native, native_objects, object_name
from swell.manifests.document import as_created
from swell.manifests.native_objects import RUN_AS
from swell.model.identity import ObjectKind
from swell.model.job import AttemptId, JobSpec
from swell.model.shared_volume import ANNOTATION as SHARED_VOLUME
from swell.model.shared_volume import render_claim
from swell.model.width import tasks_at
from swell.store import Store

TRIAL = "swell-trial"
TOO_SMALL = "request less, or ask for a larger quota"


class ClusterObjects:
    def __init__(self, store: Store, port: ApiClient, cluster: Cluster, places: JobPlaces) -> None:
        self._store = store
        self._port = port
        self._cluster = cluster
        self._places = places
        self._volumes = Volumes(port)

    def manifest(self, wanted: Wanted) -> Document:
        """What an attempt's objects are made from; of several, a list."""
        document = self._store.manifest(wanted.manifest)
        if not is_native(document):
            return _named(as_created(document), wanted.name, wanted.attempt.job)
        job = self._store.job(wanted.attempt.job)
        return self._native(job.spec, job.id, wanted.width)

    def _native(self, spec: JobSpec, job: int, width: int) -> Document:
        name = object_name(spec.name, job)
        run_as = None if self._cluster.assigns_users else RUN_AS
        items = native_objects(spec, name=name, namespace=self._places.default, width=width, run_as=run_as)
        if spec.array is not None:
            return {**items[0], "metadata": {**items[0]["metadata"], "generateName": f"{name}-"}}
        metadata = {"name": name, "namespace": self._places.default}
        return {"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": list(items)}

    def created(self, manifest: Manifest) -> tuple[ObjectKind, ...]:
        """What its user must be allowed to create."""
        made = self._object_kind(manifest)
        if not _has_claim(manifest):
            return (made,)
        return made, ObjectKind(CLAIMS.api_version, CLAIMS.kind, made.namespace)

    def _object_kind(self, manifest: Manifest) -> ObjectKind:
        document = manifest.document
        if is_native(document):
            kind = ("batch/v1", "Job") if manifest.spec.array is not None else ("v1", "Pod")
            return ObjectKind(*kind, self._places.default)
        namespace = self._places.namespace(document)
        return ObjectKind(document["apiVersion"], document["kind"], namespace)

    def delete(self, reference: Document) -> None:
        """What came by kubectl, as long as it is still the same; its dependants go with it."""
        namespace = reference["metadata"]["namespace"]
        if "pods" in reference:
            found = [(PODS, pod) for pod in reference["pods"]]
        else:
            found = [(self._cluster.served(reference["kind"])[1], reference["metadata"])]
        for resource, one in found:
            with contextlib.suppress(NotFound, Conflict):  # gone, or another one of that name by now
                self._port.delete(resource, one["name"], namespace, propagation=DEPENDANTS_FIRST, uid=one["uid"])

    def try_out(self, manifests: Sequence[Manifest], *, headers: Headers = (), replaces: bool = False) -> None:
        """Raises what the API server says; nothing is created. `replaces`: names of what has ended are free.

        `headers`: in whose name its objects would be created; its pods, where a controller makes them, are not.
        """
        names: set[tuple[str, str, str]] = set()
        for manifest in manifests:
            self._places.refuse(self._object_kind(manifest).namespace)
            (resource, document), *others = self._trials(manifest)
            is_named = _is_named(manifest)
            if is_named:
                self._refuse_taken(resource, manifest, names)
            self._try(resource, document, is_named=is_named, headers=headers, replaces=replaces)
            for resource, document in others:
                self._try(resource, document, is_named=False)
            self._try_claim(manifest, headers)
            if manifest.spec.array is None and manifest.spec.tasks_total > 1:
                self._refuse_gang(manifest)

    def _try_claim(self, manifest: Manifest, headers: Headers) -> None:
        """The volume that would be made for it. One that somebody else has under that name is not taken."""
        if not _has_claim(manifest):
            return
        metadata = manifest.document["metadata"]
        if manifest.document["kind"] == PODS.kind:
            raise Rejected(
                f"metadata.annotations: {SHARED_VOLUME} makes a volume for the pods of an object, and a Pod is one by "
                "itself; write a Job, or name a claim of your own in spec.volumes"
            )
        if not metadata.get("name"):
            raise Rejected(
                f"metadata.annotations: {SHARED_VOLUME} needs metadata.name, by which the pods name the claim; write a "
                "name instead of generateName"
            )
        claim = render_claim(metadata, {})
        claim["metadata"]["namespace"] = self._places.namespace(manifest.document)
        self._try(CLAIMS, claim, is_named=True, headers=headers)

    def ended(self, manifests: Sequence[Manifest]) -> list[Document]:
        """References to objects that have ended and have the name of one of these. What a job of ours has left makes
        way by itself."""
        found = []
        for manifest in filter(_is_named, manifests):
            resource, document = self._trials(manifest)[0]
            namespace = self._places.namespace(document)
            with contextlib.suppress(NotFound):
                there = self._port.get(resource, document["metadata"]["name"], namespace)
                if _has_ended(there) and self._whose(there) is None:
                    metadata = {name: there["metadata"][name] for name in ("name", "namespace", "uid")}
                    reference = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
                    found.append({**reference, "pods": [metadata]} if document["kind"] == "Pod" else reference)
        return found

    def _whose(self, there: Document) -> int | None:
        """Which of our jobs an object is of; None: of none."""
        return labelled_job(there["metadata"].get("labels") or {}, self._store.id)

    def with_volumes(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """With the rules that the volumes of their pods have for nodes."""
        return [replace(one, spec=with_volumes(one.spec, self._choices(one))) for one in manifests]

    def _choices(self, manifest: Manifest) -> list[tuple[Choice, ...]]:
        if is_native(manifest.document):
            return [()] * len(manifest.spec.roles)  # it names no claims
        namespace = self._object_kind(manifest).namespace
        pods = [document for resource, document in self._trials(manifest) if resource == PODS]
        return [self._volumes.choices(one["spec"], "", namespace) for one in pods]

    def _refuse_gang(self, manifest: Manifest) -> None:
        """Each of its pods may fit into a quota that never holds all of them."""
        pods = [document["spec"] for resource, document in self._trials(manifest) if resource == PODS]
        sized = list(zip(pods, (size.tasks for size in sizes(manifest.spec)), strict=False))
        quotas = self._port.list(Selection(QUOTAS, self._object_kind(manifest).namespace)).items
        if said := refusal_of_gang(quotas, sized, is_empty=True):
            raise Rejected(f"its tasks start together or not at all, and together they {said}; {TOO_SMALL}")

    def _refuse_taken(self, resource: Resource, manifest: Manifest, names: set[tuple[str, str, str]]) -> None:
        """By a job that waits, whose object is not there yet, or by another of the same submission."""
        mine = self._identity(manifest.document)
        if mine in names:
            raise Rejected(f"{mine[0]} {mine[1]}/{mine[2]} is submitted twice; give each object its own metadata.name")
        names.add(mine)
        for job in self._store.active_named(manifest.spec.name):
            document = self._store.manifest(job.manifest) if job.manifest else {}
            if document and not is_native(document) and self._identity(document) == mine:
                raise Conflict(taken(resource, mine[2], mine[1], job.id))

    def _identity(self, document: Document) -> tuple[str, str, str]:
        metadata = document["metadata"]
        return str(document["kind"]), self._places.namespace(document), str(metadata.get("name") or "")

    def _try(
        self, resource: Resource, document: Document, *, is_named: bool, headers: Headers = (), replaces: bool = False
    ) -> None:
        """`is_named`: by its user, who counts on the name."""
        namespace = self._places.namespace(document)
        try:
            self._port.create(resource, document, namespace, dry_run=True, headers=headers)
        except AlreadyExists:
            if is_named:
                self._refuse_existing(resource, document["metadata"]["name"], namespace, replaces)
        except Rejected as refusal:
            if is_full_now(str(refusal)):
                return  # others use what it asks for; it waits until they have given it back
            if is_too_small(str(refusal)):
                raise Rejected(f"{refusal}; the job is larger than the whole quota: {TOO_SMALL}") from refusal
            raise

    def _refuse_existing(self, resource: Resource, name: str, namespace: str, replaces: bool) -> None:
        """What a job of ours has left that has ended, or what is being deleted, makes way when its time comes."""
        try:
            there = self._port.get(resource, name, namespace)
        except NotFound:
            return
        whose = self._whose(there)
        is_left_over = whose is not None and self._has_ended(whose)
        is_over = whose is None and _has_ended({"kind": resource.kind, **there})
        makes_way = is_left_over or (is_over and replaces) or "deletionTimestamp" in there["metadata"]
        if not makes_way:
            raise Conflict(taken(resource, name, namespace, whose, has_ended=is_over))

    def _has_ended(self, job: int) -> bool:
        found = self._store.jobs([job])
        return job not in found or found[job].state.has_ended

    def _trials(self, manifest: Manifest) -> list[tuple[Resource, Document]]:
        spec, document = manifest.spec, manifest.document
        if is_native(document):
            document = self._native(spec, 0, spec.width_min)
        if document["kind"] == "List":
            return [(SERVICES if one["kind"] == "Service" else PODS, one) for one in document["items"][:2]]
        filling = Filling(0, TRIAL, AttemptId(0, 1), sizes(spec), TRIAL, is_array=spec.array is not None)
        given = without_server_fields(_named(as_created(document), spec.name, 0))
        if document["kind"] == "Pod":
            return [(PODS, {**given, "spec": fill_pod(given["spec"], filling.roles[0], filling)})]
        kind, resource = self._cluster.served(document["kind"])
        filled = kind.fill(given, filling)
        return [(resource, filled), *((PODS, _pod_of(filled, template)) for template in kind.templates(filled))]


def _has_claim(manifest: Manifest) -> bool:
    """Is a volume made for it?"""
    document = manifest.document
    return not is_native(document) and SHARED_VOLUME in (document["metadata"].get("annotations") or {})


def _is_named(manifest: Manifest) -> bool:
    """By its user, who counts on the name."""
    return bool(manifest.document["metadata"].get("name")) and not is_native(manifest.document)


def _has_ended(document: Document) -> bool:
    """By what its own controller, or of a pod its kubelet, says."""
    if document["kind"] not in KINDS:
        return (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    try:
        return KINDS[document["kind"]].read(document).verdict is not None
    except (Rejected, LookupError, TypeError, ValueError, AttributeError):  # not to be read, so nobody knows
        return False


def _named(document: Document, name: str, job: int) -> Document:
    """Where the API server would choose a name, we do: what was made must be found again, whatever became of us."""
    metadata = document["metadata"]
    if metadata.get("name"):
        return document
    return {**document, "metadata": {**metadata, "name": object_name(name, job)}}


def _pod_of(document: Document, template: Document) -> Document:
    """As its controller will make it: a quota, or what keeps pods of its kind out, is heard of before it has begun."""
    metadata = document["metadata"]
    names = {"name": f"{metadata['name']}-{TRIAL}", "namespace": metadata.get("namespace")}
    own = {name: value for name, value in (template.get("metadata") or {}).items() if name in ("labels", "annotations")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, **names}, "spec": template["spec"]}


def sizes(spec: JobSpec) -> tuple[RoleSize, ...]:
    """At its least width."""
    sizes = []
    for role, (needs, count) in zip(spec.roles, tasks_at(spec, spec.width_min), strict=True):
        share_mib = needs.gpu_memory_mib if needs.is_share else 0
        sizes.append(RoleSize(count if spec.array is None else role.count, needs.gpus, share_mib))
    return tuple(sizes)
