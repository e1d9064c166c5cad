"""How does a job become objects of a cluster?

A foreign manifest is its own object. What was written in our own notation becomes pods or an Indexed Job, made anew at
each attempt's width. Before a job is accepted, its objects are shown to the API server, which refuses them in its own
words and creates nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.failures import AlreadyExists
from swell.engines.kubernetes.hands import taken
from swell.engines.kubernetes.jobplaces import JobPlaces
from swell.engines.kubernetes.objects import DEPENDANTS_FIRST, Filling, RoleSize, without_server_fields
from swell.engines.kubernetes.picture import labelled_job
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.quotas import is_full_now, is_too_small
from swell.engines.kubernetes.resources import PODS, SERVICES, Resource
from swell.engines.kubernetes.template import fill_pod
from swell.engines.kubernetes.wanted import Wanted
from swell.errors import Conflict, NotFound, Rejected
from swell.manifests import Manifest, is_native, native_objects, object_name
from swell.manifests.document import as_created
from swell.manifests.native_objects import RUN_AS
from swell.model.identity import ObjectKind
from swell.model.job import AttemptId, Dimension, JobSpec
from swell.store import Store

Document = dict[str, Any]
TRIAL = "swell-trial"
TOO_SMALL = "ask for less, or let the quota be raised"


class ClusterObjects:
    def __init__(self, store: Store, port: Port, cluster: Cluster, places: JobPlaces) -> None:
        self._store = store
        self._port = port
        self._cluster = cluster
        self._places = places

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

    def created(self, manifest: Manifest) -> ObjectKind:
        """What its user must be allowed to create."""
        document = manifest.document
        if is_native(document):
            kind = ("batch/v1", "Job") if manifest.spec.array is not None else ("v1", "Pod")
            return ObjectKind(*kind, self._places.default)
        namespace = self._places.namespace(document)
        return ObjectKind(document["apiVersion"], document["kind"], namespace)

    def delete(self, reference: Document) -> None:
        """What came by kubectl, as long as it is still the same; its dependants go with it."""
        namespace = reference["metadata"]["namespace"]
        if reference["kind"] == "Pods":
            found = [(PODS, pod) for pod in reference["pods"]]
        else:
            found = [(self._cluster.served(reference["kind"])[1], reference["metadata"])]
        for resource, one in found:
            with contextlib.suppress(NotFound, Conflict):  # gone, or another one of that name by now
                self._port.delete(resource, one["name"], namespace, propagation=DEPENDANTS_FIRST, uid=one["uid"])

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        """Raises what the API server says; nothing is created."""
        names: set[tuple[str, str, str]] = set()
        for manifest in manifests:
            self._places.refuse(self.created(manifest).namespace)
            (resource, document), *others = self._trials(manifest)
            is_named = bool(manifest.document["metadata"].get("name")) and not is_native(manifest.document)
            if is_named:
                self._refuse_taken(resource, manifest, names)
            self._try(resource, document, is_named=is_named)
            for resource, document in others:
                self._try(resource, document, is_named=False)

    def _refuse_taken(self, resource: Resource, manifest: Manifest, names: set[tuple[str, str, str]]) -> None:
        """By a job that waits, whose object is not there yet, or by another of the same submission."""
        mine = self._identity(manifest.document)
        if mine in names:
            raise Rejected(f"{mine[0]} {mine[1]}/{mine[2]} is submitted twice; give each a metadata.name of its own")
        names.add(mine)
        for job in self._store.active_named(manifest.spec.name):
            document = self._store.manifest(job.manifest) if job.manifest else {}
            if document and not is_native(document) and self._identity(document) == mine:
                raise Conflict(taken(resource, mine[2], mine[1], job.id))

    def _identity(self, document: Document) -> tuple[str, str, str]:
        metadata = document["metadata"]
        return str(document["kind"]), self._places.namespace(document), str(metadata.get("name") or "")

    def _try(self, resource: Resource, document: Document, *, is_named: bool) -> None:
        """`is_named`: by its user, who counts on the name."""
        namespace = self._places.namespace(document)
        try:
            self._port.create(resource, document, namespace, dry_run=True)
        except AlreadyExists:
            if is_named:
                self._refuse_existing(resource, document["metadata"]["name"], namespace)
        except Rejected as refusal:
            if is_full_now(str(refusal)):
                return  # others use what it asks for; it waits until they have given it back
            if is_too_small(str(refusal)):
                raise Rejected(f"{refusal}; it would not fit if it were alone there: {TOO_SMALL}") from refusal
            raise

    def _refuse_existing(self, resource: Resource, name: str, namespace: str) -> None:
        """What a job of ours has left that has ended, or what is being deleted, makes way when its time comes."""
        try:
            metadata = self._port.get(resource, name, namespace)["metadata"]
        except NotFound:
            return
        whose = labelled_job(metadata.get("labels") or {}, self._store.id)
        is_left_over = whose is not None and self._has_ended(whose)
        if not is_left_over and "deletionTimestamp" not in metadata:
            raise Conflict(taken(resource, name, namespace, whose))

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
    roles = []
    for number, role in enumerate(spec.roles):
        is_counted = number == 0 and spec.dimension is Dimension.TASKS and spec.array is None
        needs = role.resources
        gpus = spec.width_min if spec.dimension is Dimension.GPUS and needs.gpus else needs.gpus
        share_mib = needs.gpu_memory_mib if needs.is_share else 0
        roles.append(RoleSize(spec.width_min if is_counted else role.count, gpus, share_mib))
    return tuple(roles)
