"""Whatever somebody writes into an object of the cluster, the next one of its kind is handled.

Every kind that is followed or listed, changed at random below the level at which the API server looks, with odd words
in its labels and annotations; then everybody who reads it looks: the engine, the adopter, the teller, the stand-ins,
and whoever is asked about names, quotas, groups, warnings and Leases. None of them may stumble.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.conftest import access_to
from engines.kubernetes.keeping import PATIENCE_S, until
from store.jobs import Clock
from swell.config import UserLimits
from swell.engines.kubernetes import ApiClient, KubernetesEngine
from swell.engines.kubernetes.attempt.leftovers import Leftovers
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import BUDGETS
from swell.engines.kubernetes.election.intake import Intake
from swell.engines.kubernetes.election.lease import LABELS, Lease
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.kubernetes.watch.budgets import Budget, parse_budget
from swell.engines.kubernetes.watch.observed_objects import KEPT_ANNOTATIONS, KEPT_LABELS
from swell.engines.kubernetes.watch.priority_classes import PriorityClasses
from swell.engines.kubernetes.watch.quotas import read_gpu_quota
from swell.engines.kubernetes.watch.unreadable import readable
from swell.engines.kubernetes.watch.warnings import Warnings
from swell.engines.logfolder import LogFolder
from swell.errors import SwellError
from swell.kubectl import StatusRecorder, StatusView
from swell.kubectl.adoption import Adopter
from swell.kubectl.group_sizes import GroupSize, GroupSizes
from swell.kubectl.placeholder_pods import PlaceholderPods
from swell.model.cluster import PriorityClass
from swell.model.job import JobId
from swell.model.quota import Quota
from swell.store import JobRecord, NewJob, open_store

Document = dict[str, Any]

# -- what there is ---------------------------------------------------------------------------------------------------

AT = "2026-01-01T00:00:00Z"
CONTAINER = {"name": "main", "image": "i", "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}
POD_SPEC = {"schedulerName": "swell", "restartPolicy": "Never", "containers": [CONTAINER]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": POD_SPEC}
ENDED = {"exitCode": 0, "reason": "Completed", "startedAt": AT, "finishedAt": AT, "message": "m"}
RAN = {
    "phase": "Succeeded",
    "conditions": [{"type": "PodScheduled", "status": "True", "reason": "r"}],
    "containerStatuses": [
        {"name": "main", "restartCount": 1, "state": {"terminated": ENDED}, "lastState": {"terminated": ENDED}}
    ],
}
VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}]
JOB_SPEC = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": TEMPLATE}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": AT, "reason": "r"}]}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT}
OFFER = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4", "pods": "110"}
HARD = {"requests.nvidia.com/gpu": "4"}
IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
#: Plural → API version, kind, and one as somebody would make it.
KINDS: dict[str, tuple[str, str, Document]] = {
    "pods": ("v1", "Pod", {"spec": {**POD_SPEC, "volumes": VOLUMES}, "status": {"phase": "Pending"}}),
    "nodes": (
        "v1",
        "Node",
        {
            "metadata": {"labels": {"nvidia.com/gpu.memory": "1000"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"conditions": [READY], "allocatable": OFFER, "addresses": [{"address": "a"}]},
        },
    ),
    "jobs": ("batch/v1", "Job", {"spec": JOB_SPEC, "status": FAILED}),
    "jobsets": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": JOB_SPEC}}]},
            "status": FAILED,
        },
    ),
    "pytorchjobs": (
        "kubeflow.org/v1",
        "PyTorchJob",
        {
            "spec": {
                "runPolicy": {"suspend": False},
                "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}},
            },
            "status": FAILED,
        },
    ),
    "mpijobs": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "spec": {
                "runPolicy": {"suspend": False},
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": TEMPLATE},
                    "Worker": {"replicas": 2, "template": TEMPLATE},
                },
            },
            "status": FAILED,
        },
    ),
    "namespaces": (
        "v1",
        "Namespace",
        {"metadata": {"deletionTimestamp": AT}, "spec": {}, "status": {"phase": "Terminating"}},
    ),
    "workloads": (
        "scheduling.k8s.io/v1alpha1",
        "Workload",
        {"spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 1}}}]}},
    ),
    "poddisruptionbudgets": (
        "policy/v1",
        "PodDisruptionBudget",
        {
            "spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [IN_ZONE]}},
            "status": {"disruptionsAllowed": 1},
        },
    ),
    "podgroups": ("scheduling.x-k8s.io/v1alpha1", "PodGroup", {"spec": {"minMember": 1}}),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass", {"value": 7}),
    "resourcequotas": ("v1", "ResourceQuota", {"spec": {"hard": HARD}, "status": {"hard": HARD, "used": HARD}}),
    "events": (
        "v1",
        "Event",
        {
            "type": "Warning",
            "reason": "r",
            "message": "m",
            "lastTimestamp": AT,
            "series": {"lastObservedTime": AT},
            "involvedObject": {"uid": "about"},
        },
    ),
    "leases": (
        "coordination.k8s.io/v1",
        "Lease",
        {"metadata": {"labels": dict(LABELS)}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}},
    ),
}
WITHOUT_NAMESPACE = ("nodes", "priorityclasses", "namespaces")
FOLLOWED = ("pods", "nodes", "jobs", "jobsets", "pytorchjobs", "mpijobs", "namespaces")
GOOD_POD: Document = {
    "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "group"}},
    "spec": POD_SPEC,
    "status": {"phase": "Pending"},
}

# -- what somebody makes of it ---------------------------------------------------------------------------------------

ODD_TEXTS = [
    *(
        "",
        "0.5",
        "500m",
        "-1",
        "1e999999999",
        "9" * 5000,
        "9" * 63,
        "0x10",
        "٣",
        "true",
        "swell",
        "NaN",
        "1.1",
        "../..",
    ),
    *("0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "2026-01-01", AT, '{"swell_attempt":', "a\0b", "0-999999999"),
]
ODD_VALUES = [-1, 0, 2**31 - 1, 2**63 - 1, 0.5, 1e300, True, None, [], {}, [None], [[]], {"": None}, {"a": {"b": []}}]
WORDS = st.sampled_from(ODD_TEXTS) | st.text(max_size=30)
JUNK = st.sampled_from([*ODD_TEXTS, *ODD_VALUES]) | st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    *KEPT_LABELS,
    *KEPT_ANNOTATIONS,
    "swell.dev/priority",
    "swell.dev/gpus",
    "swell.dev/time",
    "fluence.group-size",
]
STRINGS = st.dictionaries(st.sampled_from(NAMES), WORDS, max_size=4)
#: Where (counted over all places of a document), whether it is taken away, and what is put there instead.
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.booleans(), JUNK), max_size=4)


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everything below the metadata, which the API server writes itself but for labels and annotations."""
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inside:
        if path or key not in ("metadata", "apiVersion", "kind"):
            yield (*path, key)
            yield from places(value, (*path, key))


