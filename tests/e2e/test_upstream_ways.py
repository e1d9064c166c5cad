"""What of the samples that others publish runs, as they are by `swell submit -f`, and by kubectl with our scheduler.

docs/kubernetes.md has the table. The files are those of the pinned modules; their images are not pulled, because the
nodes are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api import Refused
from cluster.cluster import Cluster
from cluster.starting import module_cluster
from manifests.test_upstream_samples import JOBSET, TRAINING, module
from onitscluster import module_server
from server import Server

from .written_samples import WRITTEN

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_S = 90.0  # a CronJob begins with the next minute
KUBERNETES = "kubelet"  # of the programs of its module
RUNS = "runs"
GUIDE = "test/fixtures/doc-yaml/user-guide"
NOT_SUBMITTED = "is not submitted"
#: module, file → what becomes of it by `swell submit`, and by kubectl: it runs, or part of the refusal
WAYS: dict[tuple[str, str], tuple[str, str]] = {
    (TRAINING, "examples/pytorch/simple.yaml"): (RUNS, RUNS),
    (TRAINING, "examples/pytorch/cpu-demo/demo.yaml"): (RUNS, RUNS),
    (TRAINING, "examples/pytorch/deepspeed-demo/pytorch_deepspeed_demo.yaml"): (RUNS, RUNS),
    (TRAINING, "examples/pytorch/elastic/echo/echo.yaml"): (RUNS, RUNS),
    (TRAINING, "examples/pytorch/elastic/imagenet/imagenet.yaml"): (RUNS, RUNS),
    (JOBSET, "config/samples/batch_v1alpha2_jobset.yaml"): ("spec must be a mapping", "nothing to run"),
    (KUBERNETES, f"{GUIDE}/pod.yaml"): (RUNS, RUNS),
    (KUBERNETES, f"{GUIDE}/multi-pod.yaml"): (RUNS, RUNS),
    (KUBERNETES, f"{GUIDE}/secrets/secret-env-pod.yaml"): (RUNS, RUNS),
    (KUBERNETES, f"{GUIDE}/job.yaml"): (RUNS, RUNS),
    (KUBERNETES, f"{GUIDE}/deployment.yaml"): (NOT_SUBMITTED, RUNS),
    (KUBERNETES, f"{GUIDE}/replicaset/redis-slave.yaml"): (NOT_SUBMITTED, RUNS),
    (KUBERNETES, "test/fixtures/doc-yaml/admin/limitrange/valid-pod.yaml"): (RUNS, RUNS),
}
OWN = "written"  # after the documentation
for _name in WRITTEN:
    WAYS[OWN, _name] = (NOT_SUBMITTED if _name in ("a CronJob", "a StatefulSet whose pods are a group") else RUNS, RUNS)
PATHS = {
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
}
Document = dict[str, Any]

cluster = module_cluster(kwok=3, operators=("jobset", "training"))
server = module_server()


def text_of(key: tuple[str, str]) -> str:
    return WRITTEN[key[1]] if key[0] == OWN else (module(key[0]) / key[1]).read_text()


def in_namespace(text: str, namespace: str) -> list[Document]:
    documents = [one for one in yaml.safe_load_all(text) if one]
    for one in documents:
        one["metadata"]["namespace"] = namespace
    return documents


def templates(value: Any) -> Iterator[Document]:
    """Everything that looks like the specification of a pod."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for one in value.values():
            yield from templates(one)
    elif isinstance(value, list):
        for one in value:
            yield from templates(one)


def placed(pods: dict[str, Document]) -> bool:
    return bool(pods) and all("nodeName" in one["spec"] for one in pods.values())


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of its own: the samples share names, and what they make goes with it."""
    name = f"way-{abs(hash(request.node.name)) % 10**8}"
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.api.create("/api/v1/namespaces", document)
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}")
    cluster.api.until(f"/api/v1/namespaces/{name}/pods", lambda pods: not pods, patience_s=PATIENCE_S)


@pytest.mark.parametrize("key", WAYS, ids=lambda key: Path(key[1]).name)
def test_what_becomes_of_it_by_swell_submit(
    key: tuple[str, str], cluster: Cluster, server: Server, namespace: str
) -> None:
    expected = WAYS[key][0]
    text = yaml.safe_dump_all(in_namespace(text_of(key), namespace))
    done = server.swell("submit", "-f", "-", stdin=text)
    if expected != RUNS:
        assert (done.code != 0, expected in done.stderr) == (True, True), done
        return
    assert done.code == 0, done
    for number in done.stdout.split():
        server.until(int(number), "running", patience_s=PATIENCE_S)
    cluster.api.until(f"/api/v1/namespaces/{namespace}/pods", placed, patience_s=PATIENCE_S)


@pytest.mark.parametrize("key", WAYS, ids=lambda key: Path(key[1]).name)
def test_what_becomes_of_it_by_kubectl(key: tuple[str, str], cluster: Cluster, server: Server, namespace: str) -> None:
    for document in in_namespace(text_of(key), namespace):
        for spec in templates(document):
            spec["schedulerName"] = "swell"
        try:
            cluster.api.create(PATHS[document["kind"]].format(namespace), document)
        except Refused as refused:
            assert WAYS[key][1] in str(refused)  # noqa: PT017  what the API server itself says
            return
    if WAYS[key][1] != RUNS:
        assert cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []
        return
    cluster.api.until(f"/api/v1/namespaces/{namespace}/pods", placed, patience_s=PATIENCE_S)
    assert any(job["user"] == namespace and job["state"] == "running" for job in server.jobs())
