"""Does anything that somebody may write into a cluster stop the scheduler for others?

One round, from one seed: objects of every kind that Swell follows or lists are made at random from the API server's own
description of that kind, with odd labels and annotations, their status too, and deleted again; meanwhile normal jobs of
all kinds come and go. All of those end well, the server answers all the time, and in the end nothing is held.

`PYTHONPATH=tests .venv/bin/python -m odd.rounds SEED [OBJECTS] [JOBS]` repeats one round.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from cluster.api import MERGE, Refused
from cluster.cluster import Cluster
from cluster.jobs import ON_KWOK, job, jobset, pod, pytorchjob
from onitscluster import server_on
from server import Server
from swell.errors import SwellError

from .schemas import Fuzz, Schemas

OBJECTS, JOBS = 2000, 50
OPERATORS = ("jobset", "training")
NODES = 12
ODD = "odd"  # the namespace of what is made at random
BOUNDED = "odd-and-bounded"  # of some of it: here are quotas, which refuse most pods
TOGETHER = 40  # made by several threads before some are deleted
KEPT_MAX = 120  # so many are there at once: what asks for room has it for a while, and gives it back
JOBS_AT_ONCE = 6
PATIENCE_S = 240.0
EACH_S = 1.0  # an object takes a twentieth of that on an idle machine
ASK_S = 0.5
Document = dict[str, Any]


def named(kind: str, **spec: Any) -> Document:
    return {"apiVersion": "v1", "kind": kind, "metadata": {}, **spec}


def bases() -> dict[str, Document]:
    """One of each kind that the API server takes, by the collection that it is created in."""
    ours = {"on": ON_KWOK, "schedulerName": "swell", "gpus": 1}
    batch, core = f"/apis/batch/v1/namespaces/{ODD}", f"/api/v1/namespaces/{ODD}"
    budget = {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    hard = {"requests.nvidia.com/gpu": "4", "pods": "90"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    lease = {"holderIdentity": "h", "leaseDurationSeconds": 15}
    return {
        f"{core}/pods": pod("", "true", **ours),
        f"{batch}/jobs": job("", "true", count=2, **ours),
        f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{ODD}/jobsets": jobset("", "true", count=2, **ours),
        f"/apis/kubeflow.org/v1/namespaces/{ODD}/pytorchjobs": pytorchjob("", "true", "true", workers=1, **ours),
        f"/api/v1/namespaces/{BOUNDED}/resourcequotas": named("ResourceQuota", spec={"hard": hard}),
        f"{core}/persistentvolumeclaims": named("PersistentVolumeClaim", spec=claim),
        f"{core}/events": named(
            "Event", reason="r", message="m", type="Warning", involvedObject={"namespace": ODD, "name": "x", "uid": "u"}
        ),
        f"/apis/policy/v1/namespaces/{ODD}/poddisruptionbudgets": {
            **named("PodDisruptionBudget", **budget),
            "apiVersion": "policy/v1",
        },
        f"/apis/coordination.k8s.io/v1/namespaces/{ODD}/leases": {
            **named("Lease", spec=lease),
            "apiVersion": "coordination.k8s.io/v1",
        },
        "/api/v1/nodes": named("Node", spec={}, status={}),
        "/api/v1/persistentvolumes": named("PersistentVolume", spec=volume),
        "/apis/storage.k8s.io/v1/storageclasses": {
            **named("StorageClass", provisioner="p"),
            "apiVersion": "storage.k8s.io/v1",
        },
        "/apis/scheduling.k8s.io/v1/priorityclasses": {
            **named("PriorityClass", value=7),
            "apiVersion": "scheduling.k8s.io/v1",
        },
        "/apis/node.k8s.io/v1/runtimeclasses": {
            **named("RuntimeClass", handler="h"),
            "apiVersion": "node.k8s.io/v1",
        },
    }


#: Which parts of a kind are written at random: what is no `spec` stands in the object itself.
PARTS = ("spec", "value", "globalDefault", "preemptionPolicy", "provisioner", "parameters", "volumeBindingMode")
PARTS += ("allowedTopologies", "involvedObject", "series", "lastTimestamp", "reason", "overhead", "scheduling")


class Odd:
    """Who makes and deletes what is odd."""

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self._lots = random.Random(seed)
        self._api = cluster.api
        self._fuzz = Fuzz(Schemas(cluster.api), self._lots)
        self._bases = bases()
        self.made: Counter[str] = Counter()  #: kind → objects that the API server took
        self.refused: Counter[str] = Counter()
        self.statuses = 0
        self.there: list[tuple[str, str]] = []  #: collection and name, oldest first
        self._number = 0
        self._lock = threading.Lock()
        self._connections = threading.local()
        self._pool = ThreadPoolExecutor(8)

    def draw(self) -> tuple[str, Document, Document]:
        """Where it is created, what, and what its status becomes."""
        path = self._lots.choice(sorted(self._bases))
        base = self._bases[path]
        if self._lots.random() < 0.2:
            path = path.replace(f"/namespaces/{ODD}/", f"/namespaces/{BOUNDED}/")
        self._number += 1
        document = base
        for part in self._lots.sample(PARTS, len(PARTS)):
            if part in base or self._lots.random() < 0.2:
                document = self._fuzz.changed(document, part, times=self._lots.choice((0, 1, 1, 2, 3)))
        metadata = {"name": f"odd-{self._number}", **dict(document["metadata"])}
        metadata["name"] = f"odd-{self._number}"
        metadata["labels"] = {**metadata.get("labels", {}), **self._fuzz.labels(self._lots.randint(0, 3))}
        metadata["annotations"] = {
            **metadata.get("annotations", {}),
            **self._fuzz.annotations(self._lots.randint(0, 3)),
        }
        document = {**document, "metadata": metadata, **_harmless(document)}
        status = self._fuzz.changed({**document, "status": {}}, "status", times=self._lots.randint(1, 4))
        return path, document, {"status": status.get("status") or {}}

    def burst(self) -> None:
        list(self._pool.map(self._make, [self.draw() for _ in range(TOGETHER)]))
        self.shrink(KEPT_MAX)

    def shrink(self, count: int) -> None:
        """To so many, the oldest ones first, more or less."""
        while len(self.there) > count:
            self._delete(*self.there.pop(self._lots.randrange(min(TOGETHER, len(self.there)))))

    def _make(self, drawn: tuple[str, Document, Document]) -> None:
        path, document, status = drawn
        kind, name = document["kind"], document["metadata"]["name"]
        try:
            self._ask("POST", path, document)
        except Refused:
            with self._lock:
                self.refused[kind] += 1
            return
        with self._lock:
            self.made[kind] += 1
            self.there.append((path, name))
        with contextlib.suppress(Refused):  # a kind may have none, or a validation of its own
            self._ask("PATCH", f"{path}/{name}/status", status)
            self.statuses += 1

    def _delete(self, path: str, name: str) -> None:
        how = self._lots.choice(("Background", "Foreground", "Orphan"))
        with contextlib.suppress(Refused):
            self._ask("DELETE", f"{path}/{name}?propagationPolicy={how}&gracePeriodSeconds=0")

    def _ask(self, method: str, path: str, body: Document | None = None) -> None:
        """On a connection of the calling thread: a new one for each request would be most of the work."""
        if not hasattr(self._connections, "one"):
            self._connections.one = self._api.connect()
        kind = MERGE if method == "PATCH" else "application/json"
        try:
            data = None if body is None else json.dumps(body)
            self._connections.one.request(method, path, data, self._api.headers(kind))
            answer = self._connections.one.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connections.one.close()
            raise
        if answer.status >= 400:
            raise Refused(answer.status, text.decode(errors="replace"))

    def clear(self) -> None:
        for path, name in self.there:
            self._delete(path, name)
        self.there = []
        for pods in (f"/api/v1/namespaces/{namespace}/pods" for namespace in (ODD, BOUNDED)):
            for one in self._api.get(pods)["items"]:  # those that were left by what was deleted without them
                with contextlib.suppress(Refused):
                    self._api.delete(f"{pods}/{one['metadata']['name']}?gracePeriodSeconds=0")


def _harmless(document: Document) -> Document:
    """What would end normal jobs by Kubernetes' own rules: a class for all pods, and a node that runs none of them."""
    if document["kind"] == "PriorityClass":
        return {"globalDefault": False}
    return {}


