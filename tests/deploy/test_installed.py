"""Swell as a pod on a real kubelet, under Pod Security "restricted": it becomes ready and keeps what it was told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.api import Api
from cluster.binaries import program
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.starting import module_cluster
from docs.blocks import Block
from docs.reader import Reader, registered
from docs.recipes import Tier
from docs.registry import RECIPES
from server import SWELL

from .chart import JOBS_NAMESPACE, NAMESPACE, VARIANTS, Document
from .installed import Installed, is_ready

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: The image's own; one of a range that OpenShift would give a namespace.
UIDS = {"as it is": 10001, "openshift": 1_000_660_000}
JOB_PODS = f"/api/v1/namespaces/{JOBS_NAMESPACE}/pods"
HOST = f"swell.{NAMESPACE}.svc:8080"
BEN = "system:serviceaccount:ml:ben"
#: Asked from within the pod, by the name of a Service: status, and the answer.
ASK = """
import http.client, sys
port, method, path, host, token, body = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
headers = {"Host": host, "Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
connection.request(method, path, body or None, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""

cluster = module_cluster(kubelets=1, gpus=1, images=("swell",))


@pytest.fixture(scope="module")
def ml(cluster: Cluster) -> None:
    """The namespace that the chart names."""
    cluster.api.kubectl("create", "namespace", "ml")


@pytest.fixture(scope="module", params=UIDS)
def installed(request: pytest.FixtureRequest, cluster: Cluster, ml: None) -> Iterator[Installed]:
    made = Installed(cluster, values(VARIANTS[request.param]), uid=UIDS[request.param])
    try:
        made.install()
        yield made
    finally:
        made.remove()
        shutil.rmtree(made.volume)


def values(variant: Document) -> Document:
    small = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}}
    return {**variant, **small, "namespaces": ["ml"], "doors": {"enabled": True, "user": BEN}}


def ask(
    installed: Installed, method: str, path: str, *, host: str = HOST, token: str = "", body: Document | None = None
) -> tuple[int, Any]:
    port = host.rpartition(":")[2]
    words = (port, method, path, host, token, "" if body is None else json.dumps(body))
    status, _, answer = installed.inside("python", "-c", ASK, *words).partition(" ")
    return int(status), json.loads(answer)


@pytest.fixture(scope="module")
def tokens(cluster: Cluster, ml: None) -> dict[str, str]:
    """Of two service accounts: anna may create pods in her namespace, ben may not."""
    api = cluster.api
    for name in ("anna", "ben"):
        api.kubectl("create", "serviceaccount", name, "-n", "ml")
    api.kubectl("create", "role", "pods", "-n", "ml", "--verb=create", "--resource=pods")
    api.kubectl("create", "rolebinding", "anna", "-n", "ml", "--role=pods", "--serviceaccount=ml:anna")
    return {name: api.kubectl("create", "token", name, "-n", "ml").strip() for name in ("anna", "ben")}


