"""Kubernetes as the engine.

    client      HTTP to the API server
    watch       a picture of the cluster that stays true
    objects     pure: what objects look like
    attempt     one attempt of a job, wanted and observed
    sharing     GPUs that several pods share
    logs        pods' logs on our disk
    election    which server acts
    engine      all of it, as the controller knows it

Public: `KubernetesEngine`, `find_access`, `ApiClient`, `PatchKind`, `Reflector`, `Resource`, `Selection`.
"""

from swell.engines.kubernetes.client.access import Access, find_access
from swell.engines.kubernetes.client.api_client import ApiClient, PatchKind, Selection
from swell.engines.kubernetes.client.resources import Resource
from swell.engines.kubernetes.engine import KubernetesEngine
from swell.engines.kubernetes.watch.reflector import Reflector

__all__ = ["Access", "ApiClient", "KubernetesEngine", "PatchKind", "Reflector", "Resource", "Selection", "find_access"]
