"""An object that cannot be read is its user's alone: the others of its kind go on, and it is read when it changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.documents import DEPTH_MAX, parse_json
from swell.engines.kubernetes.objects.amounts import quantity
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.mirror import Mirror, WatchChange
from swell.engines.kubernetes.watch.unreadable import Unreadable, describe, readable
from swell.errors import Rejected
from swell.model.kubernetes_quantity import ONE

from .apiserver import ApiServer
from .keeping import PATIENCE_S, until

Document = dict[str, Any]
OPERATORS = {"jobset.x-k8s.io/v1alpha2": {"jobsets": "JobSet"}, "kubeflow.org/v1": {"pytorchjobs": "PyTorchJob"}}


def template(gpus: str, scheduler: str = "swell") -> Document:
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"spec": {"schedulerName": scheduler, "containers": [container]}}


def pytorchjob(gpus: str, scheduler: str = "swell") -> Document:
    worker = {"replicas": 1, "template": template(gpus, scheduler)}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}


def jobset(gpus: str) -> Document:
    entry = {"name": "w", "replicas": 1, "template": {"spec": {"template": template(gpus)}}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [entry]}}


NO_GPUS = "nvidia.com/gpu: '0.5' is not a whole number of GPUs, and no pod can be made with it; write nvidia.com/gpu: 1"
#: Plural, what somebody in any namespace has created, and why it cannot be read (None: it can).
INCIDENTS = {
    "half a GPU": ("pytorchjobs", pytorchjob("0.5"), NO_GPUS),
    "half a GPU, in thousandths": ("jobsets", jobset("500m"), NO_GPUS.replace("0.5", "500m")),
    "half a GPU for another scheduler": ("pytorchjobs", pytorchjob("0.5", "default-scheduler"), NO_GPUS),
    "JobSet's own sample": ("jobsets", {"kind": "JobSet"}, None),
    "a JobSet without Jobs": ("jobsets", {"kind": "JobSet", "spec": {}}, None),
    "a PyTorchJob without pods": ("pytorchjobs", {"kind": "PyTorchJob"}, None),
    "more GPUs than atoms": ("pytorchjobs", pytorchjob("1e999999999"), None),
}


@pytest.fixture
def cluster(server: ApiServer, port: ApiClient) -> Iterator[Cluster]:
    server.kinds |= OPERATORS
    made = Cluster(port, lambda *_: None)
    yield made
    made.stop()


@pytest.mark.parametrize("what", INCIDENTS)
def test_one_that_was_there_before_does_not_keep_the_cluster_from_being_followed(
    what: str, server: ApiServer, cluster: Cluster
) -> None:
    """A server was started again, and never became ready."""
    plural, document, problem = INCIDENTS[what]
    server.storage.create(plural, ("elsewhere", "odd"), document)
    good = server.storage.create(plural, ("ml", "good"), jobset("1") if plural == "jobsets" else pytorchjob("1"))
    assert cluster.start(PATIENCE_S) is None
    assert cluster.trouble is None
    assert cluster.object(good["kind"], "ml", "good") is not None
    assert [one.problem for one in cluster.unreadable()] == ([] if problem is None else [problem])


@pytest.mark.parametrize("what", INCIDENTS)
def test_one_that_comes_later_is_told_and_the_next_of_its_kind_is_seen(
    what: str, server: ApiServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The reflector of its kind ended, for everybody."""
    plural, document, problem = INCIDENTS[what]
    assert cluster.start(PATIENCE_S) is None
    odd = server.storage.create(plural, ("elsewhere", "odd"), document)
    good = server.storage.create(plural, ("ml", "good"), jobset("1") if plural == "jobsets" else pytorchjob("1"))
    until(lambda: cluster.object(good["kind"], "ml", "good") is not None)
    is_for_us = "default-scheduler" not in str(document)
    told = Unreadable(document["kind"], "elsewhere", "odd", odd["metadata"]["uid"], problem or "", is_for_us)
    assert cluster.unreadable() == ([] if problem is None else [told])
    assert (cluster.trouble, caplog.messages.count(str(told))) == (None, 0 if problem is None else 1)


