"""A ResourceQuota of the cluster: what it refuses for good, what only waits for it, and what `why` says of both."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.jobs import JOBS, ON_KWOK, PODS, PYTORCHJOBS, job, pod, pytorchjob
from cluster.starting import started
from onitscluster import module_server
from server import Result, Server
from swell.client.connection import path

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
GPUS = "requests.nvidia.com/gpu"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
ADVICE = (
    "it starts when quota 'team' of its namespace has enough left: see what uses it "
    "(kubectl describe resourcequota team -n NAMESPACE), ask for a larger quota, or request less"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster"), kwok=2, operators=("training",)) as cluster:
        limit(cluster, 2)
        yield cluster


server = module_server()


def limit(cluster: Cluster, gpus: int) -> None:
    """So many GPUs for the namespace, and wait until the quota counts."""
    spec = {"hard": {GPUS: str(gpus)}}
    cluster.api.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": spec})
    cluster.api.until(QUOTAS, lambda found: found["team"].get("status", {}).get("hard") == spec["hard"])


def submit(server: Server, *documents: Object) -> Result:
    return server.swell("submit", "-f", "-", stdin=yaml.safe_dump_all(documents))


def submitted(server: Server, *documents: Object) -> list[int]:
    done = submit(server, *documents)
    assert done.code == 0, done
    return [int(word) for word in done.stdout.split()]


def trouble(document: dict[str, Any]) -> str:
    reason = document["reason"]
    return "" if reason is None else str(reason["evidence"].get("trouble") or reason["evidence"].get("problem") or "")


@pytest.mark.parametrize(
    "document",
    [
        pod("greedy", "true", on=ON_KWOK, gpus=3),
        job("greedy", "true", count=2, on=ON_KWOK, gpus=3),
        pytorchjob("greedy", "true", "true", workers=1, on=ON_KWOK, gpus=3),
    ],
    ids=["Pod", "Job", "PyTorchJob"],
)
def test_one_that_a_quota_never_lets_in_is_refused_in_its_words_and_leaves_nothing(
    cluster: Cluster, server: Server, document: Object
) -> None:
    """Also one whose pods are made by a controller, which would be told of it, and not we."""
    refused = submit(server, document)
    assert (refused.code, refused.stdout) == (2, "")
    said = f"exceeded quota: team, requested: {GPUS}=3, used: {GPUS}=0, limited: {GPUS}=2"
    assert said in refused.stderr
    assert refused.stderr.endswith(
        "; the job is larger than the whole quota: request less, or ask for a larger quota\n"
    )
    assert server.jobs() == []
    assert [cluster.api.get(path)["items"] for path in (PODS, JOBS, PYTORCHJOBS)] == [[], [], []]


def test_what_a_full_quota_keeps_out_waits_says_so_and_starts_when_it_is_raised(
    cluster: Cluster, server: Server
) -> None:
    [first] = submitted(server, pod("first", "true", on=ON_KWOK, gpus=2))
    server.until(first, "running", patience_s=PATIENCE_S)
    torch = pytorchjob("torch", "true", "true", workers=1, on=ON_KWOK, gpus=1)
    kinds = {"array": "Job"}
    waiting = submitted(
        server, pod("later", "true", on=ON_KWOK, gpus=1), job("array", "true", count=3, on=ON_KWOK, gpus=1), torch
    )
    for one, asked in zip(waiting, (1, 1, 2), strict=True):  # of a gang none is made, and all are asked for at once
        full = f"exceeded quota: team, requested: {GPUS}={asked}, used: {GPUS}=2, limited: {GPUS}=2"
        found = server.until_true(one, lambda document, full=full: full in trouble(document), patience_s=PATIENCE_S)
        if found["name"] in kinds:
            made_by = f"{kinds[found['name']]} default/{found['name']} cannot make its pods: "
            assert (found["state"], trouble(found)[: len(made_by)]) == ("starting", made_by)
            assert found["reason"]["next"] == ADVICE
            assert ADVICE in server.swell("why", str(one)).stdout
        else:
            assert found["attempts"] > 0, "it was accepted, and refused when it started"

    limit(cluster, 16)
    for one in waiting:
        server.until(one, "running", patience_s=PATIENCE_S)


def test_genais_monitor_tells_what_the_quota_leaves(cluster: Cluster, server: Server) -> None:
    hard = cluster.api.get(f"{QUOTAS}/team")["status"]
    address = server.client().connection.json("POST", path("doors", "address"), {"name": "genai"})["address"]
    with urllib.request.urlopen(f"{address}/resourcequota/default", timeout=PATIENCE_S) as answer:
        assert json.load(answer) == {"limit": hard["hard"][GPUS], "used": hard["used"][GPUS]}


def test_a_range_that_came_by_kubectl_has_no_effect_and_that_is_said(cluster: Cluster, server: Server) -> None:
    document = pod("theirs", "true", on=ON_KWOK, gpus=1, annotations={"request": "1", "limit": "4", "replicas": "1"})
    document["spec"]["schedulerName"] = "swell"
    cluster.api.create(PODS, document)
    theirs = str(server.until_named("theirs", "running", patience_s=PATIENCE_S)["id"])
    note = (
        "it came by kubectl as a Pod, which Swell cannot resize: it runs at 1, and the range 1..4 "
        "has no effect; to have it resized, delete it with kubectl and submit it with `swell submit -f`"
    )
    assert server.swell("why", theirs).stdout == f"job {theirs} (theirs) is running.\n  note: {note}\n"
    assert f"note: {note}\n" in server.swell("show", theirs).stdout
    refused = server.swell("scale", theirs, "4")
    words = f"swell: width 4 is outside job {theirs}'s range, 1..1; {note}\n"
    assert (refused.code, refused.stderr) == (2, words)
