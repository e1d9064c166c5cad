"""Where is everything of a run made, and how is it taken away again? In one namespace, that is deleted as a whole.

It carries whose it is: the folder of the results, on which machine. One that an interrupted experiment left is taken
away by the same experiment when it goes on; anybody else's is left alone.
"""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.errors import Conflict, NotFound
from swell.model.quantity import number_of

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EXPERIMENT = "swell.dev/experiment"  # label of everything that an experiment makes outside of its namespace, too
OF_FOLDER = "swell.dev/experiment-folder"
STALLED_S_MAX = 300.0  # 10,000 pods take longer than that to go, but some of them go all the time
COUNTED = re.compile(r"has ([0-9]+) resource instances")  # of each kind that is left, in a condition of the namespace
ACCOUNT_S_MAX = 10.0
LOOK_S = 0.2


class ExperimentNamespace:
    def __init__(
        self,
        client: ApiClient,
        name: str,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self.name = name
        self._clock = clock
        self._pause = pause
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
        """There is none of that name."""
        metadata = {"name": self.name, "labels": {EXPERIMENT: "yes"}, "annotations": {OF_FOLDER: self._owner}}
        self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        until = self._clock() + ACCOUNT_S_MAX
        while self._clock() < until:  # without it pods are refused; a cluster without accounts needs none
            with suppress(NotFound):
                self._client.get(ACCOUNTS, "default", self.name)
                return
            self._pause(LOOK_S)

    def remove(self) -> None:
        """With all that is in it, for as long as it takes. What does not go away at all is refused as `Conflict`."""
        if self._get() is None:
            return
        self.check()
        with suppress(NotFound):
            self._client.delete(NAMESPACES, self.name, propagation="Background")
        least, since = sys.maxsize, self._clock()
        while (found := self._get()) is not None:
            left = self._pods_left() + _instances_left(found)
            if left < least:
                least, since = left, self._clock()
            elif self._clock() - since > STALLED_S_MAX:
                raise Conflict(
                    f"namespace {self.name!r} does not go away: nothing in it was deleted for "
                    f"{STALLED_S_MAX / 60:.0f} minutes, and it still has {number_of(self._pods_left(), 'pod')} "
                    f"({_obstacles(found)}); remove what holds it, then run the same command to continue"
                )
            self._pause(LOOK_S)

    def _pods_left(self) -> int:
        """One page of one pod: the API server counts the others."""
        page = next(self._client.pages(Selection(PODS, self.name), limit=1))
        return len(page.items) + page.after

    def _get(self) -> Document | None:
        try:
            return self._client.get(NAMESPACES, self.name)
        except NotFound:
            return None


def _instances_left(namespace: Document) -> int:
    """Objects of all kinds, as the controller of namespaces has last counted them."""
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    return sum(int(count) for one in conditions for count in COUNTED.findall(one.get("message", "")))


def _obstacles(namespace: Document) -> str:
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    return (
        "; ".join(one.get("message", "") for one in conditions if one.get("status") == "True") or "no reason is given"
    )