def changed(document: Document, changes: Sequence[tuple[int, bool, Any]]) -> Document:
    made = copy.deepcopy(document)
    for number, is_removed, junk in changes:
        found = list(places(made))
        if not found:
            break
        *above, last = found[number % len(found)]
        holder: Any = made
        for key in above:
            holder = holder[key]
        if is_removed:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(junk)
    return made


# -- everybody who looks ---------------------------------------------------------------------------------------------


class World:
    """A server's parts against an API server on loopback, each asked to look once, in the test's own thread."""

    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder / "token")
        self.server.kinds |= {
            "jobset.x-k8s.io/v1alpha2": {"jobsets": "JobSet"},
            "kubeflow.org/v1": {"pytorchjobs": "PyTorchJob"},
            "kubeflow.org/v2beta1": {"mpijobs": "MPIJob"},
            "scheduling.x-k8s.io/v1alpha1": {"podgroups": "PodGroup"},
            "scheduling.k8s.io/v1alpha1": {"workloads": "Workload"},
        }
        self.server.storage.create("nodes", ("", "n"), {"apiVersion": "v1", "kind": "Node", **KINDS["nodes"][2]})
        self.port = ApiClient(access_to(self.server), answer_s=5.0)
        self.clock = Clock()
        self.store = open_store(folder / "swell.db", self.clock)
        self.engine = KubernetesEngine(
            self.port,
            lambda wanted: {},
            LogKeeper(self.port, folder),
            LogFolder(folder),
            store=self.store.id,
            namespace="default",
            wake=lambda: None,
        )
        self.cluster = self.engine.cluster
        self.lease = Lease(self.port, "default", "swell", "us", monotonic=self.clock)
        self.intake = Intake(self.port, self.lease, monotonic=self.clock)
        self.priorities = PriorityClasses(self.port, self.clock)
        self.adopter = Adopter(
            self.port,
            self.cluster,
            self,
            lambda job: False,
            self.store.job,
            self.priorities.table,
            self.intake,
            self.store.id,
            lambda owner: UserLimits(),
            lambda owner: None,
            lambda namespace: True,
        )
        view = StatusView(
            self.port,
            self.cluster,
            self.store,
            self.adopter,
            lambda job: None,
            namespace="default",
            now=self.clock,
            monotonic=self.clock,
        )
        self.teller = StatusRecorder(view)
        self.stand_ins = PlaceholderPods(self.port, self.cluster, tuple, store=self.store.id, namespace="default")
        self.warnings = Warnings(self.port, self.clock)
        self.taken: set[str] = set()
        self.names = itertools.count()

    # -- the controller

    def take_in(
        self, jobs: Mapping[str, NewJob], known: Callable[[list[JobRecord | None]], None], *, origin: str, quota: Quota
    ) -> Future[list[JobRecord | None]]:
        accepted = self.store.accept_each(jobs, origin=origin, quota=quota)
        known(accepted.result())
        self.taken |= {key.split(":")[1] for key in jobs}
        return accepted

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str) -> Future[None]:
        return self.store.request_cancel(jobs, by=by, grace_s=grace_s, origin=origin)

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str) -> Future[None]:
        return self.cancel(jobs, by=by, grace_s=None, origin=origin)

    # -- one of everything

    def put(self, plural: str, document: Document) -> Document:
        api_version, kind, _ = KINDS[plural]
        at = "2027-01-01T00:00:00Z" if plural == "leases" else AT  # our own Lease is the oldest
        metadata = {"labels": {}, **document.get("metadata", {}), "creationTimestamp": at}
        named = {**document, "apiVersion": api_version, "kind": kind, "metadata": metadata}
        namespace = "" if plural in WITHOUT_NAMESPACE else "ml"
        return self.server.storage.create(plural, (namespace, f"x{next(self.names)}"), named)

    def remove(self, plural: str, document: Document) -> None:
        metadata = document["metadata"]
        self.server.storage.delete(plural, (metadata.get("namespace", ""), metadata["name"]), {})

    def shows(self, plural: str, document: Document) -> bool:
        metadata = document["metadata"]
        if plural == "pods":
            return bool(self.cluster.pods([metadata["uid"]]))
        if plural == "nodes":
            return metadata["name"] in self.cluster.nodes()
        if plural == "namespaces":
            return self.cluster.is_ending(metadata["name"])
        return self.cluster.object(document["kind"], "ml", metadata["name"]) is not None

    def look(self) -> None:
        """Everybody, twice: what is odd may only be met on the second look."""
        for _ in range(2):
            self.clock.time += 5.0
            self.lease.tick()
            self.intake.look()
            self.adopter._let_go_at = 0.0
            self.adopter.look()
            self.engine.observe()
            for channel in self.teller._channels:
                channel.look()
            while self.teller.tell():
                pass
            self.stand_ins.look()
            leftovers = Leftovers(
                self.port,
                self.cluster,
                self.store.id,
                self._is_over,
                lambda job: None,
                of_jobs=lambda: frozenset({"ml", "default"}),
            )
            leftovers.calls(lambda job: False, self.clock())

    def _is_over(self, job: JobId) -> bool:
        try:
            return self.store.job(job).state is None
        except SwellError:
            return True

    def handles(self, plural: str, good: Document) -> bool:
        """Is a normal one as it should be, for whoever reads its kind?"""
        metadata = good["metadata"]
        if plural == "nodes":
            return metadata["name"] in {node.id for node in self.engine.observe().nodes}
        if plural == "priorityclasses":
            return self.priorities.table().get(metadata["name"]) == PriorityClass(7)
        if plural == "resourcequotas":
            return read_gpu_quota(self.port, "ml") is not None
        if plural == "events":
            return any(one.message == "m" for one in self.warnings.about("about", "ml"))
        if plural == "leases":
            return any(one.name == metadata["name"] for one in self.intake._others)
        if plural == "workloads":
            names = {"name": metadata["name"], "podGroup": "workers"}
            return GroupSizes(self.port, self.clock).of({"spec": {"workloadRef": names}}, "ml", "g") == GroupSize(1)
        if plural == "poddisruptionbudgets":
            found = readable(self.port.list(Selection(BUDGETS, "ml")).items, parse_budget)
            return Budget(metadata["name"], "a=b,zone in (a)", 1) in found
        return plural not in FOLLOWED or self.shows(plural, good)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("odd"))
    assert made.cluster.start(PATIENCE_S) is None
    made.clock.time += 100.0
    made.lease.tick()
    made.intake.look()
    yield made
    made.cluster.stop()
    made.port.close()
    made.store.close()
    made.server.close()


