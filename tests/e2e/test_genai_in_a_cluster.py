"""genai's manager and monitor as their users know them, with a PyTorchJob of a real cluster behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from api.doors.foreign import Foreign
from cluster.cluster import Cluster
from cluster.jobs import ON_KWOK, PODS, PYTORCHJOBS, pod
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server
from swell.client.connection import path

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
DEMO = Path(__file__).parents[2] / "examples/kubernetes/genai-job1.yaml"
GPUS = "nvidia.com/gpu"

cluster = module_cluster(kwok=1, operators=("training",))
server = module_server()


def genai_of(server: Server) -> Foreign:
    return Foreign(server.client().connection.json("POST", path("doors", "address"), {"name": "genai"})["address"])


def assigned(container: dict[str, Any]) -> tuple[str, str, str, str]:
    """What it may use, and what it is told of it in both ways that scripts ask."""
    resources, [ngpu] = container["resources"], [one for one in container["env"] if one["name"] == "NGPU"]
    return resources["requests"][GPUS], resources["limits"][GPUS], ngpu["value"], container["args"][-1]


def wanted(gpus: int) -> tuple[str, str, str, str]:
    return str(gpus), str(gpus), str(gpus), f"--num_processes={gpus}"


def in_the_cluster(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """What the demo's object says, and its pod."""
    master = cluster.api.get(f"{PYTORCHJOBS}/genai-job1")["spec"]["pytorchReplicaSpecs"]["Master"]
    pod = cluster.api.get(f"{PODS}/genai-job1-master-0")
    return [assigned(one["spec"]["containers"][0]) for one in (master["template"], pod)]


def test_a_demo_job_has_what_is_free_and_all_it_can_use_when_others_end_and_leaves_nothing(
    cluster: Cluster, server: Server
) -> None:
    genai = genai_of(server)
    [(node, free)] = genai.ask("GET", "/freegpu")[1].items()
    others = server.swell(
        "submit", "-f", "-", stdin=yaml.safe_dump(pod("others", "true", on=ON_KWOK, gpus=free - 2))
    ).id
    server.until(others, "running", patience_s=PATIENCE_S)
    assert genai.ask("GET", "/freegpu") == (200, {node: 2})

    deployed = server.beside("genai-manager", "deploy", "-f", str(DEMO))
    assert deployed.code == 0, deployed
    server.until_named("genai-job1", "running", patience_s=PATIENCE_S)
    assert in_the_cluster(cluster) == [wanted(2), wanted(2)]
    assert genai.ask("GET", "/freegpu") == (200, {})
    full = server.beside("genai-manager", "scale", "-n", "genai-job1")
    assert (full.code, full.stdout) == (1, "Did not scale\n"), full

    assert server.swell("cancel", str(others)).code == 0
    server.until(others, "cancelled", patience_s=PATIENCE_S)
    number = server.swell("show", "genai-job1", "-o", "json").json["id"]
    server.until_true(  # without being told: its manifest says nothing of a notifier, so it need not wait for one
        number, lambda one: (one["state"], one["width"], one["attempts"]) == ("running", 4, 2), patience_s=PATIENCE_S
    )
    widest = server.beside("genai-manager", "scale", "-n", "genai-job1")
    assert (widest.code, widest.stdout) == (1, "Did not scale\n"), widest
    assert in_the_cluster(cluster) == [wanted(4), wanted(4)]
    record = genai.ask("GET", "/get_job/genai-job1")[1]
    told = ("gpu_req", "gpu_lim", "gpu_assigned", "replicas", "total_epochs", "restarts", "status")
    assert [record[field] for field in told] == [2, 4, 4, 1, 3, 1, "scheduled"]
    assert genai.ask("GET", "/freegpu") == (200, {node: free - 4})

    deleted = server.beside("genai-manager", "delete", "-n", "genai-job1")
    assert (deleted.code, deleted.stderr) == (0, f"swell: job {number} (genai-job1) is deleted\n")
    cluster.api.until(PODS, lambda found: "genai-job1-master-0" not in found)
    # In a new cluster it stays for half a minute: until then the garbage collector does not know of the kind.
    cluster.api.until(PYTORCHJOBS, lambda found: all("deletionTimestamp" in one["metadata"] for one in found.values()))
    assert genai.ask("GET", "/get_job/genai-job1")[0] == 404
    assert genai.ask("GET", "/freegpu") == (200, {node: free})
