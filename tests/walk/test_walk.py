"""What Swell believes is what the pods show, whatever three users do with kubectl."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.starting import started
from onitscluster import module_server
from server import Server
from swell.model.member_loss import ON_MEMBER_LOST

from .judge import Picture, judge
from .objects import GROUP as LABEL
from .objects import OF, draw, gang, group
from .rounds import NODES, OPERATORS, play

SEEDS = (1, 2)  # `make soak` plays a hundred
ACTIONS = 12

server = module_server()
tier = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("walk"), kwok=NODES, operators=OPERATORS) as cluster:
        yield cluster


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=tier) for seed in SEEDS])
def test_three_users_do_with_kubectl_what_comes_to_their_minds(seed: int, cluster: Cluster, server: Server) -> None:
    print(f"repeat with: PYTHONPATH=tests .venv/bin/python -m walk.rounds {seed}")
    assert play(seed, cluster, server, ACTIONS) == []


# -- the judge -------------------------------------------------------------------------------------------------------

GANG = gang("anna", "gang-1", 4, 2)
GROUP = group("anna", "group-1", 4, 3)  # two of its three start together


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}


def offered(*held: int | None) -> dict[str, Any]:
    """The GPUs of node a, as Swell sees them; `held`: by which job; None: by nobody."""
    gpus = [{"job": job, "outsiders_mib": 0} for job in held]
    return {"name": "a", "gpus": [*gpus, *({"job": None, "outsiders_mib": 0},) * (8 - len(held))]}


def pod(name: str, of: str, *, on: str = "", phase: str = "Running") -> dict[str, Any]:
    main = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    spec = {"containers": [main], **({"nodeName": on} if on else {})}
    metadata = {"namespace": "anna", "name": name, "labels": {OF: of}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase if on else "Pending"}}


def job(state: str, *, name: str = "gang-1", tasks: int = 2) -> dict[str, Any]:
    reason = {"code": "WaitingForRoom", "message": "m"}
    told = {"id": 1, "user": "anna", "name": name, "state": state, "reason": reason}
    return {**told, "is_array": False, "tasks": {"total": tasks}}


def both(*, on: str = "") -> tuple[dict[str, Any], ...]:
    return tuple(pod(f"gang-1-{rank}", "gang-1", on=on) for rank in range(2))


def given_away(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata["labels"], LABEL: "another"}}}


QUIET = Picture(both(on="a"), (node("a"),), (offered(*(1,) * 8),), (job("running"),), (GANG,))
WAITING = Picture(both(), (node("a"),), (offered(),), (job("queued"),), (GANG,))
WIDER = {**job("queued", name="gang-2", tasks=3), "id": 2}
GIVEN_AWAY = given_away(both()[1])
ANOTHER = job("queued", name="another", tasks=1)
DONE_BEFORE = replace(GANG, done=1)
DONE = pod("gang-1-1", "gang-1", on="a", phase="Succeeded")


@pytest.mark.parametrize(
    ("what", "picture", "said"),
    [
        ("all is well", QUIET, []),
        ("nothing is there", Picture((), (node("a"),), (offered(),), (), ()), []),
        (
            "what has no pods is held",
            replace(QUIET, pods=()),
            ["a: pods hold 0 GPUs; Swell believes job 1: 8 and 0 of others"],
        ),
        (
            "pods hold what Swell does not know",
            replace(QUIET, offered=(offered(*(1,) * 4),)),
            ["a: pods hold 8 GPUs; Swell believes job 1: 4 and 0 of others"],
        ),
        (
            "half a gang runs",
            replace(QUIET, pods=both(on="a")[:1], offered=(offered(*(1,) * 4),)),
            ["Pods anna/gang-1: 1 pods run, and 2 must"],
        ),
        (
            "one of a gang has succeeded",
            replace(QUIET, pods=(both(on="a")[0], DONE), offered=(offered(*(1,) * 4),)),
            [],
        ),
        (
            "one of a gang of plain pods was deleted, and the other runs on",
            replace(QUIET, pods=(pod("gang-1-0", "gang-1", on="a"),), offered=(offered(*(1,) * 4),), jobs=()),
            ["Pods anna/gang-1: 1 pods run, and 2 must"],
        ),
        (
            "one of a gang had succeeded before it was deleted",
            replace(QUIET, pods=both(on="a")[:1], offered=(offered(*(1,) * 4),), things=(DONE_BEFORE,)),
            [],
        ),
        (
            "a pod was given to another group, so that its gang is not complete",
            replace(WAITING, pods=(both()[0], GIVEN_AWAY), jobs=()),
            [],
        ),
        (
            "the other group waits for room",
            replace(WAITING, pods=(*both(on="a"), GIVEN_AWAY), offered=(offered(*(1,) * 8),), jobs=(ANOTHER,)),
            [],
        ),
        (
            "the other group waits in front of free room",
            replace(WAITING, pods=(both()[0], GIVEN_AWAY), jobs=(ANOTHER,)),
            ["job 1 (anna/another, WaitingForRoom) waits (1 pods of 4 GPUs), and free is {'a': 8}"],
        ),
        (
            "a job waits in front of free room",
            WAITING,
            ["job 1 (anna/gang-1, WaitingForRoom) waits (2 pods of 4 GPUs), and free is {'a': 8}"],
        ),
        ("it waits for a node that is cordoned", replace(WAITING, nodes=(node("a", unschedulable=True),)), []),
        (
            "it waits behind one that does not fit",
            replace(WAITING, jobs=(job("queued"), WIDER), things=(GANG, gang("anna", "gang-2", 4, 3))),
            [],
        ),
        (
            "a complete group is no job",
            replace(WAITING, jobs=()),
            ["Pods anna/gang-1, which is no job, waits (2 pods of 4 GPUs), and free is {'a': 8}"],
        ),
        (
            "a group that is not complete waits for its pods",
            replace(WAITING, pods=(pod("group-1-0", "group-1"),), jobs=(), things=(GROUP,)),
            [],
        ),
        (
            "a job waits of which nothing is there",
            replace(WAITING, pods=(), things=()),
            [
                (
                    "job 1 (anna/gang-1, WaitingForRoom), of which nothing is there, waits (0 pods of 1 GPUs), "
                    "and free is {'a': 8}"
                )
            ],
        ),
    ],
)
def test_the_judge_says_what_is_wrong_and_nothing_else(what: str, picture: Picture, said: list[str]) -> None:
    assert judge(picture) == said, what


def test_groups_say_now_and_then_what_becomes_of_them_when_a_pod_is_lost() -> None:
    drawn = [draw(random.Random(seed), "anna", seed) for seed in range(200)]
    told = {
        (thing.kind, of_pods["metadata"].get("annotations", {}).get(ON_MEMBER_LOST))
        for thing in drawn
        if thing.kind in ("Pods", "StatefulSet")
        for document in thing.documents
        for of_pods in [document["spec"].get("template", document)]
    }
    plain = {("Pods", loss) for loss in (None, "restart", "go-on")}
    assert told == plain | {("StatefulSet", loss) for loss in (None, "restart", "wait", "go-on")}
