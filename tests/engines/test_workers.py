"""The workers engine: what workers are told, and what they say."""

from __future__ import annotations

import errno
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.engines import SILENCE_S
from swell.engines.logfolder import LogFolder
from swell.engines.workers import DesiredSet, WorkerReport, WorkersEngine, desired, registry
from swell.engines.workers.received_logs import ReceivedLogs
from swell.errors import Conflict, Unavailable
from swell.machine import state_folder
from swell.model.assignment import Assignment
from swell.model.cluster import BackendJob, Node
from swell.model.job import AttemptId
from swell.model.launch import (
    KEEP,
    Lane,
    Launch,
    LaunchRole,
    Observation,
    Rendezvous,
    RunSeen,
    TaskSeen,
    WorkerTerms,
    node_document,
    parse_node,
)
from swell.model.placement import Effect, Taint
from swell.model.plan import Slot
from swell.model.resources import NOTHING

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
        environment="e" * 64,
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


def assignment(job: int, *nodes: str, generation: int = 1) -> Assignment:
    """A gang of one rank on each node, of which `launch` is the part of one."""
    nodes = nodes or ("a",)
    return Assignment(
        attempt=AttemptId(job, 1),
        generation=generation,
        revision=1,
        name="j",
        width=1,
        roles=(LaunchRole(("true",)),),
        slots=tuple(Slot(rank, node, NOTHING) for rank, node in enumerate(nodes)),
        role_of_rank=(),
        indices="",
        is_array=False,
        tasks=len(nodes),
        nodes=nodes,
        workdir="/",
        umask=0o022,
        environment="e" * 64,
        env=(),
        own=(),
        time_limit_s=None,
        grace_s=30.0,
    )


