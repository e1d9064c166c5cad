"""Swell as a pod on a real kubelet, under Pod Security "restricted": it becomes ready and keeps what it was told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from cluster.binaries import BUILD, missing
from cluster.cluster import Cluster, programs

from .chart import VARIANTS, Document
from .installed import Installed

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: The image's own; one of a range that OpenShift would give a namespace.
UIDS = {"as it is": 10001, "openshift": 1_000_660_000}
#: Asked from within the pod: without a token, by the name of a Service.
ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
connection.request("GET", sys.argv[2], headers={"Host": sys.argv[3]})
print(connection.getresponse().status)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if absent := missing(programs(kwok=0, kubelets=1, operators=())):
        pytest.fail(f"the test cluster's programs are not built yet ({len(absent)} are missing); run: {BUILD}")
    with Cluster(tmp_path_factory.mktemp("installed"), kubelets=1, images=("swell",)) as made:
        yield made


@pytest.fixture(scope="module", params=UIDS)
def installed(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Installed]:
    made = Installed(cluster, values(VARIANTS[request.param]), uid=UIDS[request.param])
    try:
        made.install()
        yield made
    finally:
        made.remove()
        shutil.rmtree(made.volume)


def values(variant: Document) -> Document:
    """Doors act as the server's own user here: who is in the cluster is not asked without its engine."""
    small = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}}
    return {**variant, **small, "doors": {"enabled": True, "user": "swell"}}


def test_it_runs_as_nobody_in_particular_and_keeps_its_jobs_when_its_pod_is_replaced(installed: Installed) -> None:
    assert installed.inside("id", "-u").strip() == str(installed.uid)
    assert json.loads(installed.inside("swell", "ps", "-o", "json")) == []
    job = installed.inside("swell", "run", "-d", "--gpus", "99", "--", "true").strip()
    token = installed.inside("cat", "/var/lib/swell/token")

    installed.replace_pod()

    assert [str(one["id"]) for one in json.loads(installed.inside("swell", "ps", "-o", "json"))] == [job]
    assert installed.inside("cat", "/var/lib/swell/token") == token


def test_it_answers_to_the_names_of_its_services(installed: Installed) -> None:
    expected = {
        ("8080", "/api/v1/jobs", "swell.swell.svc:8080"): 401,
        ("8080", "/api/v1/jobs", "evil.example:8080"): 403,
        ("8080", "/readyz", installed.pod()["status"]["podIP"]): 200,
        ("8000", "/get_all_jobs", "genai-workload-manager-service:8000"): 200,
        ("6000", "/freegpu", "monitor.swell.svc.cluster.local:6000"): 200,
        ("5000", "/get_all_jobs", "job-metadata-manager.swell:5000"): 200,
        ("5000", "/get_all_jobs", "monitor:5000"): 403,
    }
    found = {asked: int(installed.inside("python", "-c", ASK, *asked)) for asked in expected}
    assert found == expected
