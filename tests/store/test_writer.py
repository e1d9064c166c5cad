"""One commit for everybody who waits; a piece of work that fails takes only itself back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from swell.errors import Unavailable
from swell.store.writer import BATCH_MAX, Writer

WAIT_S = 10.0


class Bench:
    """A writer over a table of numbers, and the commits it made."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.commits = 0
        event.listen(engine, "commit", self._count)
        self.writer = Writer(engine, lambda _: None)

    def _count(self, _: Connection) -> None:
        self.commits += 1

    def put(self, number: int) -> Any:
        return self.writer.submit(lambda connection: self.insert(connection, number))

    @staticmethod
    def insert(connection: Connection, number: int) -> int:
        connection.exec_driver_sql("INSERT INTO n VALUES (?, ?)", (number, "x" * 200))
        return number

    def numbers(self) -> list[int]:
        with self.engine.connect() as connection:
            return [row[0] for row in connection.exec_driver_sql("SELECT n FROM n ORDER BY n")]

    def hold(self) -> threading.Event:
        """Keeps the writer busy until the event is set, so that others gather."""
        begun, go = threading.Event(), threading.Event()

        def work(_: Connection) -> None:
            begun.set()
            assert go.wait(WAIT_S)

        self.writer.submit(work)
        assert begun.wait(WAIT_S)
        return go


@pytest.fixture
def bench(tmp_path) -> Iterator[Bench]:
    engine = create_engine(f"sqlite:///{tmp_path / 'n.db'}")

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE n (n INTEGER PRIMARY KEY, text VARCHAR)")
    made = Bench(engine)
    yield made
    made.writer.close()


def test_whoever_waits_shares_one_commit(bench):
    go = bench.hold()
    waiting = [bench.put(n) for n in range(100)]
    go.set()
    assert [future.result(WAIT_S) for future in waiting] == list(range(100))
    assert bench.commits == 2  # the one that held it up, and one for all others


def test_a_commit_carries_at_most_a_batch(bench):
    go = bench.hold()
    waiting = [bench.put(n) for n in range(BATCH_MAX + 1)]
    go.set()
    for future in waiting:
        future.result(WAIT_S)
    assert bench.commits == 3


def test_a_piece_of_work_that_fails_takes_only_itself_back(bench):
    def twice(connection: Connection) -> None:
        bench.insert(connection, 50)
        raise ValueError("half-way")

    go = bench.hold()
    before, failing, duplicate, after = bench.put(1), bench.writer.submit(twice), bench.put(1), bench.put(2)
    go.set()
    assert (before.result(WAIT_S), after.result(WAIT_S)) == (1, 2)
    assert str(failing.exception(WAIT_S)) == "half-way"
    assert "UNIQUE constraint failed" in str(duplicate.exception(WAIT_S))
    assert bench.numbers() == [1, 2]


def test_work_is_done_in_the_order_it_came(bench):
    seen: list[int] = []
    go = bench.hold()
    waiting = [bench.writer.submit(lambda _, n=n: seen.append(n)) for n in range(50)]
    go.set()
    waiting[-1].result(WAIT_S)
    assert seen == list(range(50))


def test_a_full_disk_is_told_to_everybody_in_the_batch_and_leaves_nothing(bench, tmp_path):
    bench.put(1).result(WAIT_S)
    self_full(bench, pages=4)
    go = bench.hold()
    waiting = [bench.put(n) for n in range(2, 200)]
    go.set()
    for future in waiting:
        problem = future.exception(WAIT_S)
        assert isinstance(problem, Unavailable)
        assert str(problem) == (
            f"nothing was changed: the state folder {tmp_path} cannot be written: its disk is full; "
            "free some space, or name another folder with --state"
        )
    assert bench.numbers() == [1]


def test_work_goes_on_when_there_is_room_again(bench):
    self_full(bench, pages=2)
    assert isinstance(_of_many(bench, 0), Unavailable)
    self_full(bench, pages=100_000)
    assert _of_many(bench, 0) is None
    assert len(bench.numbers()) == 100


def self_full(bench: Bench, *, pages: int) -> None:
    """SQLite says 'disk full' by itself above a number of pages."""
    bench.writer.submit(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")).result(WAIT_S)


def _of_many(bench: Bench, first: int) -> BaseException | None:
    def work(connection: Connection) -> None:
        for number in range(first, first + 100):
            bench.insert(connection, number)

    return bench.writer.submit(work).exception(WAIT_S)


def test_one_that_is_given_up_while_it_waits_is_not_begun_and_harms_nobody(bench):
    """The writer's thread died of answering somebody who had gone; nothing was ever written again."""
    go = bench.hold()
    given_up, wanted = bench.put(1), bench.put(2)
    assert given_up.cancel()
    go.set()
    assert wanted.result(WAIT_S) == 2
    assert bench.put(3).result(WAIT_S) == 3
    assert bench.numbers() == [2, 3]


def test_closing_finishes_what_waits(bench):
    go = bench.hold()
    waiting = [bench.put(n) for n in range(10)]
    closer = threading.Thread(target=bench.writer.close)
    closer.start()
    go.set()
    closer.join(WAIT_S)
    assert all(future.done() for future in waiting)
    assert bench.numbers() == list(range(10))
    bench.writer = Writer(bench.engine, lambda _: None)  # for the fixture to close
