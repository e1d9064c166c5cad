"""What is removed of a job that is over, and when? With real pods and objects: test_engine.py, on a real cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from engines.kubernetes.pieces import ended, make_pod, running
from swell.engines.kubernetes.attempt.leftovers import AGAIN_S, Leftovers
from swell.engines.kubernetes.objects.objects import ObjectSeen
from swell.engines.kubernetes.watch.observed_objects import JOB, PodSeen
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.errors import NotFound, Unavailable


@dataclass
class Cluster:
    """Has pods, and objects of kinds that nobody asks about."""

    pods: dict[int, list[PodSeen]] = field(default_factory=dict)
    objects: dict[int, list[Any]] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=lambda: {"JobSet": "jobsets"})

    def jobs_of(self, _: str) -> set[int]:
        return set(self.pods)

    def pods_of_job(self, key: tuple[str, str]) -> list[PodSeen]:
        return self.pods.get(int(key[1]), [])

    def objects_of_job(self, key: tuple[str, str]) -> list[Any]:
        return self.objects.get(int(key[1]), [])


@dataclass
class Port:
    """Answers each deletion with what is next in line, and in the end well."""

    failures: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    claims: dict[str, dict[str, str]] = field(default_factory=dict)  #: name → labels

    def get(self, _resource: Any, name: str, _namespace: str) -> dict[str, Any]:
        if name not in self.claims:
            raise NotFound(name)
        return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": self.claims[name]}}

    def delete(self, _resource: Any, name: str, *_: Any, **__: Any) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.deleted.append(name)


def of(job: int) -> dict[str, Any]:
    return {"name": f"of-{job}", "owner": None, "labels": {STORE: "store", JOB: str(job)}}


OBJECT = ObjectSeen(
    kind="JobSet",
    namespace="ml",
    name="train",
    uid="u",
    version="1",
    job="7",
    store="store",
    attempt=None,
    is_suspended=True,
    is_deleting=False,
    verdict=None,
    groups=(),
    pods_attempt=None,
)


def made(
    port: Port, pods: Iterable[PodSeen], *, over: Iterable[int] = (), places: dict[int, frozenset[str]] | None = None
) -> Leftovers:
    there: dict[int, list[PodSeen]] = defaultdict(list)
    for one in pods:
        there[int(one.labels[JOB])].append(one)
    known, cluster = set(over), Cluster(there)
    of_jobs = frozenset({"team"}).union(*(places or {}).values())
    where = (places or {}).get
    return Leftovers(port, cluster, "store", known.__contains__, where, of_jobs=lambda: of_jobs)  # type: ignore[arg-type]


def passes(leftovers: Leftovers, *moments: float, active: Iterable[int] = ()) -> None:
    known = set(active)
    for at in moments:
        for call in leftovers.calls(known.__contains__, at):
            call()


@pytest.fixture
def port() -> Port:
    return Port()


def test_it_is_removed_when_it_is_due_and_once(port: Port) -> None:
    leftovers = made(port, [make_pod(**of(7)), make_pod(**of(8))])
    leftovers.add(7, 160.0)
    leftovers.add(8, 190.0)
    passes(leftovers, 100.0, 159.0)
    assert port.deleted == []
    passes(leftovers, 160.0, 161.0)
    assert port.deleted == ["of-7"]
    passes(leftovers, 190.0, 300.0)
    assert port.deleted == ["of-7", "of-8"]


def test_one_that_was_started_again_meanwhile_keeps_it_also_when_it_has_ended(port: Port) -> None:
    leftovers = made(port, [make_pod(**of(7))])
    leftovers.add(7, 160.0)
    passes(leftovers, 110.0, active=[7])
    passes(leftovers, 300.0)
    assert port.deleted == []


def test_a_removal_that_fails_is_tried_again(port: Port) -> None:
    port.failures = [Unavailable("the API server is away")]
    leftovers = made(port, [make_pod(**of(7))])
    leftovers.add(7, 100.0)
    passes(leftovers, 100.0, 100.0 + AGAIN_S - 1)
    assert port.deleted == []
    passes(leftovers, 100.0 + AGAIN_S)
    assert port.deleted == ["of-7"]


def test_what_a_server_before_did_not_live_to_remove_is_found_at_the_start(port: Port) -> None:
    pods = [ended(**of(7)), make_pod(**of(8)), ended(**of(9))]
    passes(made(port, pods, over=[7, 8]), 100.0)
    assert port.deleted == ["of-7"]


def test_a_copy_that_somebody_has_made_elsewhere_with_its_labels_is_left_alone(port: Port) -> None:
    """`kubectl get pod -o yaml`, another namespace, `kubectl apply`: the copy went with the job. Its namespace is known
    from when it was asked for, also where the job is not any more, and when the removal fails at first."""
    copy = make_pod(**{**of(7), "name": "copy"}, namespace="elsewhere")
    port.failures = [Unavailable("the API server is away")]
    places = {7: frozenset({"team"})}
    leftovers = made(port, [copy, make_pod(**of(7))], places=places)
    leftovers.add(7, 100.0)
    places.clear()
    passes(leftovers, 100.0, 100.0 + AGAIN_S)
    assert port.deleted == ["of-7"]


def test_of_a_job_that_is_not_known_any_more_only_what_is_where_jobs_run_is_removed(port: Port) -> None:
    """After a restart its labels alone were believed, in every namespace: whoever wrote them on a pod of their own lost
    that pod."""
    copy = ended(**{**of(7), "name": "copy"}, namespace="elsewhere")
    leftovers = made(port, [copy, ended(**of(7))], over=[7])
    passes(leftovers, 100.0)
    assert port.deleted == ["of-7"]


CLAIM = ("team", "train-shared")


def with_claim(port: Port, *seen: Any, has_ended: bool = True, job: int = 7) -> Leftovers:
    """The claim of job 7, whose attempt is over. `seen`: its pods and objects."""
    port.claims = {CLAIM[1]: {STORE: "store", JOB: str(job)}}
    pods = [one for one in seen if isinstance(one, PodSeen)]
    cluster: Any = Cluster({7: pods}, {7: [one for one in seen if one not in pods]})
    anything: Any = port
    of_jobs = frozenset({"team", "ml"})
    return Leftovers(
        anything, cluster, "store", lambda _: False, lambda _: None, lambda _: has_ended, of_jobs=lambda: of_jobs
    )


def test_the_volume_of_a_job_that_has_ended_goes_at_once(port: Port) -> None:
    leftovers = with_claim(port)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0, 101.0)
    assert port.deleted == ["train-shared"]


def test_with_its_volume_go_the_ended_pods_that_mount_it(port: Port) -> None:
    """Kubernetes keeps a claim as long as a pod names it, also one that has ended; its storage was never given back."""
    mounting = replace(ended(**of(7)), claims=(CLAIM[1],))
    other = replace(ended(**{**of(7), "name": "other"}), claims=("data",))
    leftovers = with_claim(port, mounting, other)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0)
    assert port.deleted == ["train-shared", "of-7"]


def test_a_pod_that_is_still_being_stopped_is_waited_for(port: Port) -> None:
    stopping = replace(running(**of(7)), claims=(CLAIM[1],))
    leftovers = with_claim(port, stopping)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0)
    assert port.deleted == ["train-shared"]
    leftovers._cluster.pods[7] = [replace(ended(**of(7)), claims=(CLAIM[1],))]  # type: ignore[attr-defined]
    passes(leftovers, 100.0 + AGAIN_S)
    assert port.deleted == ["train-shared", "train-shared", "of-7"]
    leftovers._cluster.pods[7] = []  # type: ignore[attr-defined]
    passes(leftovers, 100.0 + 2 * AGAIN_S)
    port.deleted.clear()
    passes(leftovers, 200.0)
    assert port.deleted == []


def test_the_volume_of_a_job_that_is_to_run_again_stays(port: Port) -> None:
    leftovers = with_claim(port, has_ended=False)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0, 200.0)
    assert port.deleted == []


def test_a_claim_of_that_name_that_is_not_the_jobs_stays(port: Port) -> None:
    leftovers = with_claim(port, job=8)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0)
    assert port.deleted == []


def test_a_claim_that_cannot_be_removed_is_tried_again_later_and_one_that_is_gone_is_not(port: Port) -> None:
    port.failures = [Unavailable("the API server is away")]
    leftovers = with_claim(port)
    leftovers.add_claim(7, 100.0, *CLAIM)
    passes(leftovers, 100.0, 100.0 + AGAIN_S - 1)
    assert port.deleted == []
    port.claims.clear()
    passes(leftovers, 100.0 + AGAIN_S, 200.0)
    assert port.deleted == []


def test_a_volume_that_a_server_before_did_not_live_to_remove_is_found_by_its_object(port: Port) -> None:
    leftovers = with_claim(port, ended(**of(7)), replace(OBJECT, claim=CLAIM[1]))
    passes(leftovers, 100.0, 101.0)
    assert port.deleted == ["train-shared"]


def test_with_the_object_of_a_cancelled_job_its_volume_goes(port: Port) -> None:
    leftovers = with_claim(port, replace(OBJECT, claim=CLAIM[1]), has_ended=False)
    leftovers.add(7, 100.0)
    passes(leftovers, 100.0)
    assert port.deleted == ["train-shared", "train"]
