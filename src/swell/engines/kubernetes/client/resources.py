"""What can be asked for, and at which address?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from swell.errors import NotFound, Rejected

#: API group → who serves it, for those that do not come with Kubernetes
SERVED_BY = {
    "kubeflow.org": "the Kubeflow training operator",
    "kubeflow.org MPIJob": "the MPI operator (mpi-operator, kubeflow.org/v2beta1)",
    "jobset.x-k8s.io": "the JobSet controller",
    "trainer.kubeflow.org": "the Kubeflow Trainer",
    "kueue.x-k8s.io": "Kueue",
}


class NotServed(NotFound):
    """The cluster knows no such kind."""


@dataclass(frozen=True, slots=True)
class Resource:
    group: str  #: empty: the core group
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Without a namespace: all of them."""
        parts = [group_path(self.api_version)]
        if namespace is not None and self.is_namespaced:
            parts += ["namespaces", segment(namespace)]
        parts += [self.plural]
        if name is not None:
            parts += [segment(name)]
        if subresource is not None:
            parts += [subresource]
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", is_namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", is_namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False)
SELF_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", is_namespaced=False
)
SUBJECT_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", is_namespaced=False
)


def group_path(api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"/apis/{segment(group)}/{segment(version)}" if group else f"/api/{segment(version)}"


def segment(name: str) -> str:
    """A name in an address. An empty one would be the address of all of them, and `..` that of something else."""
    if name in ("", ".", ".."):
        raise Rejected(f"{name!r} is no name of an object")
    return quote(name, safe="")


def parse_resources(document: dict[str, Any]) -> dict[str, Resource]:
    """Kind → resource, from a group's own list."""
    group, _, version = str(document["groupVersion"]).rpartition("/")
    return {
        item["kind"]: Resource(group, version, item["name"], item["kind"], bool(item["namespaced"]))
        for item in document["resources"]
        if "/" not in item["name"]  # subresources are listed beside them
    }


def not_served(api_version: str, kind: str) -> NotServed:
    group = api_version.rpartition("/")[0]
    whose = SERVED_BY.get(f"{group} {kind}") or SERVED_BY.get(group)
    what = f"{kind} needs {whose}" if whose else f"the cluster serves no {kind} of {api_version}"
    todo = "install it" if whose else "check apiVersion and kind"
    look = f"kubectl api-resources --api-group={group}" if whose else "kubectl api-resources"
    return NotServed(f"{what}: the API server knows no {kind} of {api_version}; {todo} (`{look}` lists what is there)")
