"""What is a contender, and what do several of them need? CRDs, a kubeconfig that programs understand."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.api_client import ApiClient, PatchKind, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import Resource
from swell.errors import NotFound, SwellError, Unavailable
from swell.experiments.experiment import ContenderWanted
from swell.experiments.figures import Capacity
from swell.experiments.kubernetes.namespace import EXPERIMENT
from swell.experiments.kubernetes.observe import GangPlan
from swell.experiments.kubernetes.programs import LOOK_S, ContenderProgram, Usage

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
MANAGER = "swell-experiment"
SERVED_S_MAX = 30.0
Rights = tuple[tuple[str, Resource], ...]  # verb and what
Plans = Mapping[str, GangPlan]  # by gang


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a contender is started with."""

    client: ApiClient
    namespace: str  #: of the experiment
    capacity: Capacity
    memory_mib: int  #: of all nodes together, without what others hold
    programs: Path | None  #: what --programs named
    scratch: Path  #: a folder for configuration and logs, for as long as the contender runs


class ClusterContender:
    """One that belongs to the cluster: nothing is started."""

    rights: Rights = ()

    def __init__(self, wanted: ContenderWanted, around: Surroundings) -> None:
        self.wanted = wanted
        self.around = around
        self.program: ContenderProgram | None = None  #: None: none of ours runs
        self.configuration: Document = {}  #: that the program was given

    def version(self) -> str:
        return "as installed"

    def check(self) -> None:
        """Refuse what cannot be measured here, before anything is touched."""

    def start(self) -> None:
        """When it returns, it takes pods."""

    def stop(self) -> None:
        """Nothing of it is left running."""
        if self.program is not None:
            self.program.stop()

    def files(self) -> dict[str, bytes]:
        """What is kept of it with the results; no credentials, which are in a kubeconfig of its own."""
        if self.program is None:
            return {}
        started = {"command": self.program.argv, "configuration": self.configuration}
        return {"contender.json": json.dumps(started, indent=1).encode(), "contender.log": self.program.log()}

    def usage(self) -> Usage | None:
        """None: its processes are not ours to look at."""
        return None if self.program is None else self.program.usage()

    def trouble(self) -> str:
        """Why it does not run any more; empty: it does."""
        return "" if self.program is None else self.program.trouble

    def plans(self) -> Plans:
        """What it says that it decided; of those that say nothing, nothing."""
        return {}

    def reasons(self) -> Mapping[str, str]:
        """Why a gang waits, where its pods do not say so."""
        return {}


# -- CRDs ------------------------------------------------------------------------------------------------------


def apply_crds(client: ApiClient, files: Iterable[Path], wanted: Iterable[Resource]) -> None:
    """Those that are missing; what somebody has installed stays as it is. Returns when they are served."""
    for path in files:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and not has_crd(client, document["metadata"]["name"]):
                name = document["metadata"]["name"]
                document["metadata"].setdefault("labels", {})[EXPERIMENT] = "yes"
                document.pop("status", None)
                client.patch(CRDS, name, document, kind=PatchKind.APPLY, manager=MANAGER, force=True)
    for resource in wanted:
        _wait_until_served(client, resource)


def _wait_until_served(client: ApiClient, resource: Resource) -> None:
    until = time.monotonic() + SERVED_S_MAX
    while time.monotonic() < until:
        with suppress(NotFound):
            client.list(Selection(resource))
            return
        time.sleep(LOOK_S)
    raise Unavailable(f"the API server does not serve {resource} {SERVED_S_MAX:.0f} s after its CRD was made")


def has_crd(client: ApiClient, name: str, *, is_ours: bool = False) -> bool:
    """`is_ours`: only one that an experiment has made counts."""
    try:
        found = client.get(CRDS, name)
    except NotFound:
        return False
    return not is_ours or EXPERIMENT in (found["metadata"].get("labels") or {})


def remove_crds(client: ApiClient) -> None:
    """Those that an experiment has made."""
    for item in client.list(Selection(CRDS, labels=EXPERIMENT)).items:
        with suppress(SwellError):
            client.delete(CRDS, item["metadata"]["name"])


# -- a kubeconfig ----------------------------------------------------------------------------------------------


def write_kubeconfig(access: Access, path: Path) -> Path:
    """One cluster and one user, as the experiment itself is connected; a token that ends is not renewed."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(_kubeconfig(access)))
    return path


def _kubeconfig(access: Access) -> Document:
    cluster: Document = {"server": access.server}
    if access.is_insecure:
        cluster["insecure-skip-tls-verify"] = True
    elif access.authority is not None:
        cluster["certificate-authority-data"] = _encoded(access.authority)
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "experiment",
        "contexts": [{"name": "experiment", "context": {"cluster": "experiment", "user": "experiment"}}],
        "clusters": [{"name": "experiment", "cluster": cluster}],
        "users": [{"name": "experiment", "user": _user(access)}],
    }


def _user(access: Access) -> Document:
    credential = access.credentials.current()
    user: Document = {}
    for name, value in credential.headers:
        kind, _, secret = value.partition(" ")
        if name == "Authorization" and kind == "Bearer":
            user["token"] = secret
        elif name == "Authorization":
            user["username"], _, user["password"] = base64.b64decode(secret).decode().partition(":")
    if credential.certificate is not None:
        user["client-certificate-data"] = _encoded(credential.certificate.chain)
        user["client-key-data"] = _encoded(credential.certificate.key)
    return user


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
