"""The loop, against a backend and a server in memory: turns, failures, restarts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools.scripted import Scripted, ScriptedWorld
from pools.test_decide import options
from swell.errors import Denied, Unavailable
from swell.model.codec import to_document
from swell.model.pool import PoolDemand, PoolPhase, PoolReport, parse_report
from swell.pools.backend import WorkerOrder, WorkerState
from swell.pools.folder import PoolFolder
from swell.pools.loop import PoolLoop


@dataclass
class ScriptedServer:
    demand: PoolDemand = field(default_factory=lambda: PoolDemand(0))
    reports: list[PoolReport] = field(default_factory=list)
    is_down: bool = False
    refusal: str = ""
    tokens: int = 0

    def sync(self, report: PoolReport) -> PoolDemand:
        if self.is_down:
            raise Unavailable("the server does not answer")
        if self.refusal:
            raise Denied(self.refusal)
        self.reports.append(parse_report(to_document(report)))  # as the real one reads it
        return self.demand

    def worker_token(self, group: str) -> tuple[str, float]:
        self.tokens += 1
        return f"token {self.tokens}", 1e9


class Story:
    """A pool, its world and its server; `again` is the pool after it was killed."""

    def __init__(self, folder: Path, **told: Any) -> None:
        self.world, self.server, self.now = ScriptedWorld(), ScriptedServer(), 1000.0
        self.folder = PoolFolder(folder)
        self.folder.prepare()
        self.told = options(name="lab", **told)
        self.pool = self.again()

    def again(self) -> PoolLoop:
        self.pool = PoolLoop(self.told, self.world.backend("lab"), self.server, self.folder, now=lambda: self.now)
        return self.pool

    def turn(self, workers: int | None = None, after_s: float = 20.0) -> int:
        """How many were launched in it."""
        self.now += after_s
        if workers is not None:
            self.server.demand = replace(self.server.demand, workers=workers)
        before = len(self.world.launched)
        self.pool.turn()
        return len(self.world.launched) - before

    def register(self, *numbers: int) -> None:
        """The workers that were launched so manieth run, and are nodes of the server."""
        names = [self.world.launched[number] for number in numbers]
        for backend_id, (_, worker) in list(self.world.workers.items()):
            if worker.id in names:
                self.world.start(backend_id)
        self.server.demand = replace(self.server.demand, present=(*self.server.demand.present, *names))

    @property
    def last(self) -> PoolReport:
        return self.server.reports[-1]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_it_launches_what_is_missing_and_counts_what_is_on_its_way(story: Story) -> None:
    assert [story.turn(3), story.turn(), story.turn(4), story.turn()] == [3, 0, 1, 0]


def test_the_server_hears_of_a_worker_before_its_backend_is_asked_to_start_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that registers before its pool has named it is nobody's there."""
    named: list[list[str]] = []
    launch = Scripted.launch

    def launch_and_note(backend: Scripted, order: WorkerOrder) -> str:
        named.append([worker.id for worker in story.last.workers])
        return launch(backend, order)

    monkeypatch.setattr(Scripted, "launch", launch_and_note)
    story.turn(2)
    assert named == [story.world.launched] * 2


def test_once_without_workers_says_that_the_pool_has_stopped_and_what_went_wrong(story: Story) -> None:
    """It said `launched 0`, and jobs were admitted for a pool that nobody ran any more."""
    assert (story.pool.once(), story.last.phase) == ((0, ""), PoolPhase.STOPPED)
    story.world.cut()
    assert (story.again().once(), story.last.phase) == ((0, "the backend does not answer"), PoolPhase.STOPPED)
    story.world.is_cut, story.world.refusal, story.server.demand = False, "unknown queue", PoolDemand(2)
    launched, problem = story.again().once()
    assert (launched, problem.endswith("unknown queue"), story.last.phase) == (0, True, PoolPhase.STOPPED)
    story.server.is_down = True
    assert story.again().once() == (0, "the server does not answer")
    story.server.is_down, story.world.refusal, story.now = False, "", story.now + 1000
    assert story.again().once() == (1, "")  # one is tried after a failure
    assert story.last.phase is not PoolPhase.STOPPED


