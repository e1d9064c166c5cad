"""How an array is dealt to several workers: every index to one of them, whatever happens."""

from __future__ import annotations

import random

import pytest

from swell.engines.workers.dealing import ArrayDeal, indices_text
from swell.model.launch import KEEP
from swell.model.quantity import IndexSet


class FakeWorker:
    """Works through what it holds, and says so when it is asked."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.begun: list[int] = []

    @property
    def left(self) -> list[int]:
        return [index for index in self.held if index not in self.begun]

    def take(self, grant: str) -> None:
        if grant != KEEP:
            self.held = list(IndexSet.parse(grant))

    def work(self, count: int) -> None:
        self.begun += self.left[:count]

    def tell(self, deal: ArrayDeal, node: str) -> None:
        deal.begun(self.begun)
        deal.told(node, indices_text(self.held), len(self.left))


def test_a_portion_is_half_of_a_workers_share_and_the_rest_is_kept_for_who_is_quicker() -> None:
    deal = ArrayDeal(IndexSet.parse("0-99"))
    deal.seat({"a": 2, "b": 2})
    deal.told("a", "", 0)
    assert (deal.deal(), deal.grant("a")) == (False, "")  # b has not told what it holds
    deal.told("b", "", 0)
    assert deal.deal()
    assert (deal.grant("a"), deal.grant("b"), deal.is_open) == ("0-24", "25-42", True)


def test_what_a_worker_has_not_begun_is_taken_back_for_one_that_came_later() -> None:
    deal = ArrayDeal(IndexSet.parse("0-9"))
    deal.seat({"a": 1, "b": 1})
    assert deal.grant("a") == KEEP
    deal.told("a", "0-9", 8)  # it was alone
    deal.told("b", "", 0)
    deal.begun([0, 1])
    assert deal.deal()
    assert (deal.grant("a"), deal.grant("b")) == ("0-5", "")
    deal.begun([2, 6])  # 6 had begun before it was asked back
    deal.told("a", "0-5", 3)
    assert deal.deal()
    assert (deal.grant("a"), deal.grant("b")) == ("0-5", "7-8")


def test_what_a_lost_worker_had_not_begun_goes_to_the_others() -> None:
    deal = ArrayDeal(IndexSet.parse("0-5"))
    deal.seat({"a": 1, "b": 1})
    deal.told("a", "0-3", 3)
    deal.told("b", "4-5", 0)
    deal.begun([0, 4, 5])
    deal.lose("a")
    assert deal.deal()
    assert deal.grant("b") == "1-2,4-5"


@pytest.mark.parametrize("seed", range(200))
def test_every_index_begins_once_however_workers_come_restart_and_end(seed: int) -> None:
    chance = random.Random(seed)
    total = chance.randint(1, 120)
    workers = {name: FakeWorker() for name in "abc"[: chance.randint(2, 3)]}
    if chance.random() < 0.5:
        workers["a"].held = list(range(total))  # it was alone before
    lanes = {name: chance.randint(1, 4) for name in workers}
    deal = ArrayDeal(IndexSet.parse(f"0-{total - 1}"))
    deal.seat(lanes)
    for _ in range(4000):
        name = chance.choice(sorted(workers))
        worker, what = workers[name], chance.random()
        if what < 0.4:
            worker.take(deal.grant(name))
        elif what < 0.7:
            worker.work(chance.randint(0, lanes[name]))
        elif what < 0.995:
            worker.tell(deal, name)
            deal.deal()
        else:  # the server is killed, and another one begins
            deal = ArrayDeal(IndexSet.parse(f"0-{total - 1}"))
            deal.seat(lanes)
        begun = [index for one in workers.values() for index in one.begun]
        assert len(begun) == len(set(begun)), f"an index began twice; seed {seed}"
        if len(begun) == total:
            break
    else:
        pytest.fail(f"{total - len(begun)} of {total} never began; seed {seed}")


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([5, 6], "5-6"),
        ([0, 3], "0,3"),
        (list(range(0, 200_000, 2)), "0-199998:2"),
        ([0, 1, 2, 5, 8, 11, 12], "0-2,5-11:3,12"),
        ([1, 5, 6, 7, 9], "1,5,6-7,9"),
    ],
)
def test_indices_are_written_shortly_and_read_back(indices: list[int], text: str) -> None:
    assert indices_text(indices) == text
    assert list(IndexSet.parse(text)) == indices
