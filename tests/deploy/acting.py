"""A server on this machine that may do in the cluster what the chart grants, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.identity import Asked, Login, asked
from cluster.processes import free_port
from server import Server

from .chart import ACCOUNT, NAMESPACE, Document, rendered

PATIENCE_S = 60.0  # for what takes seconds; a loaded machine is slow
RIGHTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
ELSEWHERE = "127.0.0.2"  # every address of 127/8 is this machine's
Right = tuple[str, str, str]  # verb, group, resource


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    server: Server
    login: Login  #: of the server, as the chart's account
    url: str  #: where users' tokens are taken
    granted: frozenset[Right]

    def submit(self, *documents: Object, **variables: str) -> list[int]:
        done = self.server.swell("submit", "-f", "-", stdin=yaml.safe_dump_all(documents), env=variables)
        assert done.code == 0, done
        return [int(word) for word in done.stdout.split()]

    def said(self, *words: str) -> str:
        done = self.server.swell(*words)
        assert done.code == 0, done
        return done.stdout

    def until(self, job: int, *states: str) -> Document:
        return self.server.until(job, *states, patience_s=PATIENCE_S)

    def asked(self) -> list[Asked]:
        return asked(self.cluster.control_plane.audit, ACCOUNT)


@contextmanager
def acting(cluster: Cluster, folder: Path, *namespaces: str) -> Iterator[Stage]:
    """With a RoleBinding in each of these namespaces, as `namespaces` of the chart makes them."""
    for name in namespaces:
        cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    rights = [one for one in rendered({"namespaces": [*namespaces]}) if one["kind"] in RIGHTS]
    cluster.api.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(rights))
    login = Login(folder, cluster.kubeconfig, NAMESPACE)
    login.use(cluster.api.kubectl("create", "token", "swell", "-n", NAMESPACE).strip())
    address = f"{ELSEWHERE}:{free_port(ELSEWHERE)}"
    options = (
        "--engine",
        "kubernetes",
        "--kubeconfig",
        str(login.kubeconfig),
        "--namespace",
        NAMESPACE,
        "--listen",
        address,
        "--plain-http",
    )
    with Server(folder, *options, gpus=None) as server:
        yield Stage(
            cluster, server, login, f"http://{address}", frozenset(right for one in rights for right in _rights(one))
        )


def _rights(role: Document) -> Iterator[Right]:
    for rule in role.get("rules", ()):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((verb, group, resource) for verb in rule["verbs"])
