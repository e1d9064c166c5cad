"""Who says that pods start together, and how many: by label, by LeaderWorkerSet, by Kubernetes' own API.

The API server of the tests answers what Kubernetes 1.35 and 1.36 document; no such cluster was at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.conftest import access_to
from engines.kubernetes.pieces import make_pod
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.resources import NotServed, Resource
from swell.engines.kubernetes.objects.pod_group_name import LWS_GROUP, LWS_NAME, LWS_SIZE, group_name
from swell.kubectl.group_sizes import GROUP_API, SIZE_MAX, GroupSize, GroupSizes
from swell.kubectl.pod_groups import group_of
from swell.manifests import Context, read_document
from swell.model.placement_fields import POD_GROUP

WORKLOADS = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
OF_COSCHEDULING = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
OF_LWS = {LWS_NAME: "serve", LWS_GROUP: "2"}
OF_TRAIN = {"name": "train", "podGroup": "workers"}


class World:
    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder / "token")
        self.port = ApiClient(access_to(self.server), answer_s=5.0)
        self.now = 1000.0
        self.sizes = GroupSizes(self.port, lambda: self.now)

    def add(self, resource: Resource, name: str, **spec: Any) -> None:
        self.server.kinds[resource.api_version] = {resource.plural: resource.kind}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        self.port.create(resource, {**body, "metadata": {"name": name, "namespace": "team"}}, "team")

    def size(self, *, labels: Any = None, annotations: Any = None, **spec: Any) -> GroupSize:
        metadata = {"labels": labels or {}, "annotations": annotations or {}}
        pod = {"metadata": metadata, "spec": spec}
        return self.sizes.of(pod, "team", group_name(metadata["labels"], spec))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.port.close()
    made.server.close()


@pytest.mark.parametrize(
    ("labels", "spec", "name"),
    [
        ({}, {}, ""),
        ({POD_GROUP: "gang"}, {}, "gang"),
        ({POD_GROUP: "gang", **OF_LWS}, {}, "gang"),
        (OF_LWS, {}, "serve-2"),
        ({LWS_NAME: "serve"}, {}, ""),
        ({}, {"workloadRef": OF_TRAIN}, "train.workers"),
        ({}, {"workloadRef": {**OF_TRAIN, "podGroupReplicaKey": "0"}}, "train.workers.0"),
        ({}, {"schedulingGroup": {"podGroupName": "train-0"}}, "train-0"),
        ({}, {"schedulingGroup": {}}, ""),
    ],
)
def test_a_pod_says_which_group_it_is_of(labels, spec, name):
    assert group_name(labels, spec) == name


def test_pods_of_a_group_are_one_group_whoever_names_it():
    pod = make_pod(0, owner=None, labels={}, named_group="train.workers")
    assert (group_of(pod).kind, group_of(pod).name) == ("PodGroup", "train.workers")


def test_a_workload_of_1_35_says_how_many_of_its_group_start_together(world: World) -> None:
    groups = [{"name": "driver", "policy": {"basic": {}}}, {"name": "workers", "policy": {"gang": {"minCount": 4}}}]
    world.add(WORKLOADS, "train", podGroups=groups)
    for key in ({}, {"podGroupReplicaKey": "1"}):
        assert world.size(workloadRef={**OF_TRAIN, **key}) == GroupSize(4)
    assert world.size(workloadRef={"name": "train", "podGroup": "driver"}) == GroupSize(1)


def test_a_pod_group_of_1_36_says_how_many_start_together(world: World) -> None:
    world.add(GROUPS, "train-0", schedulingPolicy={"gang": {"minCount": 2}})
    world.add(GROUPS, "free", schedulingPolicy={"basic": {}})
    assert world.size(schedulingGroup={"podGroupName": "train-0"}) == GroupSize(2)
    assert world.size(schedulingGroup={"podGroupName": "free"}) == GroupSize(1)


def test_pods_wait_for_a_workload_that_is_not_there_yet_and_find_it_later(world: World) -> None:
    missing = GroupSize(None, "Workload 'train.workers', which its pods name, is not there yet")
    assert world.size(workloadRef=OF_TRAIN) == missing
    world.add(WORKLOADS, "train", podGroups=[{"name": "workers", "policy": {"gang": {"minCount": 3}}}])
    world.now += 1.0
    assert world.size(workloadRef=OF_TRAIN) == GroupSize(3)


def test_one_that_cannot_be_read_keeps_no_other_from_being_read(world: World) -> None:
    world.add(WORKLOADS, "odd", podGroups=[{"policy": 5}])
    world.add(WORKLOADS, "train", podGroups=[{"name": "workers", "policy": {"gang": {"minCount": 3}}}])
    assert world.size(workloadRef=OF_TRAIN) == GroupSize(3)


def test_a_leader_and_its_workers_start_together(world: World) -> None:
    assert world.size(labels=OF_LWS, annotations={LWS_SIZE: "4"}) == GroupSize(4)


def test_coscheduling_says_it_by_an_object_and_fluence_on_the_pod(world: World) -> None:
    world.add(OF_COSCHEDULING, "gang", minMember=3)
    assert OF_COSCHEDULING.api_version == GROUP_API
    assert world.size(labels={POD_GROUP: "gang"}) == GroupSize(3)
    assert world.size(labels={POD_GROUP: "gang", "fluence.group-size": "5"}) == GroupSize(5)
    assert world.size(labels={POD_GROUP: "other"}) == GroupSize(None)


class Nobody:
    def resource(self, *_: object) -> object:
        raise NotServed("nothing")


@given(st.text(max_size=12), st.sampled_from(["fluence.group-size", LWS_SIZE]))
def test_whatever_is_written_for_a_size_is_one_or_says_nothing(text: str, name: str) -> None:
    written = {name: text}
    sizes = GroupSizes(Nobody())  # type: ignore[arg-type]
    found = sizes.of({"metadata": {"labels": written, "annotations": written}}, "team", "gang").size
    assert found is None or 1 <= found <= SIZE_MAX


def test_a_job_whose_pods_name_a_workload_is_a_gang() -> None:
    spec = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never", "workloadRef": OF_TRAIN}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    job = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "template": {"spec": spec}}
    read = read_document({**document, "spec": job}, Context(workdir="/", on_cluster=True))
    assert (read.array, read.tasks_total, read.pod_group) == (None, 4, "workers")