class Normal:
    """Jobs of all kinds that come and go, some by kubectl and some by `swell submit`."""

    def __init__(self, seed: int, cluster: Cluster, server: Server, count: int) -> None:
        self._lots = random.Random(seed)
        self._api, self._server = cluster.api, server
        self._left = count
        self._number = 0
        self.running: set[str] = set()
        self.ended: dict[str, str] = {}

    def step(self) -> None:
        """Those that have ended are noted, and others come."""
        listed = self._server.client().connection.json("GET", "/api/v1/jobs?all=true&all_users=true&limit=1000")["jobs"]
        states = {one["name"]: one["state"] for one in listed}
        for name in sorted(self.running):
            if states.get(name) in ("succeeded", "failed", "cancelled"):
                self.running.discard(name)
                self.ended[name] = states[name]
        while self._left and len(self.running) < JOBS_AT_ONCE:
            self._left -= 1
            self._number += 1
            self._start(f"normal-{self._number}")

    @property
    def are_done(self) -> bool:
        return not self._left and not self.running

    def _start(self, name: str) -> None:
        gpus, count = self._lots.choice((1, 2, 4)), self._lots.randint(1, 3)
        options: Document = {
            "on": ON_KWOK,
            "gpus": gpus,
            "annotations": {"sim/run-for": f"{self._lots.randint(1, 4)}s"},
        }
        by_kubectl = self._lots.random() < 0.6
        if by_kubectl:
            options["schedulerName"] = "swell"
        path, document = self._lots.choice(
            (
                ("/api/v1/namespaces/default/pods", pod(name, "true", **options)),
                ("/apis/batch/v1/namespaces/default/jobs", job(name, "true", count=count, **options)),
                (
                    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
                    jobset(name, "true", count=count, **options),
                ),
                (
                    "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
                    pytorchjob(name, "true", "true", workers=count, **options),
                ),
            )
        )
        self.running.add(name)
        if by_kubectl:
            self._api.create(path, document)
        else:
            done = self._server.swell("submit", "-f", "-", stdin=yaml.safe_dump(document))
            assert done.code == 0, done


