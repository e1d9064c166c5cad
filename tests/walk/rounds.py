"""What becomes of a cluster in which three users do with kubectl what comes to their minds?

One round, from one seed: four simulated nodes, objects of all kinds, and a few dozen actions. After each few of them it
is waited until the cluster is quiet and `judge.py` has nothing to say. In the end everything is deleted, and nothing
may be held.

`PYTHONPATH=tests .venv/bin/python -m walk.rounds SEED [ACTIONS]` repeats one round.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.api import Api, Refused
from cluster.cluster import Cluster
from cluster.kwok import SUCCEED
from onitscluster import server_on
from server import Server

from .judge import Picture, is_placed, judge
from .objects import GROUP, OF, Thing, draw

NODES = 4
OPERATORS = ("jobset", "training")
USERS = ("anna", "ben", "cleo")
ACTIONS = 24
QUIET_S = 100.0  # a job that was not placed is tried again within a minute; and machines are slow
LOOK_S = 0.3
THINGS_MAX = 9
Document = dict[str, Any]


class Walk:
    def __init__(self, seed: int, cluster: Cluster, server: Server) -> None:
        self.lots = random.Random(seed)
        self.api: Api = cluster.api
        self.server = server
        self.users = [f"{user}-{seed}" for user in USERS]
        self.things: list[Thing] = []
        self.story: list[str] = []
        self._finished: dict[str, tuple[str, str]] = {}  #: uid of a pod that was told to succeed → what it is of
        self._number = 0
        for user in self.users:
            self._make_namespace(user)

    # -- actions -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], str]]] = [
            (8 if len(self.things) < THINGS_MAX else 0, self.apply),
            (4, self.delete),
            (3, self.delete_pod),
            (3, self.scale),
            (2, self.evict),
            (2, self.finish),
            (1, self.patch_label),
            (1, self.replace),
            (1, self.cordon),
            (1, self.drain),
            (2, self.uncordon),
            (1, self.delete_namespace),
        ]
        [chosen] = self.lots.choices([one for _, one in actions], [weight for weight, _ in actions])
        try:
            said = chosen()
        except Refused as refused:  # it has ended, or is on its way
            if refused.status not in (404, 409, 422, 429):
                raise
            said = f"{chosen.__name__}: {refused}"
        self.story.append(said)

    def apply(self) -> str:
        self._number += 1
        thing = draw(self.lots, self.lots.choice(self.users), self._number)
        self._create(thing)
        return f"apply {thing.kind} {thing.namespace}/{thing.name}: {thing.pods} pods of {thing.gpus} GPUs"

    def delete(self) -> str:
        thing = self._any()
        if thing is None:
            return "nothing to delete"
        how = self.lots.choice(("Background", "Foreground", "Orphan", "pods first", "no grace"))
        self._delete(thing, how)
        return f"delete {thing.kind} {thing.namespace}/{thing.name}, {how}"

    def delete_pod(self) -> str:
        pod = self._any_pod()
        if pod is None:
            return "no pod to delete"
        grace = self.lots.choice(("", "?gracePeriodSeconds=0"))
        self.api.delete(_address(pod) + grace)
        return f"delete pod {_address(pod)}{grace}"

    def evict(self) -> str:
        pod = self._any_pod(is_placed)
        if pod is None:
            return "no pod to evict"
        self._evict(pod)
        return f"evict {_address(pod)}"

    def finish(self) -> str:
        pod = self._any_pod(is_placed)
        if pod is None:
            return "no pod to finish"
        self._finished[pod["metadata"]["uid"]] = _whose(pod)
        self.api.patch(_address(pod), {"metadata": {"annotations": {SUCCEED: "0s"}}})
        return f"finish {_address(pod)}"

    def patch_label(self) -> str:
        pod = self._any_pod()
        if pod is None:
            return "no pod to label"
        label = self.lots.choice(("colour", GROUP)) if GROUP in (pod["metadata"].get("labels") or {}) else "colour"
        value = self.lots.choice("rgb")  # of a group: it is of another one from now on
        self.api.patch(_address(pod), {"metadata": {"labels": {label: value}}})
        return f"label {_address(pod)} {label}={value}"

    def scale(self) -> str:
        thing = self._any("Deployment", "StatefulSet")
        if thing is None:
            return "nothing to scale"
        count = self.lots.randint(0, 5)
        self.api.patch(thing.addresses[0], {"spec": {"replicas": count}})
        self.things[self.things.index(thing)] = replace(thing, pods=count)
        return f"scale {thing.namespace}/{thing.name} to {count}"

    def replace(self) -> str:
        """As `kubectl replace --force` does: deleted, and made again under the same name."""
        thing = self._any("Job", "JobSet", "PyTorchJob", "Deployment", "Pods")
        if thing is None:
            return "nothing to replace"
        self._delete(thing, "no grace" if thing.kind == "Pods" else "Foreground")
        self._until(lambda: not self._is_there(thing), f"{thing.name} is deleted")
        self._create(thing)
        return f"replace {thing.kind} {thing.namespace}/{thing.name}"

    def cordon(self) -> str:
        node = self.lots.choice(self._nodes())["metadata"]["name"]
        self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        return f"cordon {node}"

    def drain(self) -> str:
        node = self.lots.choice(self._nodes())["metadata"]["name"]
        self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        for pod in [pod for pod in self._pods() if pod["spec"].get("nodeName") == node]:
            with contextlib.suppress(Refused):
                self._evict(pod)
        return f"drain {node}"

    def uncordon(self) -> str:
        for node in self._nodes():
            self.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})
        return "uncordon all"

    def delete_namespace(self) -> str:
        user = self.lots.choice(self.users)
        self._forget([thing for thing in self.things if thing.namespace == user])
        self.api.delete(f"/api/v1/namespaces/{user}")
        self._until(lambda: not self._has_namespace(user), f"namespace {user} is gone")
        self._make_namespace(user)
        return f"delete namespace {user}, and make it again"

    # -- how -----------------------------------------------------------------------------------------------------------

    def _create(self, thing: Thing) -> None:
        whose = thing.namespace, thing.name
        self._finished = {uid: one for uid, one in self._finished.items() if one != whose}
        if thing not in self.things:
            self.things.append(thing)
        for document in thing.documents:
            self.api.create(thing.path, document)

    def _delete(self, thing: Thing, how: str) -> None:
        self._forget([thing])
        if how == "pods first":
            for pod in self._pods_of(thing):
                with contextlib.suppress(Refused):
                    self.api.delete(_address(pod))
        query = f"?propagationPolicy={how}" if how in ("Background", "Foreground", "Orphan") else ""
        query = "?gracePeriodSeconds=0&propagationPolicy=Background" if how == "no grace" else query
        for address in thing.addresses:
            with contextlib.suppress(Refused):
                self.api.delete(address + query)

    def _forget(self, things: list[Thing]) -> None:
        self.things = [thing for thing in self.things if thing not in things]

    def _evict(self, pod: Document) -> None:
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
        self.api.create(
            f"{_address(pod)}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        )

    def _make_namespace(self, name: str) -> None:
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _has_namespace(self, name: str) -> bool:
        return name in {one["metadata"]["name"] for one in self.api.get("/api/v1/namespaces")["items"]}

    def _is_there(self, thing: Thing) -> bool:
        names = {document["metadata"]["name"] for document in thing.documents}
        return any(one["metadata"]["name"] in names for one in self.api.get(thing.path)["items"])

    def _any(self, *kinds: str) -> Thing | None:
        found = [thing for thing in self.things if not kinds or thing.kind in kinds]
        return self.lots.choice(found) if found else None

    def _any_pod(self, is_one: Callable[[Document], bool] = lambda _: True) -> Document | None:
        pods = [pod for pod in self._pods() if "deletionTimestamp" not in pod["metadata"] and is_one(pod)]
        return self.lots.choice(sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))) if pods else None

    def _pods(self) -> list[Document]:
        found: list[Document] = self.api.get("/api/v1/pods")["items"]
        return [pod for pod in found if pod["metadata"]["namespace"] in self.users]

    def _pods_of(self, thing: Thing) -> list[Document]:
        return [pod for pod in self._pods() if (pod["metadata"].get("labels") or {}).get(OF) == thing.name]

    def _nodes(self) -> list[Document]:
        found: list[Document] = self.api.get("/api/v1/nodes")["items"]
        return found

    # -- a quiet moment ------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        offered = self.server.client().connection.json("GET", "/api/v1/nodes")["nodes"]
        jobs = [job for job in self.server.jobs() if job["user"] in self.users]
        self._drop_what_has_ended()
        return judge(Picture(self._pods(), self._nodes(), offered, jobs, self.things))

    def _drop_what_has_ended(self) -> None:
        """What has been deleted one by one, or has succeeded, is not the users' any more. Of plain pods those that had
        succeeded before they were deleted still count for their gang: nobody makes others."""
        there = {thing.name for thing in self.things if self._is_there(thing)}
        self.things = [thing for thing in self.things if thing.name in there]
        pods = self._pods()
        uids = {pod["metadata"]["uid"] for pod in pods}
        gone = Counter(whose for uid, whose in self._finished.items() if uid not in uids)
        self.things = [
            replace(thing, done=gone[thing.namespace, thing.name]) if thing.kind == "Pods" else thing
            for thing in self.things
        ]

    def settle(self) -> list[str]:
        """Until nobody has anything to say twice in a row; what is still said when patience ends."""
        end = time.monotonic() + QUIET_S
        quiet = 0
        found: list[str] = []
        while time.monotonic() < end:
            found = self.problems()
            quiet = 0 if found else quiet + 1
            if quiet == 2:
                return []
            threading.Event().wait(LOOK_S)
        return found

    def _until(self, is_true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + QUIET_S
        while not is_true():
            assert time.monotonic() < end, f"after {QUIET_S:.0f} s it is not true that {what}"
            threading.Event().wait(LOOK_S)

    def clear(self) -> list[str]:
        """Everything is deleted: nothing is held, and no job is left."""
        self.uncordon()
        for user in self.users:
            self.api.delete(f"/api/v1/namespaces/{user}")
        self.things = []
        self._until(lambda: not any(map(self._has_namespace, self.users)), "the users' namespaces are gone")
        problems = self.settle()
        left = [job for job in self.server.jobs() if job["user"] in self.users and job["ended_at"] is None]
        return problems + [f"job {job['id']} ({job['name']}) is {job['state']} and has no pods" for job in left]


def _whose(pod: Document) -> tuple[str, str]:
    """The namespace and name of the thing that it is of."""
    return pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(OF, "")


def _address(pod: Document) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def play(seed: int, cluster: Cluster, server: Server, actions: int = ACTIONS) -> list[str]:
    """One round; what was wrong, with what had been done until then."""
    walk = Walk(seed, cluster, server)
    problems: list[str] = []
    while len(walk.story) < actions and not problems:
        for _ in range(walk.lots.randint(1, 4)):
            walk.step()
        problems = walk.settle()
        walk.story.append("-- quiet --")
    story = "; ".join(walk.story)
    problems = problems or walk.clear()
    return [f"seed {seed}: {problem}\n    after: {story}" for problem in problems]


def play_walk(seed: int) -> list[str]:
    """On a cluster of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"swell-walk-{seed}-"))
    cluster = Cluster(folder / "cluster", kwok=NODES, operators=OPERATORS)
    with cluster, server_on(cluster, folder / "server") as server:
        problems = play(seed, cluster, server)
    if not problems:
        shutil.rmtree(folder)
    return problems


if __name__ == "__main__":
    print("\n".join(play_walk(int(sys.argv[1]))) or "nothing is wrong")
