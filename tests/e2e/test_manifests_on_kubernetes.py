"""Manifests with several kinds of Jobs: the same file on this machine and on real kubelets.

Every task prints its variables on both, and they are the same. Nothing here waits for a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

import swell_sdk
from cluster.api import Object
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.jobs import pod as plain_pod
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

from .training import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

cluster = module_cluster(kubelets=2, operators=("jobset",))
on_kubernetes = module_server()
PATIENCE_S = 240.0
TOLD = (
    *("JOB_INDEX", "JOB_GLOBAL_INDEX", "GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"),
    *("JOB_COMPLETION_INDEX", "SWELL_SHARDS"),
)
TASKS = {1: 5, 2: 8, 3: 15, 4: 15}
BEGIN, END = "-- begin", "-- end"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("here")) as server:
        yield server


def scenario(number: int, command: str, **changes: object) -> str:
    """An example with another program inside, in an image that is in the cluster."""
    document = yaml.safe_load((EXAMPLES / "aichor" / f"scenario-{number}.yaml").read_text())
    document["builder"]["image"] = document["spec"]["image"] = name_of("busybox")
    document["spec"]["command"] = command
    return yaml.safe_dump({**document, **changes})


def submitted(server: Server, text: str) -> int:
    done = server.swell("submit", "-f", "-", stdin=text)
    assert done.code == 0, done
    return int(done.stdout)


def variables(server: Server, number: int) -> list[dict[str, str]]:
    """What each task was told, in the order of their numbers."""
    job = submitted(server, scenario(number, f"echo '{BEGIN}'; env; echo '{END}'"))
    server.until(job, "succeeded", patience_s=PATIENCE_S)
    return [_told(server.swell("logs", "--rank", str(task), str(job)).stdout) for task in range(TASKS[number])]


def _told(log: str) -> dict[str, str]:
    found = dict(
        line.partition("=")[::2] for line in log[log.index(BEGIN) : log.index(END)].splitlines() if "=" in line
    )
    return {name: found.get(name, "") for name in TOLD}


@pytest.mark.parametrize("number", TASKS)
def test_every_task_is_told_on_one_machine_what_jobset_tells_it(
    here: Server, on_kubernetes: Server, number: int
) -> None:
    mine, theirs = variables(here, number), variables(on_kubernetes, number)

    assert mine == theirs
    assert all(all(told.values()) for told in theirs), theirs
    shards = sorted((part.start, part.stop) for part in (swell_sdk.shard(1000, environ=told) for told in theirs))
    assert [shards[0][0], *(stop for _, stop in shards)] == [*(start for start, _ in shards), 1000]


def test_scenario_4_starts_on_a_busy_cluster_where_scenario_3_waits(cluster: Cluster, on_kubernetes: Server) -> None:
    """Fifteen pods of 0.2 CPUs want 3 at once, and 1.4 are free on the two nodes together."""
    busy = [submitted(on_kubernetes, yaml.safe_dump(holder(cluster, node))) for node in ("real-1", "real-2")]
    for one in busy:
        on_kubernetes.until(one, "running", patience_s=PATIENCE_S)
    waits = submitted(on_kubernetes, scenario(3, "true", name="all-at-once"))
    runs = submitted(on_kubernetes, scenario(4, "true", name="a-few-at-a-time"))
    on_kubernetes.until(runs, "succeeded", patience_s=PATIENCE_S)
    job = on_kubernetes.client().job(waits)
    said = on_kubernetes.swell("why", str(waits)).stdout
    assert (job.state, job.document["reason"]["code"]) == ("queued", "WaitingForRoom"), said
    assert "it wants 15 tasks of 0.2 CPUs, 191 MiB, all at once" in said
    assert on_kubernetes.swell("cancel", *map(str, busy)).code == 0
    on_kubernetes.until(waits, "succeeded", patience_s=PATIENCE_S)


def holder(cluster: Cluster, node: str) -> Object:
    """All but 0.7 CPUs of a node."""
    made = plain_pod(f"busy-{node}", "sleep 100000", on={"kubernetes.io/hostname": node})
    cores = int(cluster.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]["cpu"])
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{1000 * cores - 700}m"
    return made


def test_a_jobset_that_is_held_while_it_runs_does_nothing_twice(on_kubernetes: Server) -> None:
    """What its Jobs have done is kept: they are suspended and resumed, not made anew."""
    job = submitted(on_kubernetes, scenario(4, "date +%s%N; sleep 2", name="held"))
    on_kubernetes.until_true(job, lambda found: found["tasks"]["succeeded"] > 2, patience_s=PATIENCE_S)
    assert on_kubernetes.swell("hold", str(job)).code == 0
    on_kubernetes.until_true(job, lambda found: found["tasks"]["running"] == 0, patience_s=PATIENCE_S)
    assert on_kubernetes.swell("release", str(job)).code == 0
    on_kubernetes.until(job, "succeeded", patience_s=PATIENCE_S)
