"""Where is everything of a run made, and how is it taken away again? In one namespace, that is deleted as a whole.

It carries whose it is: the folder of the results, on which machine. One that an interrupted experiment left is taken
away by the same experiment when it goes on; anybody else's is left alone.
"""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from pathlib import Path

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import Resource
from swell.errors import Conflict, NotFound

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EXPERIMENT = "swell.dev/experiment"  # label of everything that an experiment makes outside of its namespace, too
OF_FOLDER = "swell.dev/experiment-folder"
GONE_S_MAX = 300.0
ACCOUNT_S_MAX = 10.0
LOOK_S = 0.2


class ExperimentNamespace:
    def __init__(self, client: ApiClient, name: str, folder: Path) -> None:
        self._client = client
        self.name = name
        self._owner = f"{platform.node()}:{folder.absolute()}"

    def check(self) -> None:
        """Refuse one that is somebody else's."""
        found = self._get()
        if found is None:
            return
        metadata = found["metadata"]
        if EXPERIMENT not in (metadata.get("labels") or {}):
            raise Conflict(
                f"namespace {self.name!r} exists and was not made by an experiment, which would delete it at its end; "
                "name another in the file (cluster.kubernetes.namespace)"
            )
        owner = (metadata.get("annotations") or {}).get(OF_FOLDER, "")
        if owner != self._owner:
            raise Conflict(
                f"namespace {self.name!r} belongs to the experiment in {owner}; wait until that is over, or, if it was "
                f"given up, run: kubectl delete namespace {self.name}"
            )

    def make(self) -> None:
        self.remove()
        metadata = {"name": self.name, "labels": {EXPERIMENT: "yes"}, "annotations": {OF_FOLDER: self._owner}}
        self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        until = time.monotonic() + ACCOUNT_S_MAX
        while time.monotonic() < until:  # without it pods are refused; a cluster without accounts needs none
            with suppress(NotFound):
                self._client.get(ACCOUNTS, "default", self.name)
                return
            time.sleep(LOOK_S)

    def remove(self) -> None:
        """With all that is in it. Where that does not go away nothing more can be measured here."""
        if self._get() is None:
            return
        self.check()
        with suppress(NotFound):
            self._client.delete(NAMESPACES, self.name, propagation="Background")
        until = time.monotonic() + GONE_S_MAX
        while (found := self._get()) is not None:
            if time.monotonic() > until:
                raise Conflict(
                    f"namespace {self.name!r} does not go away: {_obstacles(found)}; remove what holds it, then the "
                    "same command goes on"
                )
            time.sleep(LOOK_S)

    def _get(self) -> Document | None:
        try:
            return self._client.get(NAMESPACES, self.name)
        except NotFound:
            return None


def _obstacles(namespace: Document) -> str:
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    return (
        "; ".join(one.get("message", "") for one in conditions if one.get("status") == "True") or "no reason is given"
    )
