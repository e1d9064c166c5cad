"""What any user with `create` in one namespace may do by accident, on a real control plane: everybody else goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.api import Refused
from cluster.cluster import Cluster
from cluster.jobs import JOBS, JOBSETS, ON_KWOK, PODS, PYTORCHJOBS, job, jobset, pod, pytorchjob
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

from .test_kubectl import ours

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
SHORT = {"sim/run-for": "1s"}
EVENTS = "/api/v1/namespaces/default/events"
Document = dict[str, Any]
PATHS = {"Pod": PODS, "Job": JOBS, "JobSet": JOBSETS, "PyTorchJob": PYTORCHJOBS}

cluster = module_cluster(kwok=2, operators=("jobset", "training"))  # each node has eight GPUs
server = module_server()


@pytest.fixture(autouse=True)
def clean(cluster: Cluster, server: Server) -> Iterator[None]:
    yield
    for path in (PYTORCHJOBS, JOBSETS, JOBS, PODS):
        for one in cluster.api.get(path)["items"]:
            with contextlib.suppress(Refused):
                cluster.api.delete(
                    f"{path}/{one['metadata']['name']}?propagationPolicy=Background&gracePeriodSeconds=0"
                )
    cluster.api.until(PODS, lambda pods: not pods)


def made(kind: str, name: str, *, gpus: int = 4, **options: Any) -> Document:
    """Two pods with so many GPUs each; of a Pod one."""
    made_by = {
        "Pod": lambda: pod(name, "true", on=ON_KWOK, gpus=gpus, **options),
        "Job": lambda: job(name, "true", count=2, on=ON_KWOK, gpus=gpus, **options),
        "JobSet": lambda: jobset(name, "true", count=2, on=ON_KWOK, gpus=gpus, **options),
        "PyTorchJob": lambda: pytorchjob(name, "true", "true", workers=1, on=ON_KWOK, gpus=gpus, **options),
    }
    return made_by[kind]()


def named(server: Server, name: str, *states: str) -> Document:
    return server.until_named(name, *states, patience_s=PATIENCE_S)


# -- objects that cannot be read ---------------------------------------------------------------------------------------


def with_gpus(document: Document, amount: str) -> Document:
    text = yaml.safe_dump(document).replace("nvidia.com/gpu: '1'", f"nvidia.com/gpu: '{amount}'")
    found: Document = yaml.safe_load(text)
    assert amount in text
    return found


def deep(levels: int) -> Document:
    fields: Document = {}
    for _ in range(levels):
        fields = {"f:spec": fields}
    entry = {"manager": "odd", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    document = pod("deep", "true", on={"nowhere": "here"})
    document["metadata"]["managedFields"] = [entry]
    return document


def odd_objects() -> list[tuple[str, Document]]:
    empty = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "sample"}}
    return [
        (PYTORCHJOBS, with_gpus(ours(made("PyTorchJob", "half", gpus=1)), "0.5")),
        (PYTORCHJOBS, with_gpus(made("PyTorchJob", "half-theirs", gpus=1), "0.5")),
        (PYTORCHJOBS, with_gpus(made("PyTorchJob", "huge", gpus=1), "1e999999999")),
        (JOBSETS, with_gpus(ours(made("JobSet", "thousandths", gpus=1)), "500m")),
        (JOBSETS, empty),
        (JOBSETS, {**empty, "metadata": {"name": "sample-too"}, "spec": {}}),
        (PODS, deep(250)),
    ]


def runs_everything(cluster: Cluster, server: Server, suffix: str) -> None:
    for kind, path in PATHS.items():
        cluster.api.create(path, ours(made(kind, f"{kind.lower()}-{suffix}", gpus=1, annotations=SHORT)))
    for kind in PATHS:
        named(server, f"{kind.lower()}-{suffix}", "succeeded")


def test_objects_that_cannot_be_read_stop_nobody_and_a_server_that_starts_becomes_ready(
    cluster: Cluster, server: Server
) -> None:
    """Each ended the reflector of its kind for everybody; after a restart the server never became ready."""
    cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    accepted = []
    for path, document in odd_objects():
        with contextlib.suppress(Refused):  # an operator's webhook may be stricter than its schema
            cluster.api.create(path.replace("/default/", "/elsewhere/"), document)
            accepted.append(document["metadata"]["name"])
    assert {"half", "half-theirs", "deep"} <= set(accepted), accepted
    runs_everything(cluster, server, "before")
    events = cluster.api.until(EVENTS.replace("/default/", "/elsewhere/"), lambda found: unreadable(found) >= {"half"})
    assert "half-theirs" not in unreadable(events)
    server.kill()
    server.up()
    runs_everything(cluster, server, "after")
    assert "PyTorchJob elsewhere/half" in named_by_doctor(server)
    whole = ours(made("PyTorchJob", "half", gpus=1))["spec"]["pytorchReplicaSpecs"]
    cluster.api.patch(
        f"{PYTORCHJOBS.replace('/default/', '/elsewhere/')}/half", {"spec": {"pytorchReplicaSpecs": whole}}
    )
    named(server, "half", "running")
    assert "PyTorchJob elsewhere/half" not in named_by_doctor(server)
    cluster.api.kubectl("delete", "namespace", "elsewhere", "--wait=false")


def named_by_doctor(server: Server) -> set[str]:
    """Kind, namespace and name of what cannot be read."""
    found = [one["text"] for one in server.swell("doctor", "-o", "json").json if one["topic"] == "object"]
    return {text.partition(" cannot be read")[0] for text in found}


def unreadable(events: dict[str, Document]) -> set[str]:
    return {one["involvedObject"]["name"] for one in events.values() if one["reason"] == "Unreadable"}


# -- objects that are deleted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(
    "words", [("--cascade=background",), ("--cascade=foreground",), ("--grace-period=0", "--force")], ids=" ".join
)
def test_gpus_of_what_was_deleted_with_kubectl_are_free_and_its_job_says_so(
    kind: str, words: tuple[str, ...], cluster: Cluster, server: Server
) -> None:
    """A JobSet held its GPUs until somebody cancelled its job, five of five times."""
    name = f"gone-{kind.lower()}-{len(words)}{words[0][10:14]}"
    cluster.api.create(PATHS[kind], ours(made(kind, name, gpus=8)))
    named(server, name, "running")
    cluster.api.kubectl("delete", kind.lower(), name, "--wait=false", *words)
    ended = named(server, name, "cancelled")
    assert ended["reason"]["code"] == "ObjectDeleted", ended
    cluster.api.create(JOBSETS, ours(made("JobSet", f"next-{name}", gpus=8, annotations=SHORT)))
    named(server, f"next-{name}", "succeeded")


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob"])
def test_pods_that_were_kept_run_on_and_their_room_is_taken(kind: str, cluster: Cluster, server: Server) -> None:
    name = f"kept-{kind.lower()}"
    cluster.api.create(PATHS[kind], ours(made(kind, name, gpus=8)))
    named(server, name, "running")
    before = {one["metadata"]["uid"] for one in cluster.api.get(PODS)["items"]}
    cluster.api.kubectl("delete", kind.lower(), name, "--cascade=orphan")
    assert named(server, name, "cancelled")["reason"]["code"] == "ObjectDeleted"
    cluster.api.create(PODS, ours(pod(f"waits-{kind.lower()}", "true", on=ON_KWOK, gpus=1, annotations=SHORT)))
    named(server, f"waits-{kind.lower()}", "queued")
    there = [one for one in cluster.api.get(PODS)["items"] if one["metadata"]["uid"] in before]
    assert [one["status"]["phase"] for one in there] == ["Running"] * 2
    if kind == "JobSet":
        cluster.api.kubectl("delete", "job", "--all")
    for one in there if kind != "JobSet" else ():
        cluster.api.delete(f"{PODS}/{one['metadata']['name']}")
    named(server, f"waits-{kind.lower()}", "succeeded")


# -- names, and how urgent something is --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PATHS)
def test_a_name_that_is_taken_is_refused_and_free_again_when_its_job_has_ended(
    kind: str, cluster: Cluster, server: Server
) -> None:
    """The second of two was renamed in silence, and its MASTER_ADDR named the first."""
    name = f"twice-{kind.lower()}"
    text = yaml.safe_dump(made(kind, name, gpus=8))
    first = server.swell("submit", "-f", "-", stdin=text).id
    again = server.swell("submit", "-f", "-", stdin=text)
    assert f'"{name}" already exists in namespace "default" as job {first}; ' in again.stderr
    server.until(first, "running", patience_s=PATIENCE_S)
    assert server.swell("submit", "-f", "-", stdin=text).code == again.code != 0
    assert [one["metadata"]["name"] for one in cluster.api.get(PATHS[kind])["items"]] == [name]
    server.swell("cancel", str(first))
    server.until(first, "cancelled", patience_s=PATIENCE_S)
    second = server.swell("submit", "-f", "-", stdin=text).id
    server.until(second, "running", patience_s=PATIENCE_S)
    [there] = cluster.api.get(PATHS[kind])["items"]
    assert (there["metadata"]["name"], there["metadata"]["labels"]["swell.dev/job"]) == (name, str(second))
    server.swell("cancel", str(second))
    server.until(second, "cancelled", patience_s=PATIENCE_S)


def test_a_priority_by_kubectl_counts_up_to_the_limit_and_says_so(cluster: Cluster, server: Server) -> None:
    document = ours(pod("urgent", "true", on=ON_KWOK, gpus=1, annotations={"swell.dev/priority": "1000000"}))
    cluster.api.create(PODS, document)
    number = named(server, "urgent", "running")["id"]
    assert server.client().job(number).document["priority"] == 0
    events = cluster.api.until(
        EVENTS, lambda found: any(one["reason"] == "Noted" for one in found.values()), patience_s=PATIENCE_S
    )
    [said] = [one["message"] for one in events.values() if one["reason"] == "Noted"]
    assert said.startswith("swell.dev/priority asks for 1000000, but the highest that namespace 'default' may ask for")