def submission(name: str, namespace: str) -> Document:
    container = {
        "name": "main",
        "image": name_of("busybox"),
        "imagePullPolicy": "Never",
        "command": ["true"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return {"manifest": manifest, "workdir": "/", "env": {}}


def test_it_runs_as_nobody_in_particular_and_keeps_its_jobs_when_its_pod_is_replaced(installed: Installed) -> None:
    assert installed.inside("id", "-u").strip() == str(installed.uid)
    job = installed.inside("swell", "run", "-d", "--image", "none", "--gpus", "99", "--", "true").strip()
    token = installed.inside("cat", "/var/lib/swell/token")

    installed.replace_pod()

    assert job in [str(one["id"]) for one in json.loads(installed.inside("swell", "ps", "-o", "json"))]
    assert installed.inside("cat", "/var/lib/swell/token") == token


def test_it_answers_to_the_names_of_its_services(installed: Installed) -> None:
    expected = {
        ("/api/v1/jobs", "swell.swell.svc:8080"): 401,
        ("/api/v1/jobs", "evil.example:8080"): 403,
        ("/readyz", f"{installed.pod()['status']['podIP']}:8080"): 200,
        ("/get_all_jobs", "genai-workload-manager-service:8000"): 200,
        ("/freegpu", "monitor.swell.svc.cluster.local:6000"): 200,
        ("/get_all_jobs", "job-metadata-manager-service.swell:5000"): 200,
        ("/get_all_jobs", "job-metadata-manager.swell:5000"): 200,
        ("/get_all_jobs", "monitor:5000"): 403,
    }
    assert {(path, host): ask(installed, "GET", path, host=host)[0] for path, host in expected} == expected


def test_a_user_of_the_cluster_submits_what_they_may_create_and_sees_their_own(
    installed: Installed, tokens: dict[str, str]
) -> None:
    name = f"hello-{installed.uid}"
    status, answer = ask(installed, "POST", "/api/v1/jobs", token=tokens["anna"], body=submission(name, "ml"))
    assert status == 201, answer
    job = answer["jobs"][0]["id"]
    assert answer["jobs"][0]["user"] == "system:serviceaccount:ml:anna"
    waiting = f"/api/v1/jobs/{job}?after={answer['jobs'][0]['version']}&wait_s=20"
    while not (found := ask(installed, "GET", waiting, token=tokens["anna"])[1])["ended_at"]:
        waiting = f"/api/v1/jobs/{job}?after={found['version']}&wait_s=20"
    assert (found["state"], found["reason"]) == ("succeeded", None)
    assert ask(installed, "GET", f"/api/v1/jobs/{job}", token=tokens["ben"])[0] == 404


def test_what_a_user_may_not_create_is_refused(installed: Installed, tokens: dict[str, str]) -> None:
    for name, namespace in (("ben", "ml"), ("anna", "default")):
        status, answer = ask(installed, "POST", "/api/v1/jobs", token=tokens[name], body=submission("no", namespace))
        assert (status, answer["error"]["message"]) == (
            403,
            (
                f"'system:serviceaccount:ml:{name}' may not create a Pod (v1) in namespace {namespace!r}, and "
                "Swell creates only what you could create yourself; ask for that permission, or name another namespace"
            ),
        )
    assert ask(installed, "GET", "/api/v1/jobs", token="forged")[0] == 401


# -- from one's own machine ------------------------------------------------------------------------------------------

ONCE = pytest.mark.parametrize("installed", ["as it is"], indirect=True)
RANKS = "echo rank $RANK of $WORLD_SIZE; exec sleep 1000"


class Laptop:
    """Somebody with a token, kubectl and nothing else of the server."""

    def __init__(self, home: Path, installed: Installed) -> None:
        self._installed = installed
        self._variables = {
            "HOME": str(home),
            "PATH": f"{program('kubectl').parent}:/usr/bin:/bin",
            "KUBECONFIG": str(installed.api.kubeconfig),
        }
        (home / "token").write_text(installed.inside("cat", "/var/lib/swell/token"))
        address = f"http://{installed.pod()['status']['podIP']}:8080"
        self.swell("login", address, "--token-file", str(home / "token"), "--insecure-http")

    def swell(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [SWELL, *words], env=self._variables, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == code, done
        return done.stdout

    def shown(self, job: str) -> Document:
        found: Document = json.loads(self.swell("show", "-o", "json", job))
        return found

    def until_runs(self, job: str, *, width: int) -> None:
        """Its pods run, and there are so many: seen with kubectl, then asked."""
        ready = f"{JOB_PODS}?labelSelector=swell.dev/job%3D{job}"
        self._installed.api.until(ready, lambda items: [is_ready(one) for one in items.values()] == [True] * width)
        while ((found := self.shown(job))["state"], found["width"]) != ("running", width):
            assert found["state"] in ("running", "stopping", "queued", "starting"), found


@ONCE
def test_every_command_works_with_the_server_in_its_pod(installed: Installed, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path, installed)
    words = ("--image", name_of("busybox"), "--cpus", "0.01", "--tasks", "1..2", "--resize", "immediate")
    gang = laptop.swell("run", "-d", *words, "--grace", "1s", "--", "sh", "-c", RANKS).strip()
    laptop.until_runs(gang, width=2)
    assert laptop.swell("logs", "--rank", "1", gang) == "rank 1 of 2\n"
    assert laptop.swell("exec", gang, "--rank", "1", "--", "sh", "-c", "echo in $SWELL_JOB_ID") == f"in {gang}\n"

    laptop.swell("scale", "--now", gang, "1")
    laptop.until_runs(gang, width=1)
    assert laptop.swell("logs", gang) == "rank 0 of 2\nrank 0 of 1\n"

    wide = laptop.swell("run", "-d", "--image", "none", "--gpus", "99", "--", "true").strip()
    assert laptop.swell("why", wide).startswith(f"job {wide} (true) is queued: CannotRunHere\n")

    laptop.swell("cancel", gang, wide)
    laptop.swell("wait", gang, code=137)  # what its shell became hears no SIGTERM
    laptop.swell("wait", wide, code=1)
    laptop.swell("delete", gang, wide)
    assert not {int(gang), int(wide)} & {one["id"] for one in json.loads(laptop.swell("ps", "-a", "-o", "json"))}
    installed.api.until(f"{JOB_PODS}?labelSelector=swell.dev/job%3D{gang}", lambda items: not items)


# -- as docs/kubernetes.md says --------------------------------------------------------------------------------------


@contextmanager
def reader_of(installed: Installed, folder: Path) -> Iterator[Reader]:
    """Somebody with kubectl; what they leave in the background ends with them."""
    kubectl = {"PATH": f"{program('kubectl').parent}:/usr/bin:/bin", "KUBECONFIG": str(installed.api.kubeconfig)}
    known = {
        "pod": installed.pod()["status"]["podIP"],
        "image": name_of("swell"),
        "port": str(free_port()),
    }
    try:
        yield Reader(folder, {"HOME": str(folder), **kubectl}, known)
    finally:
        if (note := folder / "forwarder").exists():
            os.kill(int(note.read_text()), signal.SIGTERM)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@ONCE
@pytest.mark.parametrize("block", registered(Tier.INSTALLED), ids=lambda block: block.key)
def test_a_block_does_what_it_shows(block: Block, installed: Installed, tokens: dict[str, str], tmp_path: Path) -> None:
    give_anna_the_right_to_create_pods(installed.api)
    with reader_of(installed, tmp_path) as reader:
        reader.follow(block, RECIPES[block.key], tmp_path)


def give_anna_the_right_to_create_pods(api: Api) -> None:
    """Where jobs run that name no namespace."""
    where = {"namespace": JOBS_NAMESPACE, "name": "anna"}
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": where, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": where,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "anna"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "ml", "name": "anna"}],
    }
    api.apply(role, binding, namespace=JOBS_NAMESPACE)


