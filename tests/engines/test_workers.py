"""The workers engine: what workers are told, and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.engines.workers import Answer, Report, WorkersEngine
from swell.engines.workers.engine import SILENCE_S
from swell.errors import Unavailable
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import (
    Lane,
    Launch,
    LaunchRole,
    Observation,
    RunSeen,
    TaskSeen,
    node_document,
    parse_node,
)
from swell.model.placement import Effect, Taint

NODE = Node("a", 4000, 8192)


def launch(
    job: int, *, generation: int = 1, node: str = "a", is_stopping: bool = False, grace_s: float = 30.0
) -> Launch:
    return Launch(
        attempt=AttemptId(job, 1),
        node=node,
        generation=generation,
        revision=1,
        name="j",
        roles=(LaunchRole(("true",)),),
        workdir="/",
        umask=0o022,
        environment="e",
        env=(),
        own=(),
        lanes=(Lane(0, ()),),
        indices="0",
        is_array=False,
        world_size=1,
        nodes=(node,),
        time_limit_s=None,
        grace_s=grace_s,
        is_stopping=is_stopping,
    )


class Bench:
    """An engine with a clock in our hands."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.wakes = 0
        self.engine = WorkersEngine(folder, wake=self.wake, monotonic=lambda: self.now)

    def wake(self) -> None:
        self.wakes += 1

    def say(
        self, *, tasks: tuple[TaskSeen, ...] = (), runs: tuple[RunSeen, ...] = (), busy: float | None = None
    ) -> None:
        self.engine.sync(Report(NODE, 0, tasks, runs, busy))

    def told(self, version: int = 0) -> Answer:
        answer = self.engine.answer("a", version)
        assert answer is not None
        return answer


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.open(1)
    return bench


def test_a_server_that_is_still_loading_answers_no_worker(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.engine.answer("a", 0) is None
    with pytest.raises(Unavailable, match="still loading"):
        bench.say()


def test_a_worker_is_told_what_is_on_its_node_and_nothing_else(bench: Bench) -> None:
    bench.engine.start((launch(1), launch(1, node="b")))
    assert bench.told().launches == (launch(1),)


def test_a_worker_that_is_up_to_date_is_told_nothing(bench: Bench) -> None:
    bench.engine.start((launch(1),))
    assert bench.engine.answer("a", bench.told().version) is None


def test_two_starts_under_one_generation_are_two_versions(bench: Bench) -> None:
    """A worker asked between the two and then never heard of the second: both carried the same version."""
    bench.engine.start((launch(1, generation=7),))
    first = bench.told()
    bench.engine.start((launch(2, generation=7),))
    assert bench.told(first.version).launches == (launch(1, generation=7), launch(2, generation=7))


def test_a_restarted_server_has_newer_versions_than_the_one_before(tmp_path: Path) -> None:
    before, after = Bench(tmp_path), Bench(tmp_path)
    before.engine.open(3)
    for job in range(100):
        before.engine.start((launch(job, generation=3),))
    after.engine.open(4)
    assert after.told().version > before.told().version


def test_the_same_launch_twice_is_harmless(bench: Bench) -> None:
    bench.engine.start((launch(1),))
    bench.engine.start((launch(1),))
    assert bench.told().launches == (launch(1),)


def test_stopping_tells_the_worker_and_a_shorter_grace_wins(bench: Bench) -> None:
    bench.engine.start((launch(1),))
    bench.engine.stop(AttemptId(1, 1), 10.0, 2)
    bench.engine.stop(AttemptId(1, 1), 20.0, 3)
    assert bench.told().launches == (launch(1, generation=2, is_stopping=True, grace_s=10.0),)
    bench.engine.stop(AttemptId(1, 1), 0.0, 4)
    assert bench.told().launches == (launch(1, generation=4, is_stopping=True, grace_s=0.0),)


def test_stopping_or_forgetting_an_unknown_attempt_is_success(bench: Bench) -> None:
    bench.engine.stop(AttemptId(9, 9), 10.0, 2)
    bench.engine.forget(AttemptId(9, 9))
    assert bench.told().launches == ()


def test_what_workers_say_is_seen_once_as_task_and_always_as_run(bench: Bench) -> None:
    task = TaskSeen(AttemptId(1, 1), 0, "a", 0, 5.0)
    run = RunSeen(AttemptId(1, 1), "a", 1, (0,), 0, False)
    bench.engine.start((launch(1),))
    bench.say(tasks=(task,), runs=(run,))
    assert bench.engine.observe() == Observation((NODE,), (task,), (run,), {})
    assert bench.engine.observe() == Observation((NODE,), (), (run,), {})


def test_words_about_an_attempt_nobody_wants_are_not_kept(bench: Bench) -> None:
    bench.say(tasks=(TaskSeen(AttemptId(8, 1), 0, "a", 0, 5.0),), runs=(RunSeen(AttemptId(8, 1), "a", 1, (), 0, True),))
    assert bench.engine.observe() == Observation((NODE,), (), (), {})


def test_only_news_wake_the_controller(bench: Bench) -> None:
    bench.engine.start((launch(1),))
    bench.say()
    assert bench.wakes == 1
    bench.say()
    assert bench.wakes == 1
    bench.say(runs=(RunSeen(AttemptId(1, 1), "a", 1, (0,), 0, False),))
    bench.say(runs=(RunSeen(AttemptId(1, 1), "a", 1, (0,), 0, False),))
    assert bench.wakes == 2


def test_a_silent_worker_is_out_of_reach_until_it_speaks_again(bench: Bench) -> None:
    bench.say()
    bench.now = SILENCE_S + 1
    seen = bench.engine.observe()
    assert (seen.nodes[0].is_reachable, seen.silent_s) == (False, {"a": SILENCE_S + 1})
    bench.say()
    assert bench.engine.observe() == Observation((NODE,), (), (), {})


def test_how_busy_gpus_are_wakes_nobody_and_is_forgotten_when_the_worker_is_silent(bench: Bench) -> None:
    bench.say()
    bench.wakes = 0
    assert bench.engine.gpu_utilizations() == {}
    bench.say(busy=0.25)
    bench.say(busy=0.75)
    assert (bench.engine.gpu_utilizations(), bench.wakes) == ({"a": 0.75}, 0)
    bench.now += 61
    assert bench.engine.gpu_utilizations() == {}


def test_what_only_a_clusters_nodes_have_is_not_asked_of_workers():
    node = Node(
        "a", 4000, 8192, labels=(("zone", "b"),), taints=(Taint("gpu", "", Effect.NO_SCHEDULE),), is_cordoned=True
    )
    assert node_document(node) == node_document(NODE)
    assert parse_node(node_document(node)) == NODE