class Bench:
    """An engine with a clock in our hands."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.wakes = 0
        self.engine = WorkersEngine(folder, wake=self.wake, monotonic=lambda: self.now)
        self.rung: list[set[str]] = []  #: whose long polls were told to look
        self.engine.on_desired = lambda nodes: self.rung.append(set(nodes))

    def wake(self) -> None:
        self.wakes += 1

    def say(
        self, *, tasks: tuple[TaskSeen, ...] = (), runs: tuple[RunSeen, ...] = (), busy: float | None = None
    ) -> None:
        self.engine.sync(WorkerReport(NODE, 0, tasks, runs, busy))

    def told(self, version: int = 0, *, node: str = "a") -> DesiredSet:
        answer = self.engine.answer(node, version)
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
    bench.engine.start(assignment(1, "a", "b"))
    assert bench.told().launches == (replace(launch(1), world_size=2, nodes=("a", "b")),)


def test_a_worker_that_is_up_to_date_is_told_nothing(bench: Bench) -> None:
    bench.engine.start(assignment(1))
    assert bench.engine.answer("a", bench.told().version) is None


def test_what_changes_for_one_worker_is_no_news_for_another(bench: Bench) -> None:
    """Each start was told to all of two hundred workers, whose long polls were answered and asked again."""
    before = {node: bench.told(node=node).version for node in "ab"}
    bench.engine.start(assignment(1, "a"))
    bench.engine.stop(AttemptId(1, 1), 5.0, 2)
    assert (bench.told(before["a"]).launches, bench.engine.answer("b", before["b"])) == (
        (launch(1, generation=2, is_stopping=True, grace_s=5.0),),
        None,
    )
    assert bench.rung == [{"a"}, {"a"}]


def test_that_an_attempt_is_forgotten_is_told_with_the_next_request_and_wakes_nobody(bench: Bench) -> None:
    bench.engine.start(assignment(1))
    version, bench.rung = bench.told().version, []
    bench.engine.forget(AttemptId(1, 1))
    assert (bench.told(version).launches, bench.rung) == ((), [])


def test_a_worker_that_was_given_up_and_comes_back_is_told_that_it_has_nothing_to_run(bench: Bench) -> None:
    bench.engine.sync(remote())
    bench.engine.start(assignment(1, "b"))
    version = bench.told(node="b").version
    bench.engine.declare_lost("b", "it burned")
    bench.engine.sync(remote())
    assert bench.told(version, node="b").launches == ()


def test_many_workers_that_have_left_are_not_remembered_and_nobody_misses_a_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desired, "VERSIONS_MAX", 10)
    bench.engine.start(assignment(1, "a"))
    version = bench.told().version
    bench.engine.stop(AttemptId(1, 1), 5.0, 1)
    for job in range(2, 30):
        bench.engine.start(assignment(job, f"n{job}"))
        bench.engine.forget(AttemptId(job, 1))
    assert bench.told(version).launches == (launch(1, is_stopping=True, grace_s=5.0),)
    assert len(bench.engine._desired._versions) <= 10


def test_two_starts_under_one_generation_are_two_versions(bench: Bench) -> None:
    """A worker asked between the two and then never heard of the second: both carried the same version."""
    bench.engine.start(assignment(1, generation=7))
    first = bench.told()
    bench.engine.start(assignment(2, generation=7))
    assert bench.told(first.version).launches == (launch(1, generation=7), launch(2, generation=7))


def test_a_restarted_server_has_newer_versions_than_the_one_before(tmp_path: Path) -> None:
    before, after = Bench(tmp_path), Bench(tmp_path)
    before.engine.open(3)
    for job in range(100):
        before.engine.start(assignment(job, generation=3))
    after.engine.open(4)
    assert after.told().version > before.told().version


def test_the_same_launch_twice_is_harmless(bench: Bench) -> None:
    bench.engine.start(assignment(1))
    bench.engine.start(assignment(1))
    assert bench.told().launches == (launch(1),)


def test_stopping_tells_the_worker_and_a_shorter_grace_wins(bench: Bench) -> None:
    bench.engine.start(assignment(1))
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
    bench.engine.start(assignment(1))
    bench.say(tasks=(task,), runs=(run,))
    assert bench.engine.observe() == Observation((NODE,), (task,), (run,), {})
    assert bench.engine.observe() == Observation((NODE,), (), (run,), {})


def test_words_about_an_attempt_nobody_wants_are_not_kept(bench: Bench) -> None:
    bench.say(tasks=(TaskSeen(AttemptId(8, 1), 0, "a", 0, 5.0),), runs=(RunSeen(AttemptId(8, 1), "a", 1, (), 0, True),))
    assert bench.engine.observe() == Observation((NODE,), (), (), {})


def test_only_news_wake_the_controller(bench: Bench) -> None:
    bench.engine.start(assignment(1))
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


def told_to(engine: WorkersEngine, node: str) -> Launch:
    answer = engine.answer(node, 0)
    assert answer is not None
    assert answer.launches is not None
    return answer.launches[0]


def test_a_gang_on_two_machines_meets_at_a_port_that_is_free_on_the_machine_of_rank_0(bench: Bench) -> None:
    """Each worker told its own ranks 127.0.0.1 and a port of its own, so ranks on two machines never met."""
    engine, attempt = bench.engine, AttemptId(1, 1)
    engine.start(assignment(1, "a", "b"))
    for node, address in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
        engine.sync(WorkerReport(replace(NODE, id=node, address=address), 0, (), ()))
    assert [told_to(engine, node).waits_for_rendezvous for node in "ab"] == [True, True]
    for node, address, port in (("a", "10.0.0.1", 4001), ("b", "10.0.0.2", 4002)):
        run = RunSeen(attempt, node, 1, (), 1, False, port=port)
        engine.sync(WorkerReport(replace(NODE, id=node, address=address), 0, (), (run,)))
    agreed = Rendezvous(4001, ("10.0.0.1", "10.0.0.2"), (0, 1))
    assert [told_to(engine, node).rendezvous for node in "ab"] == [agreed, agreed]
    engine.start(assignment(1, "a", "b", generation=2))
    assert [told_to(engine, node).rendezvous for node in "ab"] == [agreed, agreed]


def test_a_gang_on_two_machines_waits_for_a_worker_that_has_not_taken_its_part_on(bench: Bench) -> None:
    engine = bench.engine
    engine.start(assignment(1, "a", "b"))
    run = RunSeen(AttemptId(1, 1), "a", 1, (), 1, False, port=4001)
    engine.sync(WorkerReport(replace(NODE, address="10.0.0.1"), 0, (), (run,)))
    engine.sync(WorkerReport(replace(NODE, id="b", address="10.0.0.2"), 0, (), ()))
    assert told_to(engine, "a").waits_for_rendezvous


@pytest.mark.parametrize("address", ["10.0.0.1", "fe80::1", "node-7.cluster.local", ""])
def test_what_a_worker_says_of_its_address_is_believed_when_it_can_be_one(address: str) -> None:
    assert parse_node(node_document(replace(NODE, address=address))).address == address


@pytest.mark.parametrize("address", ["a b", "x;reboot", "$(id)", "a,b", "-x", "a" * 300, "a\nb"])
def test_what_cannot_be_the_address_of_a_machine_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a machine"):
        parse_node(node_document(replace(NODE, address=address)))


def array_run(node: str, held: str, left: int) -> RunSeen:
    return RunSeen(AttemptId(1, 1), node, 1, (), left, False, held=held)


def test_an_array_on_two_machines_is_dealt_so_that_no_index_is_at_both(bench: Bench) -> None:
    """Each worker was told all indices, and each would have run all of them."""
    engine = bench.engine
    engine.start(replace(assignment(1, "a", "b"), is_array=True, indices="0-9", tasks=10))
    assert [(told_to(engine, node).indices, told_to(engine, node).may_get_more) for node in "ab"] == [(KEEP, True)] * 2
    for node in "ab":
        engine.sync(WorkerReport(replace(NODE, id=node), 0, (), (array_run(node, "", 0),)))
    assert [told_to(engine, node).indices for node in "ab"] == ["0-1", "2-3"]
    assert {run.node: run.left for run in engine.observe().runs} == {"a": 1, "b": 1}  # there is more to come
    engine.declare_lost("b", "it burned")
    begun = TaskSeen(AttemptId(1, 1), 0, "a", 0, 5.0)
    engine.sync(WorkerReport(NODE, 0, (begun,), (array_run("a", "0-1", 1),)))
    assert (told_to(engine, "a").indices, bench.told(node="b").launches) == ("0-5", ())
    seen = engine.observe()
    assert [(run.node, run.is_finished) for run in seen.runs] == [("a", False), ("b", True)]


def remote(node: str = "b", *, lease_s: float = 100.0, **terms: Any) -> WorkerReport:
    report = WorkerReport(replace(NODE, id=node), 0, (), ())
    return replace(report, terms=WorkerTerms(lease_s, **terms), key="k" * 40)


def test_the_tasks_of_a_silent_worker_begin_elsewhere_only_when_its_lease_is_over_for_a_while(bench: Bench) -> None:
    engine = bench.engine
    engine.sync(remote())
    engine.start(assignment(1, "b"))
    bench.now = 159.0
    seen = engine.observe()
    assert (seen.tasks, seen.runs, seen.silent_s) == ((), (), {"b": 159.0})
    bench.now = 161.0
    seen = engine.observe()
    assert [(task.index, task.node, task.cause, task.has_run) for task in seen.tasks] == [(0, "b", "node-lost", False)]
    assert [(run.node, run.is_finished) for run in seen.runs] == [("b", True)]
    assert seen.nodes == ()
    engine.sync(replace(remote(), runs=(RunSeen(AttemptId(1, 1), "b", 1, (0,), 0, False),)))  # it comes back
    assert bench.told(node="b").launches == ()
    assert [run.is_finished for run in engine.observe().runs] == [True]


def test_what_a_lost_machine_wrote_is_taken_when_it_comes_back_and_from_no_other(bench: Bench, tmp_path: Path) -> None:
    """The last minutes of a machine that was unplugged were the ones that somebody wanted to read."""
    engine, attempt = bench.engine, AttemptId(1, 1)
    engine.sync(remote())
    engine.start(assignment(1, "b"))
    assert engine.write_log("b", attempt, 0, 0, b"seen\n") == 5
    bench.now = 161.0
    engine.observe()
    engine.forget(attempt)
    engine.sync(replace(remote(), key="x" * 40))  # another machine has its name meanwhile
    assert engine.write_log("b", attempt, 0, 5, b"forged\n") is None
    engine.leave("b")
    engine.sync(remote())
    sizes = [engine.write_log("b", attempt, index, 5, b"unseen\n") for index in (0, 1)]
    assert sizes == [12, None]
    assert engine.read_log(attempt, 0, 0, 100) == (0, b"seen\nunseen\n")
    engine.erase(attempt)
    assert engine.write_log("b", attempt, 0, 12, b"too late\n") is None


def test_a_lost_machine_adds_nothing_to_the_log_of_a_task_of_an_array_that_is_done_once_more(bench: Bench) -> None:
    engine, attempt = bench.engine, AttemptId(1, 1)
    engine.sync(remote())
    engine.start(replace(assignment(1, "a", "b"), is_array=True, indices="0-3"))
    bench.now = 161.0
    engine.observe()
    engine.sync(remote())
    assert engine.write_log("b", attempt, 0, 0, b"of before\n") is None


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0, 1e9])
def test_times_of_a_worker_whose_clock_is_wrong_are_told_by_the_servers_clock(tmp_path: Path, ahead_s: float) -> None:
    """An hour that never passed counted against the time limit of a job, and in the use of its user."""
    engine = WorkersEngine(tmp_path, wake=lambda: None, monotonic=lambda: 0.0, now=lambda: 1.7e9)
    engine.open(1)
    engine.start(assignment(1, "b"))
    clock = 1.7e9 + ahead_s
    told = TaskSeen(AttemptId(1, 1), 0, "b", 0, clock - 20.0)
    engine.sync(replace(remote(), tasks=(told,), now=clock))
    engine.sync(replace(remote(), tasks=(replace(told, ended_at=clock - 5.0, exit_code=0),), now=clock - 3.0))
    begun = TaskSeen(AttemptId(1, 1), 0, "b", 0, 1.7e9 - 20.0)
    assert engine.observe().tasks == (begun, replace(begun, ended_at=1.7e9 - 5.0, exit_code=0))


def test_a_clock_that_is_about_right_is_believed(tmp_path: Path) -> None:
    """Requests take their time: to correct what is right would make it wrong."""
    engine = WorkersEngine(tmp_path, wake=lambda: None, monotonic=lambda: 0.0, now=lambda: 1.7e9)
    engine.open(1)
    engine.start(assignment(1, "b"))
    told = TaskSeen(AttemptId(1, 1), 0, "b", 0, 1.7e9 - 40.0)
    engine.sync(replace(remote(), tasks=(told,), now=1.7e9 - 30.0))
    assert engine.observe().tasks == (told,)


def test_a_worker_that_cannot_take_its_part_on_holds_up_its_gang(bench: Bench) -> None:
    """It tells why, and has no port: its ranks are not there to be met."""
    bench.engine.start(assignment(1, "a", "b"))
    address = replace(NODE, address="10.0.0.1")
    waiting = RunSeen(AttemptId(1, 1), "b", 1, (), 1, False, trouble="the disk is full")
    bench.engine.sync(WorkerReport(address, 0, (), (RunSeen(AttemptId(1, 1), "a", 1, (), 1, False, port=4000),)))
    bench.engine.sync(WorkerReport(replace(address, id="b"), 0, (), (waiting,)))
    assert told_to(bench.engine, "a").rendezvous is None
    bench.engine.sync(WorkerReport(replace(address, id="b"), 0, (), (replace(waiting, trouble="", port=4001),)))
    assert told_to(bench.engine, "a").rendezvous == Rendezvous(4000, ("10.0.0.1", "10.0.0.1"), (0, 1))


def test_a_server_that_restarts_waits_for_the_lease_it_was_told_before(tmp_path: Path) -> None:
    now = [0.0]
    first = WorkersEngine(tmp_path, wake=lambda: None, monotonic=lambda: now[0])
    first.open(1)
    first.sync(remote(lease_s=1000.0))
    second = WorkersEngine(tmp_path, wake=lambda: None, monotonic=lambda: now[0])
    second.open(1)
    second.start(assignment(1, "b"))
    second.start(assignment(2, "own"))
    now[0] = 1059.0
    assert (second.observe().tasks, sorted(second.observe().silent_s)) == ((), ["b", "own"])
    now[0] = 1e6
    assert [task.node for task in second.observe().tasks] == ["b"]  # the server's own machine is never given up
    with pytest.raises(Conflict, match="another worker is called 'b'"):
        second.sync(replace(remote(), key="x" * 40))
    second.forget(AttemptId(1, 1))
    second.sync(replace(remote(), key="x" * 40))  # nothing is left of the first


def test_a_worker_that_leaves_is_cordoned_and_one_with_a_tag_of_its_own_keeps_others_away(bench: Bench) -> None:
    bench.engine.sync(remote(is_leaving=True))
    bench.engine.sync(remote("c", tag="big", is_exclusive=True))
    b, c = bench.engine.observe().nodes
    assert (b.is_cordoned, b.labels, c.labels) == (True, (), (("swell.dev/tag", "big"),))
    assert [str(taint) for taint in c.taints] == ["swell.dev/tag=big:NoSchedule"]
    bench.engine.leave("b")
    assert [node.id for node in bench.engine.observe().nodes] == ["c"]


def test_a_report_that_comes_after_the_farewell_brings_no_worker_back(bench: Bench) -> None:
    """A worker sends over two connections. Its name was taken for ten minutes, by nobody."""
    bench.engine.sync(remote())
    bench.engine.sync(remote(is_leaving=True))
    bench.engine.leave("b")
    bench.engine.sync(remote(is_leaving=True))
    assert bench.engine.observe().nodes == ()
    bench.engine.sync(replace(remote(is_leaving=True), key="x" * 40))  # another one, whose disk is full
    assert [node.id for node in bench.engine.observe().nodes] == ["b"]
    bench.engine.leave("b")
    bench.engine.sync(remote())  # the first one, started again
    assert [node.id for node in bench.engine.observe().nodes] == ["b"]


@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
def test_a_worker_writes_the_logs_of_no_other_tasks_than_its_arrays(
    bench: Bench, tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    bench.engine.start(replace(assignment(1, *nodes), is_array=True, indices="0-3"))
    sizes = [bench.engine.write_log("a", AttemptId(1, 1), index, 0, b"line") for index in (3, 4)]
    assert sizes == [4, None]
    assert not (tmp_path / "1.1" / "4").exists()


@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
@pytest.mark.parametrize("indices", ["0-3", ",".join(map(str, (0, 1, 2, 3, *range(10, 400, 7))))])
def test_a_worker_tells_of_no_other_tasks_than_its_arrays(bench: Bench, nodes: tuple[str, ...], indices: str) -> None:
    """Each index that it made up became a row of the store, without end, and counted as a task that had succeeded."""
    bench.engine.start(replace(assignment(1, *nodes), is_array=True, indices=indices))
    told = tuple(TaskSeen(AttemptId(1, 1), index, "a", 0, 1.0, 2.0, 0) for index in (3, 4, 1 << 50))
    other = TaskSeen(AttemptId(2, 1), 0, "a", 0, 1.0, 2.0, 0)
    bench.engine.sync(WorkerReport(NODE, 0, (*told, other), ()))
    assert bench.engine.observe().tasks == told[:1]


def test_a_worker_tells_of_no_rank_that_runs_on_another_machine(bench: Bench) -> None:
    bench.engine.start(assignment(1, "a", "b"))
    told = tuple(TaskSeen(AttemptId(1, 1), rank, "a", rank, 1.0, 2.0, 0) for rank in (0, 1))
    bench.engine.sync(WorkerReport(NODE, 0, told, ()))
    assert bench.engine.observe().tasks == told[:1]


def test_a_server_that_restarts_knows_when_what_it_had_of_a_log_was_written(tmp_path: Path) -> None:
    """It noted the beginning of the log with the time of the restart: `swell logs --since` showed all of it."""
    attempt = AttemptId(1, 1)
    ReceivedLogs(tmp_path).write(attempt, 0, 0, b"first\n")
    between = time.time()
    ReceivedLogs(tmp_path).write(attempt, 0, 6, b"second\n")
    logs = LogFolder(tmp_path)
    assert (logs.offset_at(attempt, 0, 0.0), logs.offset_at(attempt, 0, between)) == (0, 6)


BACKEND = BackendJob("slurm", "4711", "/home/ann/slurm-4711.out")


def test_a_worker_for_a_group_has_a_taint_that_only_jobs_of_the_group_pass(bench: Bench) -> None:
    terms = WorkerTerms(600.0, tag="big", is_exclusive=True, is_preemptible=True, group="vision", backend=BACKEND)
    bench.engine.sync(WorkerReport(NODE, 0, (), (), terms=terms, key="k"))
    taints = (Taint("swell.dev/tag", "big", Effect.NO_SCHEDULE), Taint("swell.dev/group", "vision", Effect.NO_SCHEDULE))
    labels = (("swell.dev/tag", "big"),)
    expected = replace(NODE, labels=labels, taints=taints, is_preemptible=True, backend=BACKEND)
    assert bench.engine.observe().nodes == (expected,)


def test_what_a_worker_ran_in_is_known_after_it_has_left_and_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.open(1)
    bench.engine.sync(WorkerReport(NODE, 0, (), (), terms=WorkerTerms(600.0, backend=BACKEND), key="k"))
    bench.engine.leave("a")
    assert bench.engine.backends(["a", "b"]) == {"a": BACKEND}
    with (tmp_path / ".worker-backends").open("a") as file:
        file.write('["b", {"backend": "slu')  # a power cut
    assert Bench(tmp_path).engine.backends(["a", "b"]) == {"a": BACKEND}


def gang_on(bench: Bench, *nodes: Node) -> list[TaskSeen]:
    """What is seen of the tasks of a gang when the workers of these nodes have their parts."""
    bench.engine.start(assignment(1, *(node.id for node in nodes)))
    for node in nodes:
        bench.engine.sync(WorkerReport(node, 0, (), (RunSeen(AttemptId(1, 1), node.id, 1, (), 1, False, port=4000),)))
    return list(bench.engine.observe().tasks)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        (("127.0.0.1", "m1"), ("127.0.0.2", "m1"), False),  # both on this machine
        (("127.0.0.1", "m1"), ("127.0.0.1", "m2"), True),  # one through a forwarded port
        (("10.0.0.1", "m1"), ("127.0.0.1", "m2"), True),
        (("10.0.0.1", "m1"), ("::1", "m1"), True),  # as the first may be a namespace of its own
        (("10.0.0.1", "m1"), ("10.0.0.2", "m2"), False),
        (("10.0.0.1", "m1"), ("10.0.0.2", "m1"), False),
    ],
)
def test_a_gang_over_machines_is_refused_where_one_is_known_by_a_loopback_address_only(
    bench: Bench, first: tuple[str, str], second: tuple[str, str], is_refused: bool
) -> None:
    one = replace(NODE, address=first[0], machine=first[1])
    two = replace(NODE, id="b", address=second[0], machine=second[1])
    seen = gang_on(bench, one, two)
    assert [(task.index, task.exit_code, task.cause) for task in seen] == (
        [(0, 125, "start-failed"), (1, 125, "start-failed")] if is_refused else []
    )
    if is_refused:
        assert "which is a loopback address; start the worker on" in seen[0].problem
    assert all((told.rendezvous is None) is is_refused for told in bench.told().launches or ())


def test_the_names_of_workers_that_register_at_once_are_saved_together_and_before_they_are_answered(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two hundred waited until the file had been brought to the disk for all those before it."""
    written: list[int] = []

    def write(path: Path, text: str) -> None:
        written.append(len(json.loads(text)))
        state_folder.write_private(path, text)

    monkeypatch.setattr(registry, "write_private", write)
    with ThreadPoolExecutor(8) as threads:
        at_once = list(threads.map(bench.engine.sync, [remote(f"n{number}") for number in range(200)]))
        assert len(at_once) == 200
    assert written == sorted(written)
    assert written[-1] == 200
    again = WorkersEngine(tmp_path, wake=lambda: None)
    again.open(2)
    for number in range(200):
        again.check_identity(f"n{number}", "k" * 40)
    with pytest.raises(Conflict):
        again.check_identity("n1", "x" * 40)


