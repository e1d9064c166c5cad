"""What did the API server show of pods and nodes, in order? Watched beside Swell, not through its proxy."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.api import Api, Object, Refused
from cluster.kwok import REFUSE

PAUSE_S = 0.1
LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index",
          "jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodSighting:
    at: float
    uid: str
    name: str
    rank: str  #: of its job; unique among its pods
    attempt: str  #: empty: nobody wrote one on it
    node: str  #: empty: not bound
    phase: str
    gpus: int
    cpus_milli: int
    is_deleting: bool = False
    is_gone: bool = False
    is_refused: bool = False  #: by its node, which has nothing left for it
    reserves: bool = False  #: keeps a GPU for those who share it
    gpu: str = ""  #: the one it shares, or reserves; empty: none, or it is not known yet
    share_mib: int = 0  #: how much of that GPU is its own

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def holds(self) -> bool:
        """Does it hold room on its node?"""
        return bool(self.node) and not (self.has_ended or self.is_gone or self.is_refused)


@dataclass(frozen=True, slots=True)
class NodeSighting:
    name: str
    gpus: int
    cpus_milli: int
    gpu_mib: int = 0  #: of each GPU; 0: it does not say


@dataclass
class History:
    pods: list[PodSighting] = field(default_factory=list)
    nodes: dict[str, NodeSighting] = field(default_factory=dict)  #: also those that are gone; they never change size

    def latest(self) -> dict[str, PodSighting]:
        """By uid, those that are there."""
        found = {one.uid: one for one in list(self.pods)}
        return {uid: one for uid, one in found.items() if not one.is_gone}


def read_pod(document: Object, at: float) -> PodSighting:
    metadata, spec = document["metadata"], document["spec"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    numbers = [labels[name] for name in LABELS if name in labels]
    requests = [(one.get("resources") or {}).get("requests") or {} for one in spec["containers"]]
    return PodSighting(
        at=at,
        uid=metadata["uid"],
        name=metadata["name"],
        rank=" ".join(numbers) or annotations.get("swell.dev/rank") or metadata["name"],
        attempt=annotations.get("swell.dev/attempt", ""),
        node=spec.get("nodeName", ""),
        phase=(document.get("status") or {}).get("phase", "Pending"),
        gpus=sum(int(one.get("nvidia.com/gpu", 0)) for one in requests),
        cpus_milli=sum(_milli(one.get("cpu", "0")) for one in requests),
        is_deleting="deletionTimestamp" in metadata,
        is_refused=REFUSE in annotations,
        reserves="swell.dev/reservation" in labels,
        gpu=annotations.get("swell.dev/gpu", ""),
        share_mib=int(annotations.get("swell.dev/gpu-memory-mib", 0)),
    )


def read_node(document: Object) -> NodeSighting:
    room, labels = document["status"].get("allocatable") or {}, document["metadata"].get("labels") or {}
    gpus, cpus_milli = int(room.get("nvidia.com/gpu", 0)), _milli(room.get("cpu", "0"))
    return NodeSighting(document["metadata"]["name"], gpus, cpus_milli, int(labels.get("nvidia.com/gpu.memory", 0)))


def _milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


class Recorder:
    """Follows pods and nodes through every outage, from its start until it is closed."""

    def __init__(self, api: Api) -> None:
        self.history = History()
        self._api = api
        self.problems: list[str] = []  #: what was shown and could not be read
        self._is_closing = False
        self._connections: set[http.client.HTTPSConnection] = set()
        follow: Sequence[tuple[str, Callable[[str, Object], None]]] = (
            ("/api/v1/nodes", self._node), ("/api/v1/namespaces/default/pods", self._pod),
        )  # fmt: skip
        self._threads = [threading.Thread(target=self._follow, args=one, daemon=True) for one in follow]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._is_closing = True
        for connection in list(self._connections):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)
        for thread in self._threads:
            thread.join(5)

    def _pod(self, kind: str, document: Object) -> None:
        seen = read_pod(document, time.monotonic())
        self.history.pods.append(replace(seen, is_gone=kind == "DELETED"))

    def _node(self, kind: str, document: Object) -> None:
        seen = read_node(document)
        if kind != "DELETED" and seen.gpus:
            self.history.nodes[seen.name] = seen

    def _follow(self, path: str, tell: Callable[[str, Object], None]) -> None:
        known: dict[str, Object] = {}
        version = ""
        while not self._is_closing:
            try:
                if not version:
                    version = self._list(path, tell, known)
                version = self._watch(path, version, tell, known)
            except (OSError, http.client.HTTPException, Refused, ValueError):
                time.sleep(PAUSE_S)

    def _tell(self, tell: Callable[[str, Object], None], kind: str, item: Object) -> None:
        """Something unreadable must not end a thread without which nothing is seen, nor be passed over."""
        try:
            tell(kind, item)
        except Exception as error:  # noqa: BLE001
            self.problems.append(f"{item['metadata'].get('name')} could not be read: {error!r}")

    def _list(self, path: str, tell: Callable[[str, Object], None], known: dict[str, Object]) -> str:
        listing = self._api.get(path)
        there = {item["metadata"]["uid"]: item for item in listing["items"]}
        for uid in known.keys() - there.keys():
            self._tell(tell, "DELETED", known.pop(uid))
        for uid, item in there.items():
            known[uid] = item
            self._tell(tell, "MODIFIED", item)
        return str(listing["metadata"]["resourceVersion"])

    def _watch(self, path: str, version: str, tell: Callable[[str, Object], None], known: dict[str, Object]) -> str:
        """The version it came to; empty: it must be listed again."""
        connection = self._api.connect(timeout_s=100)
        self._connections.add(connection)
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        try:
            connection.request("GET", path + query, headers=self._api.headers())
            response = connection.getresponse()
            if response.status != 200:  # it starts, or has too much to do
                time.sleep(PAUSE_S)
                return ""
            for line in response:
                event: dict[str, Any] = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR" or "metadata" not in item:
                    return ""
                version = str(item["metadata"].get("resourceVersion") or version)
                if event["type"] != "BOOKMARK":
                    known[item["metadata"]["uid"]] = item
                    self._tell(tell, event["type"], item)
                    if event["type"] == "DELETED":
                        del known[item["metadata"]["uid"]]
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(PAUSE_S)
        finally:
            self._connections.discard(connection)
            connection.close()
        return version