def test_it_is_read_again_when_it_changes_and_forgotten_when_it_is_gone(
    server: ApiServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    server.storage.create("pytorchjobs", ("ml", "odd"), pytorchjob("0.5"))
    assert cluster.start(PATIENCE_S) is None
    server.storage.update("pytorchjobs", ("ml", "odd"), pytorchjob("0.25") | {"metadata": named("odd")})
    until(lambda: ["0.25" in one.problem for one in cluster.unreadable()] == [True])
    server.storage.update("pytorchjobs", ("ml", "odd"), pytorchjob("1") | {"metadata": named("odd")})
    until(lambda: cluster.object("PyTorchJob", "ml", "odd") is not None)
    assert cluster.unreadable() == []
    server.storage.update("pytorchjobs", ("ml", "odd"), pytorchjob("0.5") | {"metadata": named("odd")})
    until(lambda: len(cluster.unreadable()) == 1)
    assert cluster.object("PyTorchJob", "ml", "odd") is not None, "what it held when it could be read, it still holds"
    server.storage.delete("pytorchjobs", ("ml", "odd"), {})
    until(lambda: cluster.object("PyTorchJob", "ml", "odd") is None)
    assert cluster.unreadable() == []
    assert sum("cannot be read" in message for message in caplog.messages) == 2, "once, and once after it was well"


def named(name: str) -> Document:
    return {"name": name, "namespace": "ml", "creationTimestamp": "2026-11-16T12:00:00Z"}


def test_a_field_that_is_missing_is_named_in_words() -> None:
    """The Event on it said KeyError."""
    metadata = {"namespace": "ml", "name": "odd", "uid": "u"}
    told = describe({"kind": "JobSet", "metadata": metadata}, KeyError("spec"))
    assert str(told) == "JobSet ml/odd cannot be read and is left out until it changes: it has no field 'spec'"


# -- the mirror ------------------------------------------------------------------------------------------------------


def one(version: int, uid: str, value: int | str) -> Document:
    metadata = {"namespace": "a", "name": "x", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "Thing", "metadata": metadata, "value": value}


def line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode()


def test_what_could_be_read_before_stays_as_it_was_unless_it_is_another_object() -> None:
    """Room of a pod must not be given away because its status has become odd."""
    key = ("a", "x")
    mirror: Mirror[int] = Mirror(lambda document: int(document["value"]))
    mirror.replace(mirror.gather("1", [[one(1, "u", 5)]]))
    assert mirror.apply(line("MODIFIED", one(2, "u", "odd"))) is None
    assert (dict(mirror.snapshot()), set(mirror.unreadable)) == ({key: 5}, {key})
    assert mirror.apply(line("MODIFIED", one(3, "v", "odd"))) == WatchChange(key, 5, None)
    assert (dict(mirror.snapshot()), mirror.unreadable[key].uid) == ({}, "v")
    assert mirror.apply(line("MODIFIED", one(3, "v", "odd"))) is None, "told again, nothing is new"
    assert mirror.apply(line("DELETED", one(4, "v", "odd"))) is None
    assert (dict(mirror.unreadable), mirror.version) == ({}, "4")


def test_a_list_says_the_same_as_the_watch_would() -> None:
    key = ("a", "x")
    mirror: Mirror[int] = Mirror(lambda document: int(document["value"]))
    mirror.replace(mirror.gather("1", [[one(1, "u", 5)]]))
    assert mirror.replace(mirror.gather("2", [[one(2, "u", "odd")]])) == ()
    assert (dict(mirror.snapshot()), set(mirror.unreadable)) == ({key: 5}, {key})
    assert mirror.replace(mirror.gather("2", [[one(2, "u", "odd")]])) == ()
    assert mirror.replace(mirror.gather("3", [[one(3, "v", "odd")]])) == (WatchChange(key, 5, None),)
    assert mirror.replace(mirror.gather("4", [[one(4, "v", 6)]])) == (WatchChange(key, None, 6),)
    assert (dict(mirror.snapshot()), dict(mirror.unreadable)) == ({key: 6}, {})


def test_of_a_list_what_cannot_be_read_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    found = [one(number, f"u{number}", value) for number, value in enumerate([1, "odd one", 3])]
    for _ in range(2):
        assert readable(found, lambda document: int(document["value"])) == [1, 3]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_what_an_error_quotes_is_bounded_and_our_own_sentences_are_told_as_they_are() -> None:
    long = describe(one(1, "u", ""), ValueError("x" * 10_000))
    assert (len(long.problem), long.problem[:20]) == (502, "ValueError: xxxxxxxx")
    assert describe(one(1, "u", ""), Rejected("write 1")).problem == "write 1"


# -- texts that somebody has made to hurt ---------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [DEPTH_MAX - 1, 300, 9_999])
def test_an_object_that_is_nested_ten_thousand_levels_deep_is_read_as_far_as_we_go(depth: int) -> None:
    """The API server takes such managedFields; a whole page of pods could not be read then."""
    deep = b'{"f:a": [' * (depth // 2) + b'"]}"' + b"]}" * (depth // 2)
    text = b'{"metadata": {"name": "a\\"[[", "managedFields": [%s], "uid": "u"}, "kind": "Pod"}' % deep
    found = parse_json(text)
    assert (found["metadata"]["name"], found["metadata"]["uid"], found["kind"]) == ('a"[[', "u", "Pod")


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 300, b'{"a": ' * 300 + b"}", b"nonsense", b'{"a": "' + b"[" * 300])
def test_what_is_no_json_is_still_none(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1 column"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1e999999999", (2**63 - 1) * ONE),
        ("1e" + "9" * 90, (2**63 - 1) * ONE),
        ("-1e99", -(2**63 - 1) * ONE),
        ("9" * 1_000_000, 0),
        ("1e-999999999", 1),
        ("1.1.1", 0),
        (".", 0),
        ("1e3", 1000 * ONE),
        ("5.", 5 * ONE),
    ],
)
def test_an_amount_that_no_machine_has_costs_no_time_and_no_memory(text: str, amount: int) -> None:
    assert quantity(text) == amount
