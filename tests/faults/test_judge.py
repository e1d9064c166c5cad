"""Does the judge see what may never be? A judge that is always content would prove nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .history import History, NodeSighting, PodSighting, read_node, read_pod
from .judge import RECOVERY_S, Outage, hindered_s, judge
from .workload import Case

GANG = Case("c01", "submit", "native", (), "succeeded", tasks=2, is_gang=True)
LONE = Case("c02", "kubectl", "Pod", ())
NODES = {"n": NodeSighting("n", 8, 64000, 16384)}
GOOD = {"c01": ["succeeded"], "c02": ["succeeded"]}


def pod(at: float, rank: int, phase: str = "Running", **changes: Any) -> PodSighting:
    given: dict[str, Any] = {"uid": f"u{rank}", "name": f"c01-{rank}", "attempt": "1.1", "node": "n", "gpus": 4}
    return PodSighting(**{**given, "at": at, "rank": str(rank), "phase": phase, "cpus_milli": 10, **changes})


def lone(at: float, phase: str = "Running", **changes: Any) -> PodSighting:
    return pod(at, 0, phase, **{"uid": "own", "name": "c02", "attempt": "", "gpus": 0, **changes})


def found(*pods: PodSighting, ends: dict[str, list[str]] = GOOD, outages: tuple[Outage, ...] = ()) -> list[str]:
    return judge(History(list(pods), NODES), [GANG, LONE], outages, ends, {"taken"})


def test_what_happens_as_it_should_is_no_problem() -> None:
    whole = (pod(0, 0), pod(1, 1), pod(5, 0, "Succeeded"), pod(6, 1, "Succeeded"), lone(6), lone(7, "Succeeded"))
    assert found(*whole) == []


@pytest.mark.parametrize(
    ("what", "pods", "outages", "problems"),
    [
        (
            "a node holds more than it has",
            (pod(0, 0), pod(0, 1), lone(1, gpus=1)),
            (),
            [f"{NODES['n']} holds 9 GPUs and 30 mCPU of ['c01-0', 'c01-1', 'c02']"],
        ),
        (
            "what somebody else has bound counts, what a node refuses does not",
            (pod(0, 0), pod(0, 1, is_refused=True), lone(1, name="rival", gpus=5)),
            (),
            [f"{NODES['n']} holds 9 GPUs and 20 mCPU of ['c01-0', 'rival']", "c01 (native by submit) was left half"],
        ),
        (
            "a GPU that is reserved is taken",
            (pod(0, 0), pod(0, 1), lone(1, name="keeper", reserves=True)),
            (),
            [f"{NODES['n']} holds 9 GPUs and 30 mCPU of ['c01-0', 'c01-1', 'keeper']"],
        ),
        (
            "a GPU that is shared is taken, also when its reservation was taken away, but not twice",
            (
                pod(0, 0, gpus=3),
                pod(0, 1),
                lone(1, gpu="GPU-0", share_mib=6000),
                lone(2, uid="new", name="keeper", reserves=True),
            ),
            (),
            [],
        ),
        (
            "a GPU is shared beyond its memory",
            (pod(0, 0, gpus=0, gpu="GPU-0", share_mib=9000), pod(0, 1, gpus=0, gpu="GPU-0", share_mib=9000)),
            (),
            [f"{NODES['n']} holds 1 GPUs and 20 mCPU, of one GPU 18000 MiB of ['c01-0', 'c01-1']"],
        ),
        ("what has ended holds nothing", (pod(0, 0, "Succeeded"), pod(0, 1), lone(1, gpus=4)), (), []),
        (
            "a rank runs twice, the first of it on its way out",
            (pod(0, 0, is_deleting=True), pod(0, 1, gpus=0), pod(1, 0, uid="again", name="c01-0-b", gpus=0)),
            (),
            ["c01 (native by submit): rank ['0'] ran twice at once, as"],
        ),
        (
            "two attempts run at once",
            (pod(0, 0), pod(0, 1, attempt="1.2")),
            (),
            ["c01 (native by submit): attempts ['1.1', '1.2'] ran at once, as ['c01-0', 'c01-1']"],
        ),
        (
            "half of a gang is bound for too long",
            (pod(0, 0), pod(0, 1, node=""), pod(50, 1)),
            (),
            ["c01 (native by submit) was half bound for 50 s"],
        ),
        (
            "half of it is bound for long while nothing works",
            (pod(0, 0), pod(0, 1, node=""), pod(50, 1)),
            (Outage(5, 30, "API server"),),
            [],
        ),
        (
            "half of it is bound at the end",
            (pod(0, 0),),
            (),
            ["c01 (native by submit) was left half bound: ['0'] of 2"],
        ),
        (
            "a pod that nobody makes again is taken away",
            (lone(0, uid="taken"), lone(1, uid="taken", is_gone=True)),
            (),
            ["c02 (Pod by kubectl) should be cancelled once, but Swell has it as ['succeeded']"],
        ),
        (
            "Swell itself has taken it away and made it again",
            (lone(0), lone(1, is_gone=True)),
            (),
            [],
        ),
        (
            "it had ended before",
            (lone(0, "Succeeded", uid="taken"), lone(1, "Succeeded", uid="taken", is_gone=True)),
            (),
            [],
        ),
    ],
)
def test_the_judge_sees(
    what: str, pods: tuple[PodSighting, ...], outages: tuple[Outage, ...], problems: list[str]
) -> None:
    told = found(*pods, outages=outages)
    assert [text[: len(start)] for text, start in zip(told, problems, strict=True)] == problems, what


@pytest.mark.parametrize("states", [[], ["failed"], ["succeeded", "succeeded"], ["starting"]])
def test_a_job_that_is_lost_or_there_twice_is_told(states: list[str]) -> None:
    told = [f"c01 (native by submit) should be succeeded once, but Swell has it as {states}"]
    assert found(ends={**GOOD, "c01": states}) == told


def test_a_job_that_ends_at_another_width_or_after_fewer_epochs_is_told() -> None:
    case = replace(LONE, width=1, epochs=60)
    problem = "should be succeeded at width 1 after 60 epochs once, but Swell has it as ['succeeded at width 2']"
    told = judge(History([], NODES), [case], (), {"c02": ["succeeded at width 2"]})
    assert told == [f"c02 (Pod by kubectl) {problem}"]


def test_what_hinders_twice_at_once_counts_once() -> None:
    """Four that overlapped excused more time than there was."""
    outages = [Outage(10.0, 20.0, "storm"), Outage(12.0, 18.0, "rival"), Outage(50.0, 60.0, "etcd")]
    assert hindered_s(0.0, 100.0, outages) == (10.0 + RECOVERY_S) * 2
    assert hindered_s(15.0, 55.0, outages) == 5.0 + RECOVERY_S + 5.0


def test_pods_and_nodes_are_read_as_the_api_server_writes_them() -> None:
    document: dict[str, Any] = {
        "metadata": {
            "name": "c01-worker-1",
            "uid": "u",
            "labels": {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"},
            "annotations": {"swell.dev/attempt": "7.2"},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"resources": {"requests": {"cpu": "10m", "nvidia.com/gpu": "2"}}}],
        },
        "status": {"phase": "Running"},
    }
    expected = PodSighting(3.0, "u", "c01-worker-1", "worker 1", "7.2", "n", "Running", 2, 10, is_deleting=True)
    assert read_pod(document, 3.0) == expected
    document["metadata"]["labels"] = {"swell.dev/reservation": "gpu-0"}
    document["metadata"]["annotations"] = {
        "swell.dev/gpu": "GPU-0",
        "swell.dev/gpu-memory-mib": "6144",
        "sim/refuse": "true",
    }
    shown = read_pod(document, 3.0)
    assert (shown.is_refused, shown.reserves, shown.gpu, shown.share_mib) == (True, True, "GPU-0", 6144)
    labels = {"nvidia.com/gpu.memory": "16384"}
    node = {
        "metadata": {"name": "n", "labels": labels},
        "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}},
    }
    assert read_node(node) == NODES["n"]
