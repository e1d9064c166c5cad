"""Standing in for jobs that wait, step by step, against an API server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.apiserver import ApiServer, Place
from engines.kubernetes.conftest import access_to
from engines.kubernetes.storage import Refusal
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.errors import Denied
from swell.kubectl.placeholder_pods import (
    REFUSED_S,
    SETTLED_S,
    STAND_INS_MAX,
    STEPS_MAX,
    PlaceholderPods,
    make_placeholder,
    placeholder_name,
)
from swell.model.resources import Resources
from swell.planner import Group, Shortage

STORE, NAMESPACE = "0123456789abcdef", "swell"
PATIENCE_S = 20.0
ROUNDS_MAX = 100  # the watch shows what was told a moment later; until then it is told again
TASK = Resources(1000, 512, 8)


def short(job: int, tasks: int = 1) -> Shortage:
    return Shortage(job, (Group(TASK, tasks, None),))


class Stamping(ApiServer):
    """It says when a pod was made, and has a quota."""

    pods_max = 1000

    def _post(self, place: Place, body: dict[str, Any]) -> dict[str, Any]:
        if len(self.storage.state("pods")) >= self.pods_max:
            raise Refusal(403, "Forbidden", f"pods {body['metadata']['name']!r} is forbidden: exceeded quota: few")
        metadata = {**body["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}
        return super()._post(place, {**body, "metadata": metadata})


class Stage:
    def __init__(self, folder: Path) -> None:
        self.server = Stamping(folder / "token")
        self.port = ApiClient(access_to(self.server), answer_s=5.0)
        self._news = threading.Event()
        self.cluster = Cluster(self.port, lambda *_: self._news.set())
        self.line: Sequence[Shortage] | None = ()
        self.has_pods: set[int] = set()
        self.now = 0.0
        self.restart()

    def __enter__(self) -> Stage:
        assert self.cluster.start(PATIENCE_S) is None
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()
        self.port.close()
        self.server.close()

    def restart(self) -> None:
        """A new server of ours."""
        self.stand_ins = PlaceholderPods(
            self.port,
            self.cluster,
            lambda: self.line,
            store=STORE,
            namespace=NAMESPACE,
            has_pods=self.has_pods.__contains__,
            now=lambda: 1000.0,
            monotonic=lambda: self.now,
        )

    def put(self, job: int, *, store: str = STORE, namespace: str = NAMESPACE) -> str:
        """One that is there from before, and has not said anything: its name."""
        made = make_placeholder(TASK, None, job=job, role=0, rank=0, store=store, namespace=namespace)
        metadata = {**made["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}
        name = str(metadata["name"])
        self.server.storage.create("pods", (namespace, name), {**made, "metadata": metadata})
        return name

    def line_up(self, *line: Shortage) -> None:
        """And wait until nobody thinks any more that they get room in a moment."""
        self.line = line
        self.stand_ins.look()
        self.now += SETTLED_S

    def converge(self) -> list[str]:
        """The names of those that are there when nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            if not self.stand_ins.look():
                return self.names()
            self.stand_ins.converge()
            self._await_shown()
        raise AssertionError(f"there is always something to do: {self.stand_ins.look()}")

    def _await_shown(self) -> None:
        """Until the watch shows what is there."""
        while {pod.name for pod in self.cluster.stand_ins(STORE)} != set(self._ours()):
            assert self._news.wait(PATIENCE_S)
            self._news.clear()

    def _ours(self) -> list[str]:
        pods = self.server.storage.state("pods").values()
        return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"]["swell.dev/store"] == STORE]

    def names(self) -> list[str]:
        return sorted(name for _, name in self.server.storage.state("pods"))

    def asked(self, method: str) -> int:
        return sum(request.method == method for request in self.server.seen)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Nothing is watched before it is entered."""
    return Stage(tmp_path)


def names(*ranks: tuple[int, int]) -> list[str]:
    return [placeholder_name(STORE, job, rank) for job, rank in ranks]


def test_a_job_that_waits_for_a_moment_only_is_left_alone(stage: Stage) -> None:
    with stage:
        stage.line = (short(7),)
        assert stage.converge() == []
        stage.now += SETTLED_S - 0.1
        assert stage.converge() == []
        stage.now += 0.1
        assert stage.converge() == names((7, 0))


def test_they_say_that_they_cannot_be_placed_and_for_whom_they_stand(stage: Stage) -> None:
    with stage:
        stage.line_up(short(7))
        stage.converge()
        [pod] = stage.server.storage.state("pods").values()
    assert pod["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "job 7 of Swell waits for nodes that can hold it; this pod stands in for one of its tasks",
            "lastTransitionTime": "1970-01-01T00:16:40Z",
        }
    ]


def test_they_go_as_soon_as_their_job_does_not_wait_for_nodes_any_more(stage: Stage) -> None:
    with stage:
        stage.line_up(short(7, 2), short(8))
        assert stage.converge() == names((7, 0), (7, 1), (8, 0))
        stage.line = (short(8),)
        assert stage.converge() == names((8, 0))
        stage.line = ()
        assert stage.converge() == []


def test_a_job_whose_own_pods_wait_needs_none(stage: Stage) -> None:
    with stage:
        stage.has_pods.add(7)
        stage.line_up(short(7), short(8))
        assert stage.converge() == names((8, 0))


def test_nothing_is_made_or_removed_before_somebody_has_planned(stage: Stage) -> None:
    left = stage.put(7)
    with stage:
        stage.line = None
        assert stage.converge() == [left]
    assert stage.asked("DELETE") == 0


def test_what_an_earlier_server_left_is_kept_told_or_removed_and_what_is_not_ours_is_left_alone(stage: Stage) -> None:
    kept, orphan = stage.put(7), stage.put(8)
    others = [stage.put(9, store="fedcba9876543210"), stage.put(10, namespace="elsewhere")]
    uid = stage.server.storage.get("pods", (NAMESPACE, kept))["metadata"]["uid"]
    with stage:
        stage.line = (short(7),)  # it has waited long enough: its pod is there
        assert stage.converge() == sorted([kept, *others])
    found = stage.server.storage.get("pods", (NAMESPACE, kept))
    assert (found["metadata"]["uid"], found["status"]["conditions"][0]["reason"]) == (uid, "Unschedulable")
    assert orphan not in stage.names()


def test_a_server_that_comes_back_before_the_watch_shows_anything_makes_nothing_twice(stage: Stage) -> None:
    with stage:
        stage.line_up(short(7, 2))
        stage.stand_ins.converge()
        made = stage.server.storage.state("pods")
        stage.restart()
        stage.line_up(short(7, 2))
        stage.converge()
        assert {key: pod["metadata"]["uid"] for key, pod in stage.server.storage.state("pods").items()} == {
            key: pod["metadata"]["uid"] for key, pod in made.items()
        }


def test_a_gang_that_a_quota_halves_has_none_and_the_next_has_its_own(stage: Stage) -> None:
    stage.server.pods_max = 2
    with stage:
        stage.line_up(short(7, 3), short(8))
        assert stage.converge() == names((8, 0))
        stage.server.pods_max = 4
        stage.now += REFUSED_S
        assert stage.converge() == names((7, 0), (7, 1), (7, 2), (8, 0))


def test_what_our_role_does_not_allow_is_not_the_jobs_fault(stage: Stage) -> None:
    with stage:
        stage.server.denied["POST", "pods"] = 'pods is forbidden: User "swell" cannot create resource "pods"'
        stage.line_up(short(7))
        with pytest.raises(Denied, match="lacks the verb 'create'"):
            stage.stand_ins.converge()


def test_few_at_a_time_and_never_more_than_the_limit(stage: Stage) -> None:
    with stage:
        stage.line_up(*(short(job) for job in range(1, STAND_INS_MAX + 50)))
        assert len(stage.stand_ins.look()) == STAND_INS_MAX
        assert stage.stand_ins.converge() is True
        assert len(stage.names()) == STEPS_MAX