def play(seed: int, cluster: Cluster, server: Server, objects: int = OBJECTS, jobs: int = JOBS) -> list[str]:
    for name in (ODD, BOUNDED):
        with contextlib.suppress(Refused):
            cluster.api.create("/api/v1/namespaces", {**named("Namespace"), "metadata": {"name": name}})
    odd, normal = Odd(seed, cluster), Normal(seed, cluster, server, jobs)
    problems: list[str] = []
    began, silent = server.state.lock_holder("server"), 0
    end = time.monotonic() + PATIENCE_S + objects * EACH_S
    while not (normal.are_done and odd.made.total() >= objects) and time.monotonic() < end:
        if odd.made.total() < objects:
            odd.burst()
        else:  # room that nobody gives back would be waited for
            odd.shrink(max(0, len(odd.there) - TOGETHER))
        try:
            normal.step()
        except (SwellError, http.client.HTTPException, OSError) as error:
            silent += 1
            problems.append(f"the server did not answer: {error}")
            if silent > 3:
                break
        threading.Event().wait(ASK_S)
    print(f"seed {seed}: made {dict(odd.made)}, {odd.statuses} with a status; refused {dict(odd.refused)}")
    problems += [f"normal job {name} is {state}" for name, state in normal.ended.items() if state != "succeeded"]
    problems += [f"normal job {name} has not ended" for name in sorted(normal.running)]
    if odd.made.total() < objects:
        problems.append(f"only {odd.made.total()} of {objects} objects were made")
    problems += [
        f"no {one['kind']} was taken by the API server" for one in bases().values() if not odd.made[one["kind"]]
    ]
    if server.state.lock_holder("server") != began:
        problems.append("the server is another process than at first")
    odd.clear()
    return [f"seed {seed}: {one}" for one in (*problems, *_held(server))]


def _held(server: Server) -> list[str]:
    """Of GPUs of the nodes on which jobs run, when all that was odd is deleted."""
    end = time.monotonic() + PATIENCE_S
    while True:
        nodes = server.client().connection.json("GET", "/api/v1/nodes")["nodes"]
        held = [
            f"GPU {gpu['id']} of {node['name']} is held by job {gpu['job']} and {gpu['outsiders_mib']} MiB of others"
            for node in nodes
            for gpu in node["gpus"]
            if not node["name"].startswith("odd-") and (gpu["job"] is not None or gpu["outsiders_mib"])
        ]
        if not held or time.monotonic() > end:
            return held
        threading.Event().wait(ASK_S)


def play_odd(seed: int) -> list[str]:
    """On a cluster of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"swell-odd-{seed}-"))
    cluster = Cluster(folder / "cluster", kwok=NODES, operators=OPERATORS)
    with cluster, server_on(cluster, folder / "server") as server:
        problems = play(seed, cluster, server)
    if not problems:
        shutil.rmtree(folder)
    return problems


if __name__ == "__main__":
    print("\n".join(play_odd(int(sys.argv[1]))) or "nothing is wrong")