def test_what_may_take_long_is_not_done_while_everybody_waits(bench: Bench) -> None:
    """An array of a million indices is dealt anew with what a worker says of it: a tenth of a second."""
    engine = bench.engine
    engine.start(replace(assignment(1, "a", "b"), is_array=True, indices="0-999999", tasks=1_000_000))
    engine.start(assignment(2, "b"))
    of_array, of_gang = (replace(remote(), runs=(RunSeen(AttemptId(job, 1), "b", 1, (), 0, False),)) for job in (1, 2))
    assert not engine.is_quickly_taken(of_gang)  # it is not known yet
    engine.sync(remote())
    assert [engine.is_quickly_taken(report) for report in (remote(), of_gang, of_array)] == [True, True, False]
    assert not engine.is_quickly_taken(remote(lease_s=200.0))


def test_a_full_disk_keeps_no_worker_from_being_heard(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease would end, and its tasks with it."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(registry, "write_private", full)
    bench.engine.sync(remote())
    bench.engine.sync(remote())
    assert [node.id for node in bench.engine.observe().nodes] == ["b"]
    assert caplog.messages == ["the names of workers cannot be noted: [Errno 28] No space left on device"]


@pytest.mark.parametrize(
    ("told", "taken"),
    [
        ("", ""),
        ("podman", "podman"),
        ("/usr/bin/podman --runtime /tmp/evil", "podman"),
        ("/usr/bin/docker -H tcp://evil", "docker"),
        ("'/tmp/a b/docker'", "docker"),
    ],
)
def test_of_a_workers_runtime_only_its_name_is_taken(told: str, taken: str) -> None:
    """Hole: what a worker said here was run by whoever typed `swell exec`."""
    assert parse_node(node_document(replace(NODE, container_runtime=told))).container_runtime == taken


@pytest.mark.parametrize(
    "told",
    [
        *("kubectl --kubeconfig=evil", "kubernetes", "sh -c id", "/usr/bin/env podman", "podman-evil", "evil/podman"),
        *("./podman", "../podman", "podman;id", "-podman", "podman/", "'podman", " ", "''", "PODMAN", "podman\n'"),
    ],
)
def test_a_worker_that_says_another_program_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match=r"neither podman nor docker|No closing quotation"):
        parse_node(node_document(replace(NODE, container_runtime=told)))


def test_only_the_worker_that_the_server_started_is_its_own(bench: Bench) -> None:
    bench.engine.sync(WorkerReport(NODE, 0, (), ()))
    far = replace(NODE, id="far")
    bench.engine.sync(WorkerReport(far, 0, (), (), terms=WorkerTerms(600.0), key="k" * 40))
    assert [bench.engine.is_own(name) for name in (NODE.id, "far", "unknown")] == [True, False, False]