@pytest.mark.parametrize("plural", KINDS)
@given(data=st.data())
@settings(max_examples=settings.default.max_examples // 2)  # each makes a dozen requests
def test_after_any_object_a_normal_one_of_its_kind_is_handled(plural: str, world: World, data: st.DataObject) -> None:
    document = KINDS[plural][2]
    if plural == "pods" and data.draw(st.booleans()):
        document = {**document, "spec": {**document["spec"], "nodeName": "n"}, "status": RAN}
    made = changed(document, data.draw(CHANGES))
    own = made.get("metadata", {}).get("labels", {})
    made["metadata"] = {
        "labels": {
            **own,
            **data.draw(STRINGS),
            **({"swell.dev/store": world.store.id} if data.draw(st.booleans()) else {}),
        },
        "annotations": data.draw(STRINGS),
    }
    there = [(plural, world.put(plural, made)), (plural, world.put(plural, KINDS[plural][2]))]
    there.append(("pods", world.put("pods", GOOD_POD)))
    (_, good), (_, waits) = there[1:]
    try:
        if plural in FOLLOWED:
            until(lambda: world.shows(plural, good), world.cluster.trouble)
        until(lambda: world.shows("pods", waits), world.cluster.trouble)
        world.look()
        assert world.handles(plural, good)
        assert world.cluster.trouble is None
        assert waits["metadata"]["uid"] in world.taken, "a pod that waits is taken in"
    finally:
        for kind, one in there:
            world.remove(kind, one)


def test_one_that_cannot_be_stored_is_refused_alone(world: World) -> None:
    """All that came in that moment were stored together, or none of them."""
    alone = {**GOOD_POD, "metadata": {}}
    uids = [world.put("pods", alone)["metadata"]["uid"] for _ in range(3)]
    until(lambda: len(world.cluster.pods(uids)) == 3)
    take_in = world.take_in

    def picky(jobs: Mapping[str, NewJob], *rest: Any, **named: Any) -> Future[list[JobRecord | None]]:
        if any(uids[1] in key for key in jobs):
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return take_in(jobs, *rest, **named)

    world.adopter._jobs = cast(Any, SimpleNamespace(take_in=picky, cancel=world.cancel, give_up=world.give_up))
    try:
        world.look()
    finally:
        world.adopter._jobs = world
    assert [uid in world.taken for uid in uids] == [True, False, True]
    [pod] = world.cluster.pods([uids[1]])
    said = "it cannot be stored: OverflowError: Python int too large to convert to SQLite INTEGER"
    assert (world.adopter.why_not(pod), world.adopter.is_refused(pod)) == (said, True)