def test_the_server_knows_a_pool_before_its_backend_has_answered(story: Story) -> None:
    """A job that only the pool could run was refused as impossible until the backend had been asked."""
    story.world.cut()
    story.pool.introduce()
    assert (story.last.phase, story.last.offer, story.last.workers) == (PoolPhase.RUNNING, story.told.offer, ())


def test_a_pool_that_starts_again_names_the_workers_of_before(story: Story) -> None:
    story.turn(2)
    story.again().introduce()
    assert [worker.id for worker in story.last.workers] == story.world.launched


def test_a_listing_that_lags_behind_doubles_nothing(story: Story) -> None:
    story.world.shows = False
    assert [story.turn(3), story.turn(), story.turn()] == [3, 0, 0]


def test_a_restart_doubles_nothing(story: Story) -> None:
    story.world.shows = False
    assert story.turn(3) == 3
    story.again()
    assert story.turn() == 0
    assert len(story.last.live) == 3


def test_a_lost_ledger_is_filled_from_the_listing(story: Story) -> None:
    story.turn(3)
    story.folder.ledger.unlink()
    story.again()
    assert story.turn() == 0
    assert [worker.id for worker in story.last.live] == sorted(story.world.launched)


def test_a_launch_whose_answer_is_lost_is_not_repeated(story: Story) -> None:
    """It may have been launched: it counts until the listing shows it or should have."""
    story.world.loses_answers = True
    assert story.turn(1) == 1
    story.world.loses_answers = False
    assert [story.turn(after_s=40), story.turn(after_s=40)] == [0, 0]
    assert story.last.under_way[0].backend_id == "b1"


def test_backend_that_cannot_be_asked_stops_launches_and_says_so(story: Story) -> None:
    story.world.cut()
    assert story.turn(5) == 0
    story.turn()
    assert (story.last.phase, story.last.problem) == (PoolPhase.BLIND, "the backend does not answer")
    story.world.is_cut = False
    assert story.turn() == 5


def test_a_server_that_does_not_answer_stops_launches(story: Story) -> None:
    story.server.is_down = True
    assert story.turn() == 0
    story.server.is_down = False
    assert story.turn(2) == 2


def test_a_server_that_refuses_ends_the_pool(story: Story) -> None:
    story.server.refusal = "the token was revoked"
    with pytest.raises(Denied, match="revoked"):
        story.turn()


def test_refused_launches_are_few_and_the_reason_is_reported(story: Story) -> None:
    """A partition that does not exist: one attempt, then one after 15, 30, 60 … 900 s."""
    story.world.refuse()
    tried = 0
    for _ in range(720):  # an hour
        before = story.pool._ledger.totals.launched
        story.turn(5, after_s=5)
        tried += story.pool._ledger.totals.launched - before
    assert tried == 9
    assert story.last.phase is PoolPhase.FAILING
    assert story.last.problem.endswith("unknown queue")
    assert (story.last.failed, story.last.live) == (tried, ())


def test_a_pool_ends_when_more_starts_have_failed_than_it_may_have_and_counts_anew_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, failed_starts_max=2)
    story.world.refuse()
    over = [story.turn(5, after_s=1000) or story.pool.is_over for _ in range(3)]
    assert (over, story.last.failed) == ([False, False, True], 2)  # the third is in its last report
    story.pool.run(threading.Event())
    assert (story.last.phase, story.last.failed) == (PoolPhase.STOPPED, 3)
    story.again()
    story.turn(5, after_s=1000)
    assert (story.pool.is_over, story.pool._ledger.totals.failed) == (False, 4)


def test_workers_that_end_before_they_register_are_failed_starts(story: Story) -> None:
    story.turn(1)
    story.world.start("b1")
    story.world.end("b1", 1)
    assert story.turn() == 0
    story.turn(after_s=1)
    assert story.last.phase is PoolPhase.FAILING
    assert "ended before it registered" in story.last.problem
    assert "log of b1" in story.last.problem
    assert story.turn(after_s=20) == 1  # one is tried again
    story.register(1)
    story.turn()
    story.turn()
    assert (story.last.phase, story.last.problem) == (PoolPhase.RUNNING, "")