# -- with helm -------------------------------------------------------------------------------------------------------


@ONCE
def test_an_upgrade_replaces_the_pod_and_keeps_its_jobs(installed: Installed) -> None:
    job = installed.inside("swell", "run", "-d", "--image", "none", "--gpus", "99", "--", "true").strip()

    installed.upgrade(podAnnotations={"note": "the second"})

    assert installed.pod()["metadata"]["annotations"]["note"] == "the second"
    assert job in [str(one["id"]) for one in json.loads(installed.inside("swell", "ps", "-o", "json"))]


@ONCE
def test_uninstalling_leaves_the_claim_and_nothing_else(installed: Installed) -> None:
    """Of what the chart has made; what it has not, it does not touch."""
    kinds = "deploy,pods,svc,cm,sa,secrets,pvc,netpol,roles,rolebindings,clusterroles,clusterrolebindings"
    words = ("get", kinds, "-A", "-l", "app.kubernetes.io/name=swell", "-o", "name")
    assert len(installed.api.kubectl(*words).split()) > 10

    installed.uninstall()

    assert installed.api.kubectl(*words).split() == ["persistentvolumeclaim/swell"]
    assert installed.api.kubectl("get", "secrets", "-n", NAMESPACE, "-l", "owner=helm", "-o", "name") == ""
