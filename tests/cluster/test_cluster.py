"""Does the test cluster do what real ones do? Everything here is the real thing; nothing of Swell runs."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .api import Object, Refused, condition
from .cluster import Cluster
from .jobs import JOBS, JOBSETS, ON_KWOK, PODS, PYTORCHJOBS, job, jobset, pod, pytorchjob
from .network import LINKS, Network
from .processes import GLANCE_S
from .starting import module_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
#: The master serves one line to each worker, the workers say what they heard and who they are.
SERVE = 'for worker in $(seq $((WORLD_SIZE - 1))); do echo "hello from $HOSTNAME" | nc -l -p $MASTER_PORT; done'
FIND = "until nc $MASTER_ADDR $MASTER_PORT </dev/null 2>/dev/null | grep hello; do sleep 0.2; done"
ASK = f"{FIND}; echo $RANK of $WORLD_SIZE"
SHOW = "trap 'echo asked to stop; exit 0' TERM; echo $RANK of $WORLD_SIZE on $NVIDIA_VISIBLE_DEVICES; sleep 1000 & wait"

simulated = module_cluster(kwok=100)
real = module_cluster(kubelets=2, gpus=4, operators=("jobset", "training"))


def test_a_hundred_simulated_nodes_are_ready(simulated: Cluster) -> None:
    nodes = simulated.api.get("/api/v1/nodes")["items"]

    assert [condition(node, "Ready") for node in nodes] == ["True"] * 100
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"8"}


def test_a_job_on_simulated_nodes_runs_as_long_as_its_annotation_says(simulated: Cluster) -> None:
    script = {"sim/run-for": "1s"}
    simulated.api.create(JOBS, job("short", "true", count=5, on=ON_KWOK, gpus=1, annotations=script))

    done = simulated.api.until(JOBS, lambda jobs: condition(jobs["short"], "Complete") == "True")

    assert done["short"]["status"]["succeeded"] == 5


def test_a_pod_on_a_simulated_node_fails_when_told_to(simulated: Cluster) -> None:
    simulated.api.create(PODS, pod("failing", "true", on=ON_KWOK))
    simulated.api.until(PODS, lambda pods: pods["failing"]["status"]["phase"] == "Running")
    simulated.api.patch(f"{PODS}/failing", {"metadata": {"annotations": {"sim/fail-after": "0s"}}})

    ended = simulated.api.until(PODS, lambda pods: pods["failing"]["status"]["phase"] == "Failed")

    assert ended["failing"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_a_pod_on_a_simulated_node_leaves_the_words_that_it_is_told_to(simulated: Cluster) -> None:
    words = '{"said": "with \\"quotes\\""}'
    scripts = {"talking": {"sim/run-for": "0s", "sim/last-words": words}, "silent": {"sim/run-for": "0s"}}
    for name, script in scripts.items():
        simulated.api.create(PODS, pod(name, "true", on=ON_KWOK, annotations=script))

    done = simulated.api.until(PODS, lambda pods: all(pods[name]["status"]["phase"] == "Succeeded" for name in scripts))

    ends = {name: done[name]["status"]["containerStatuses"][0]["state"]["terminated"] for name in scripts}
    assert {name: end.get("message") for name, end in ends.items()} == {"talking": words, "silent": None}


def test_an_api_server_that_was_killed_comes_back_on_its_port_with_its_objects(simulated: Cluster) -> None:
    before = simulated.api.create(PODS, pod("survivor", "true", on=ON_KWOK))
    simulated.control_plane.apiserver.kill()
    with pytest.raises(OSError, match="refused"):
        simulated.api.get(f"{PODS}/survivor")

    simulated.control_plane.restart_apiserver()

    assert simulated.api.get(f"{PODS}/survivor")["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_paused_etcd_stops_writes_until_it_goes_on(simulated: Cluster) -> None:
    simulated.control_plane.etcd.pause()
    try:
        # The server's own limit answers 504, or closes the connection when it has begun to answer.
        with pytest.raises((Refused, http.client.RemoteDisconnected), match=r"504: Timeout|without response"):
            simulated.api.request("POST", f"{PODS}?timeout=2s", pod("late", "true", on=ON_KWOK))
    finally:
        simulated.control_plane.etcd.resume()

    simulated.control_plane.until_ready()
    simulated.api.create(PODS, pod("later", "true", on=ON_KWOK))


def test_a_pod_on_a_real_node_leaves_its_output(real: Cluster) -> None:
    real.api.create(PODS, pod("hello", "echo hello; echo world"))
    real.api.until(PODS, lambda pods: pods["hello"]["status"]["phase"] == "Succeeded")

    assert real.api.kubectl("logs", "hello") == "hello\nworld\n"


def test_an_indexed_job_runs_to_its_end_on_real_nodes(real: Cluster) -> None:
    real.api.create(JOBS, job("three", "echo index $JOB_COMPLETION_INDEX", count=3))
    done = real.api.until(JOBS, lambda jobs: condition(jobs["three"], "Complete") == "True")

    assert done["three"]["status"]["completedIndexes"] == "0-2"
    assert sorted(logs_of(real, "batch.kubernetes.io/job-name=three")) == ["index 0", "index 1", "index 2"]


def test_gpus_of_a_real_node_are_handed_out_once_each(real: Cluster) -> None:
    real.api.create(JOBS, job("devices", "echo $NVIDIA_VISIBLE_DEVICES", count=4, gpus=2))
    real.api.until(JOBS, lambda jobs: condition(jobs["devices"], "Complete") == "True")

    seen = [device for line in logs_of(real, "batch.kubernetes.io/job-name=devices") for device in line.split(",")]
    assert len(seen) == 8
    assert set(seen) <= {f"GPU-real-{node}-{index}" for node in (1, 2) for index in range(4)}


def test_the_members_of_a_pytorchjob_reach_their_master_by_name(real: Cluster) -> None:
    real.api.create(PYTORCHJOBS, pytorchjob("trio", SERVE, ASK, workers=2))
    real.api.until(PYTORCHJOBS, lambda jobs: condition(jobs["trio"], "Succeeded") == "True")

    real.api.until(PODS, lambda pods: phases(pods, "trio") == {"Succeeded": 3})
    workers = logs_of(real, "training.kubeflow.org/replica-type=worker,training.kubeflow.org/job-name=trio")
    assert sorted(workers) == ["1 of 3", "2 of 3", "hello from trio-master-0", "hello from trio-master-0"]


def test_the_members_of_a_jobset_reach_each_other_by_name(real: Cluster) -> None:
    other = "pair-workers-0-$((1 - JOB_COMPLETION_INDEX)).pair.default.svc.cluster.local"
    find = f"until nslookup {other}; do sleep 0.2; done; sleep 2"  # both must be there to be found
    real.api.create(JOBSETS, jobset("pair", find, count=2))

    done = real.api.until(JOBSETS, lambda jobsets: condition(jobsets["pair"], "Completed") == "True")

    assert done["pair"]["status"]["terminalState"] == "Completed"


def test_a_pytorchjob_changes_its_size_and_its_gpus_while_suspended(real: Cluster) -> None:
    path = f"{PYTORCHJOBS}/elastic"
    real.api.create(PYTORCHJOBS, pytorchjob("elastic", SHOW, SHOW, workers=1, gpus=1))
    real.api.until(PODS, lambda pods: phases(pods, "elastic") == {"Running": 2})

    real.api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    real.api.until(PODS, lambda pods: not phases(pods, "elastic"))
    real.api.until(PYTORCHJOBS, lambda jobs: condition(jobs["elastic"], "Suspended") == "True")
    real.api.patch(path, {"spec": resized(real.api.get(path)["spec"], workers=2, gpus=2)})
    real.api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    real.api.until(PODS, lambda pods: phases(pods, "elastic") == {"Running": 3})

    said = sorted(logs_of(real, "training.kubeflow.org/job-name=elastic"))
    real.api.delete(path)
    real.api.until(PODS, lambda pods: not phases(pods, "elastic"))
    assert [line.partition(" on ")[0] for line in said] == ["0 of 3", "1 of 3", "2 of 3"]
    assert [line.count("GPU-real") for line in said] == [2, 2, 2]


def test_a_killed_kubelet_leaves_its_pods_running_and_takes_them_up_again(real: Cluster) -> None:
    real.api.create(PODS, pod("steady", "sleep 1000"))
    running = real.api.until(PODS, lambda pods: pods["steady"]["status"]["phase"] == "Running")["steady"]
    node = next(node for node in real.nodes if node.name == running["spec"]["nodeName"])

    node.kubelet.kill()
    node.restart_kubelet()

    after = real.api.get(f"{PODS}/steady")
    real.api.delete(f"{PODS}/steady")
    started_at = running["status"]["containerStatuses"][0]["containerID"]
    assert after["status"]["containerStatuses"][0]["containerID"] == started_at


def test_no_process_is_left_when_whoever_started_a_cluster_is_killed(tmp_path: Path) -> None:
    keep = [sys.executable, "-m", "tests.cluster", "keep", "--folder", str(tmp_path), "--kubelets", "1"]
    keeper = subprocess.Popen(keep, cwd=ROOT, start_new_session=True)
    end = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert keeper.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)

    os.kill(keeper.pid, signal.SIGKILL)
    keeper.wait()

    while left := [words for words in command_lines() if str(tmp_path) in words]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def phases(pods: dict[str, Object], job_name: str) -> dict[str, int]:
    """How many pods of a job are in which phase."""
    found: dict[str, int] = {}
    for name, item in pods.items():
        if name.startswith(f"{job_name}-"):
            found[item["status"]["phase"]] = found.get(item["status"]["phase"], 0) + 1
    return found


def resized(spec: Object, *, workers: int, gpus: int) -> Object:
    """A merge patch replaces lists whole, so the containers are those that were there with other limits."""
    changed: Object = {"pytorchReplicaSpecs": spec["pytorchReplicaSpecs"]}
    changed["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
    for replicas in changed["pytorchReplicaSpecs"].values():
        for part in replicas["template"]["spec"]["containers"][0]["resources"].values():
            part["nvidia.com/gpu"] = str(gpus)
    return changed


def logs_of(cluster: Cluster, selector: str) -> list[str]:
    return cluster.api.kubectl("logs", "--tail=-1", "-l", selector).splitlines()


def command_lines() -> Iterator[str]:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue


def test_the_cable_of_a_node_that_the_kernel_still_clears_away_is_in_nobodys_way() -> None:
    """A namespace goes some time after its last process; until then its cable would keep its name."""
    network = Network()
    network.start()
    with subprocess.Popen(["unshare", "--net", "sleep", "1000"]) as node:
        try:
            _until_alone(node.pid)
            network.connect(1, node.pid, nodes=1)
            network.stop()
            left = [link.name for link in LINKS.glob(f"{network.bridge}*")]
        finally:
            node.kill()

    assert left == []


def _until_alone(pid: int) -> None:
    """Until it has a network of its own."""
    ours = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{pid}/ns/net").readlink() == ours:
        time.sleep(GLANCE_S)