def test_one_that_came_and_went_between_two_looks_is_no_failed_start(story: Story) -> None:
    story.turn(1)
    story.world.start("b1")
    story.world.end("b1", 0)
    story.server.demand = PoolDemand(0, known=(story.world.launched[0],))
    story.turn()
    story.turn()
    assert (story.last.phase, story.last.failed) == (PoolPhase.RUNNING, 0)


def test_one_that_has_left_the_server_and_not_yet_the_backend_holds_up_nobody(story: Story) -> None:
    story.turn(1)
    story.register(0)
    story.turn(0)
    story.server.demand = PoolDemand(1)  # it has left, and is completing
    assert story.turn() == 1


def test_workers_of_the_minimum_stay_and_others_leave_when_idle(tmp_path: Path) -> None:
    story = Story(tmp_path, workers_min=1)
    orders: list[float | None] = []
    launch = story.pool._backend.launch
    story.pool._backend.launch = lambda order: (orders.append(order.worker.idle_s), launch(order))[1]  # type: ignore
    assert story.turn(2) == 2
    assert orders == [None, 600.0]


def test_the_token_of_workers_is_asked_for_once(story: Story) -> None:
    story.turn(1)
    story.again()
    story.turn(2)
    assert story.server.tokens == 1


def test_nothing_is_launched_that_cannot_be_written_down(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swell.pools.loop.write_private", full)
    with pytest.raises(OSError, match="No space"):
        story.turn(3)
    assert story.world.launched == []


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["want", "start", "register", "end", "vanish", "cut", "mend", "restart", "refuse", "accept", "lag"]
        ),
        st.integers(0, 40),
    ),
    max_size=25,
)


@settings(max_examples=50)
@given(EVENTS, st.integers(0, 3), st.integers(1, 6))
def test_never_above_the_maximum_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]], least: int, most: int
) -> None:
    story = Story(tmp_path_factory.mktemp("pool"), workers_min=min(least, most), workers_max=most)
    world = story.world
    for what, number in events:
        ids = sorted(world.workers)
        one = ids[number % len(ids)] if ids else None
        if what == "want":
            story.server.demand = replace(story.server.demand, workers=number)
        elif what == "start" and one:
            world.start(one)
        elif what == "register" and one:
            story.register(world.launched.index(world.workers[one][1].id))
        elif what == "end" and one:
            world.end(one, number % 2)
        elif what == "vanish" and one and world.workers[one][1].state == "ended":
            del world.workers[one]
        elif what in ("cut", "mend"):
            world.is_cut = what == "cut"
        elif what in ("refuse", "accept"):
            world.refusal = "no" if what == "refuse" else ""
        elif what == "lag":
            world.shows = number % 2 == 0
        elif what == "restart":
            story.again()
        if world.shows or not world.workers:  # a listing that forgets what it has shown is no listing
            story.turn(after_s=float(number))
        live = [worker for _, worker in world.workers.values() if worker.is_live]
        assert len(live) <= most


def test_one_that_the_backend_starts_again_counts_again(story: Story) -> None:
    """Slurm shows a job on a lost node as ended, and queues it again."""
    story.turn(1)
    story.register(0)
    story.turn(0)
    story.world.end("b1", 1)
    story.server.demand = PoolDemand(0)
    story.turn()
    story.world._change("b1", WorkerState.PENDING)
    assert story.turn(1) == 0
    assert [worker.is_under_way for worker in story.last.workers] == [True]


def test_one_that_is_started_again_is_on_its_way_until_its_new_node_is_there(story: Story) -> None:
    """Its first node is silent by then; a second worker was launched beside it."""
    story.turn(1)
    story.register(0)
    story.turn(0)
    story.world._change("b1", WorkerState.PENDING)
    assert story.turn(1) == 0
    story.server.demand = PoolDemand(1, present=(), known=(story.world.launched[0],))
    story.world.start("b1")
    assert [story.turn(), story.turn()] == [0, 0]
    story.server.demand = PoolDemand(1, present=(f"{story.world.launched[0]}-r1",))
    assert story.turn() == 1  # a second one is wanted indeed
