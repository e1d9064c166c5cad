"""What every backend of a pool does, whatever it is: one suite, which each kind passes in a world of its own.

class TestSlurm(PoolContract):
    @pytest.fixture
    def world(self, tmp_path): ...        # a `World`: the batch system, or what stands in for it on the wire
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from swell.errors import NotFound, Rejected, Unavailable
from swell.machine.worker_options import WorkerOptions
from swell.pools.backend import BackendWorker, PoolBackend, WorkerOrder, WorkerState
from swell.pools.worker_command import new_worker_id

TOKEN = "swt.0123456789.a-secret-that-no-message-may-show"


class World(Protocol):
    """The batch system or cluster of a test, and what a test makes happen there."""

    def backend(self, pool: str) -> PoolBackend:
        """A new one each time, as after a restart: it remembers nothing."""

    def start(self, backend_id: str) -> None:
        """What waits begins to run."""

    def end(self, backend_id: str, exit_code: int) -> None:
        """What runs ends."""

    def write_log(self, backend_id: str, text: bytes) -> None:
        """The worker writes something, which is the backend's log of it afterwards."""

    def cut(self) -> None:
        """From now on it cannot be asked."""

    def refuse(self) -> None:
        """From now on it takes no order: an unknown queue, a refused key."""


def order(pool: str = "lab", **changes: Any) -> WorkerOrder:
    told = WorkerOptions(server="https://box.lab:8443", token_file=Path("/"), folder=Path("/"), idle_s=600.0)
    made = WorkerOrder(pool, new_worker_id(pool), 2000, 4096, 0, told, token=TOKEN)
    return replace(made, **changes)


def states(backend: PoolBackend) -> dict[str, WorkerState]:
    return {worker.id: worker.state for worker in backend.observe()}


def only(backend: PoolBackend, backend_id: str) -> BackendWorker:
    (found,) = (worker for worker in backend.observe() if worker.backend_id == backend_id)
    return found


class PoolContract:
    """Subclasses have a fixture `world`."""

    def test_a_pool_without_workers_has_none(self, world: World) -> None:
        assert world.backend("lab").observe() == ()

    def test_a_launched_worker_is_pending_until_it_runs_and_keeps_its_ids(self, world: World) -> None:
        wanted = order()
        backend_id = world.backend("lab").launch(wanted)
        assert states(world.backend("lab")) == {wanted.id: WorkerState.PENDING}
        world.start(backend_id)
        found = only(world.backend("lab"), backend_id)
        assert (found.id, found.state, found.is_live) == (wanted.id, WorkerState.RUNNING, True)
        assert found.word

    def test_one_that_has_ended_is_not_live_any_more(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        world.start(backend_id)
        world.end(backend_id, 3)
        assert [worker for worker in world.backend("lab").observe() if worker.is_live] == []

    def test_each_launch_is_another_worker(self, world: World) -> None:
        orders = [order() for _ in range(3)]
        backend_ids = [world.backend("lab").launch(one) for one in orders]
        assert len(set(backend_ids)) == 3
        assert set(states(world.backend("lab"))) == {one.id for one in orders}

    def test_a_pool_sees_its_own_workers_only(self, world: World) -> None:
        """Also where the name of one begins with that of the other."""
        mine, others = order("lab"), order("lab-2")
        world.backend("lab").launch(mine)
        world.backend("lab-2").launch(others)
        assert set(states(world.backend("lab"))) == {mine.id}
        assert set(states(world.backend("lab-2"))) == {others.id}

    def test_one_that_is_cancelled_while_it_waits_never_runs(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        world.backend("lab").cancel(backend_id)
        assert [worker for worker in world.backend("lab").observe() if worker.is_live] == []

    def test_killing_a_running_one_ends_it(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        world.start(backend_id)
        world.backend("lab").cancel(backend_id, is_forced=True)
        assert [worker for worker in world.backend("lab").observe() if worker.is_live] == []

    def test_cancelling_twice_or_what_is_gone_is_success(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        for is_forced in (False, True, False):
            world.backend("lab").cancel(backend_id, is_forced=is_forced)

    def test_its_log_is_what_it_wrote(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        world.start(backend_id)
        world.write_log(backend_id, b"offers its machine\n")
        assert b"offers its machine\n" in b"".join(world.backend("lab").logs(backend_id))

    def test_there_is_no_log_of_an_unknown_one(self, world: World) -> None:
        backend_id = world.backend("lab").launch(order())
        world.end(backend_id, 0)
        with pytest.raises((NotFound, Rejected)):
            b"".join(world.backend("lab").logs(backend_id + "0"))

    def test_what_cannot_be_asked_is_unknown_and_not_empty(self, world: World) -> None:
        backend = world.backend("lab")
        backend.launch(order())
        world.cut()
        for asked in (backend, world.backend("lab")):
            with pytest.raises(Unavailable):
                asked.observe()
        with pytest.raises(Unavailable):
            backend.launch(order())

    def test_an_order_that_is_refused_says_why_and_starts_nothing(self, world: World) -> None:
        world.refuse()
        with pytest.raises(Rejected) as refusal:
            world.backend("lab").launch(order())
        assert str(refusal.value)
        assert TOKEN not in str(refusal.value)
        assert [worker for worker in world.backend("lab").observe() if worker.is_live] == []

    def test_what_it_would_send_names_the_worker_and_not_the_token(self, world: World) -> None:
        wanted = order()
        text = world.backend("lab").render(wanted)
        assert wanted.id in text
        assert "worker" in text
        assert TOKEN not in text
        assert TOKEN not in repr(wanted)
        assert world.backend("lab").observe() == ()
