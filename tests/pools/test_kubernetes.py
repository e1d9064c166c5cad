"""Pods as workers: what is sent, what is read, and the contract against an API server on loopback (a fake)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.faults import Fault
from pools.contract import TOKEN, PoolContract, order
from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.credentials import Files
from swell.errors import Denied, Rejected, Unavailable
from swell.pools.backend import BackendWorker, WorkerState
from swell.pools.kinds import find_kind
from swell.pools.kubernetes.access import access_of
from swell.pools.kubernetes.backend import KubernetesPoolBackend
from swell.pools.kubernetes.options import KubernetesOptions
from swell.pools.kubernetes.parse import KEPT_MAX, parse_pods, surplus
from swell.pools.kubernetes.render import render_pod, render_resources, render_secret

IMAGE = "registry.lab/swell-torch:1"
OPTIONS = KubernetesOptions(IMAGE)
ROLE = 'pods is forbidden: User "eva" cannot create resource "pods" in API group "" in the namespace "default"'


class LoopbackWorld:
    """Pods that no kubelet runs: a test says what becomes of them."""

    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder / "token")
        self.is_cut = False
        self._open: list[KubernetesPoolBackend] = []

    def backend(self, pool: str) -> KubernetesPoolBackend:
        source = "the service account of the test"
        access = Access(self.server.url, "default", Files(source, token=self.server.token_file), source)
        backend = KubernetesPoolBackend(pool, OPTIONS, access, answer_s=5.0)
        self._open.append(backend)
        return backend

    def start(self, backend_id: str) -> None:
        self._change(backend_id, {"phase": "Running"})

    def end(self, backend_id: str, exit_code: int) -> None:
        terminated = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
        status = {"phase": "Failed" if exit_code else "Succeeded"}
        self._change(backend_id, {**status, "containerStatuses": [{"name": "worker", "state": terminated}]})

    def write_log(self, backend_id: str, text: bytes) -> None:
        self.server.logs.setdefault(_key(backend_id), []).append(text)

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            self.server.close()

    def refuse(self) -> None:
        self.server.denied["POST", "pods"] = ROLE

    def close(self) -> None:
        for backend in self._open:
            backend.close()
        self.cut()

    def _change(self, backend_id: str, status: dict[str, Any]) -> None:
        pod = dict(self.server.storage.get("pods", _key(backend_id)))
        self.server.storage.update("pods", _key(backend_id), {**pod, "status": status})


def _key(backend_id: str) -> tuple[str, str]:
    namespace, _, name = backend_id.partition("/")
    return namespace, name


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LoopbackWorld]:
    world = LoopbackWorld(tmp_path)
    yield world
    world.close()


class TestKubernetes(PoolContract):
    """On loopback."""


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_worker_is_a_pod_that_gets_its_token_from_a_secret() -> None:
    wanted = order(id="lab-0123abcd", cpus_milli=4000, memory_mib=16384, gpus=2)
    pod = render_pod(wanted, OPTIONS, "ml")
    (container,) = pod["spec"].pop("containers")
    command = container.pop("command")
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "lab-0123abcd",
            "namespace": "ml",
            "labels": {"app": "cl-worker", "swell.dev/pool": "lab", "swell.dev/worker": "lab-0123abcd"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 120,
            "volumes": [{"name": "work", "emptyDir": {}}, {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
    assert container == {
        "name": "worker",
        "image": IMAGE,
        "env": [
            {
                "name": "SWELL_WORKER_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "swell-pool-lab", "key": "token"}},
            },
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "resources": {
            "requests": {"cpu": "4000m", "memory": "16384Mi", "nvidia.com/gpu": "2"},
            "limits": {"cpu": "4000m", "memory": "16384Mi", "nvidia.com/gpu": "2"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": "/tmp"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }
    assert "--pass-down-termination" in command
    assert command[-command[::-1].index("swell") - 1 :][:2] == ["swell", "worker"]
    assert render_secret(wanted, "ml")["stringData"] == {"token": TOKEN}


def test_one_cpu_is_requested_as_half_so_that_it_fits_on_a_node_with_one() -> None:
    def cpus(milli: int) -> tuple[str, str]:
        made = render_resources(order(cpus_milli=milli), "nvidia.com/gpu")
        return made["requests"]["cpu"], made["limits"]["cpu"]

    assert [cpus(milli) for milli in (500, 1000, 1500, 2000)] == [
        ("500m", "500m"),
        ("500m", "1000m"),
        ("1500m", "1500m"),
        ("2000m", "2000m"),
    ]


def test_options_add_a_volume_a_node_selector_and_one_worker_for_each_node() -> None:
    options = find_kind("kubernetes").read(
        {"image": IMAGE, "nfs_volume_name": "nfs", "one_per_node": True, "node_selector": "gpu=a100,zone=b"}
    )
    spec = render_pod(order(), options, "ml")["spec"]
    assert spec["nodeSelector"] == {"gpu": "a100", "zone": "b"}
    assert spec["volumes"][-1] == {"name": "shared", "persistentVolumeClaim": {"claimName": "nfs-claim"}}
    assert spec["containers"][0]["volumeMounts"][-1] == {"name": "shared", "mountPath": "/mnt/nfs"}
    assert spec["affinity"] == {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "cl-worker"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    assert "tolerations" not in spec


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": "-v"}, "not the name of an image"),
        ({"node_selector": "gpu"}, "is not KEY=VALUE"),
        ({"nfs_path": "/data"}, "--nfs-volume-name"),
        ({"nfs_volume_name": "nfs", "nfs_path": "/data/../etc"}, "cannot be right"),
        ({"nfs_volume_name": "NFS"}, "cannot be right"),
        ({"namespace": "a/b"}, "cannot be right"),
        ({"gpu_resource": "gpu"}, "cannot be right"),
        ({"auth_token": "t"}, "belongs to --cluster-host"),
        ({"cluster_host": "https://k"}, "--auth-token-file"),
        ({"cluster_host": "http://k", "auth_token": "t"}, "must look like https"),
        ({"cluster_host": "https://k", "auth_token": "t", "kubeconfig": Path("/k")}, "give one of them"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(given: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        find_kind("kubernetes").read({"image": IMAGE, **given})


def test_an_image_may_be_named_once_for_all_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWELL_WORKER_IMAGE", raising=False)
    with pytest.raises(Rejected, match="SWELL_WORKER_IMAGE"):
        find_kind("kubernetes").read({})
    monkeypatch.setenv("SWELL_WORKER_IMAGE", IMAGE)
    assert find_kind("kubernetes").read({}).image == IMAGE


def test_the_flags_of_codalab_say_where_the_api_server_is(tmp_path: Path) -> None:
    """`--cert-path /dev/null --cert TEXT` is how its users hand over a certificate without a file."""
    file = tmp_path / "ca.pem"
    file.write_text("from the file")
    given = {"image": IMAGE, "cluster_host": "https://10.0.0.1/", "auth_token": "secret-token"}
    read = find_kind("kubernetes").read
    authorities = [
        access_of(read({**given, **more})).authority
        for more in (
            {},
            {"cert_path": file},
            {"cert_path": Path("/dev/null")},
            {"cert_path": Path("/dev/null"), "cert": "one\\ntwo"},
        )
    ]
    assert authorities == [None, b"from the file", None, b"one\ntwo"]
    access = access_of(read(given))
    assert (access.server, access.namespace) == ("https://10.0.0.1", "default")
    assert access.credentials.current().headers == (("Authorization", "Bearer secret-token"),)
    assert "secret-token" not in repr(read(given))
    with pytest.raises(Rejected, match="cannot be read"):
        access_of(read({**given, "cert_path": tmp_path / "none"}))


# -- what is read ------------------------------------------------------------------------------------------------------


def pod(name: str = "lab-0123abcd", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", **more.pop("metadata", {})}
    return {"metadata": metadata, "status": {"phase": "Pending", **more}}


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "proxy", "state": {"running": {}}}, {"name": "worker", "state": state}]


def worker(state: WorkerState, word: str, **more: Any) -> BackendWorker:
    shown = "kubectl logs -n ml lab-0123abcd"
    return BackendWorker("lab-0123abcd", "ml/lab-0123abcd", state, word, **{"log": shown, **more})


UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
BACK_OFF = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nope"'}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pod(), worker(WorkerState.PENDING, "Pending")),
        (
            pod(conditions=[UNSCHEDULED]),
            worker(
                WorkerState.PENDING,
                "Pending",
                detail="Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            ),
        ),
        (
            pod(containerStatuses=container(waiting=BACK_OFF)),
            worker(WorkerState.PENDING, "Pending", detail='ImagePullBackOff: Back-off pulling image "nope"'),
        ),
        (
            pod(containerStatuses=container(waiting={"reason": "ContainerCreating"})),
            worker(WorkerState.PENDING, "Pending"),
        ),
        (pod(phase="Running"), worker(WorkerState.RUNNING, "Running")),
        (
            pod(phase="Running", metadata={"deletionTimestamp": "2026-11-18T10:00:00Z"}),
            worker(WorkerState.RUNNING, "Terminating"),
        ),
        (
            pod(phase="Succeeded", containerStatuses=container(terminated={"exitCode": 0, "reason": "Completed"})),
            worker(WorkerState.ENDED, "Succeeded", detail="Completed", exit_code=0, is_proof=True),
        ),
        (
            pod(phase="Failed", containerStatuses=container(terminated={"exitCode": 137, "reason": "OOMKilled"})),
            worker(WorkerState.ENDED, "Failed", detail="OOMKilled", exit_code=137, is_proof=True),
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            worker(WorkerState.ENDED, "Failed", detail="Evicted: The node was low on resource: memory."),
        ),
        (
            pod(phase="Failed", reason="NodeLost", containerStatuses=container(running={})),
            worker(WorkerState.ENDED, "Failed", detail="NodeLost"),
        ),
        (pod(phase="Unknown"), worker(WorkerState.UNKNOWN, "Unknown")),
        (pod(phase="Hibernating"), worker(WorkerState.UNKNOWN, "Hibernating")),
        ({"metadata": {"name": "lab-0123abcd", "namespace": "ml"}}, worker(WorkerState.PENDING, "Pending")),
    ],
)
def test_what_a_pod_says_of_a_worker(given: dict[str, Any], wanted: BackendWorker) -> None:
    assert parse_pods([given], "lab") == (wanted,)


def test_pods_with_the_label_that_a_pool_has_not_made_are_not_its_workers() -> None:
    assert parse_pods([pod("lab"), pod("lab-2-0123abcd"), pod("other-0123abcd")], "lab") == ()


@pytest.mark.parametrize("odd", [{}, {"metadata": {}}, {"metadata": {"name": 5}}, pod(containerStatuses=5), [], None])
def test_what_cannot_be_read_is_unknown_and_not_zero(odd: Any) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        parse_pods([pod(), odd], "lab")


def test_only_the_newest_of_those_that_have_ended_are_kept() -> None:
    def ended(number: int) -> dict[str, Any]:
        return pod(
            f"lab-{number:08x}", phase="Failed", metadata={"creationTimestamp": f"2026-11-18T10:00:{number:02}Z"}
        )

    pods = [*(ended(number) for number in range(KEPT_MAX + 2)), pod(phase="Running"), pod("kubectl", phase="Failed")]
    assert surplus(pods, "lab") == ("lab-00000001", "lab-00000000")


# -- on the wire -------------------------------------------------------------------------------------------------------

READ_FAULTS = (Fault.SERVER_ERROR, Fault.TOO_MANY, Fault.DROPPED, Fault.TORN, Fault.NO_HTTP)


def test_a_short_trouble_is_asked_through_and_a_long_one_is_never_zero(world: LoopbackWorld) -> None:
    backend = world.backend("lab")
    wanted = order()
    backend.launch(wanted)
    for fault in READ_FAULTS:
        world.server.faults.answers.append(fault)  # type: ignore[attr-defined]
        assert [found.id for found in backend.observe()] == [wanted.id], fault
        world.server.faults.answers.extend([fault] * 20)  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            backend.observe()
        world.server.faults.answers.clear()  # type: ignore[attr-defined]


def test_a_launch_whose_answer_is_lost_is_one_worker_however_often_it_is_tried(world: LoopbackWorld) -> None:
    backend, wanted = world.backend("lab"), order()
    world.server.faults.answers.extend([None, Fault.TORN])  # type: ignore[attr-defined]
    with pytest.raises(Unavailable):
        backend.launch(wanted)
    assert backend.launch(wanted) == f"default/{wanted.id}"
    assert [found.id for found in backend.observe()] == [wanted.id]


def test_a_role_without_the_right_is_named(world: LoopbackWorld) -> None:
    world.refuse()
    with pytest.raises(Denied, match="lacks the verb 'create' on pods in namespace 'default'"):
        world.backend("lab").launch(order())


def test_pods_that_have_ended_are_removed_when_there_are_many(world: LoopbackWorld) -> None:
    backend = world.backend("lab")
    for _ in range(KEPT_MAX + 3):
        world.end(backend.launch(order()), 0)
    last = order()
    backend.launch(last)
    assert sum(not found.is_live for found in backend.observe()) == KEPT_MAX
    assert [found.id for found in backend.observe() if found.is_live] == [last.id]
