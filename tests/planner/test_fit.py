"""Where do tasks fit? Classes of equal nodes are looked at once; a plain search of every node gives the same answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from swell.model.cluster import Node
from swell.model.job import Dimension
from swell.model.placement import Company, Operator, PlacementRules, Requirement, Term
from swell.model.plan import Place, Shape
from swell.model.resources import NOTHING, Resources
from swell.planner.fit import find, most_tasks
from swell.planner.mix import Mix
from swell.planner.room import Room, at, size

from .world import node, queued

TASKS = (
    Resources(1000, 1024, 1),
    Resources(4000, 0, 1),
    Resources(2000, 512, 2),
    Resources(0, 0, 4),
    Resources(500, 0, 0, 4096),
    Resources(500, 0, 0, 12_288),
    Resources(8000, 2048),
    NOTHING,
)
BIG = Term((Requirement("size", Operator.IN, ("big",)),))
RULES = (None, None, PlacementRules(terms=(BIG,)), PlacementRules(company=Company.APART))


@pytest.mark.parametrize("seed", range(60))
def test_nodes_that_are_alike_are_looked_at_once_and_the_answer_is_that_of_a_look_at_each(seed: int) -> None:
    """One seed again: `pytest tests/planner/test_fit.py -k 'each[SEED]'`."""
    chance = random.Random(seed)
    nodes = _nodes(chance)
    mix = Mix.of([queued(n, gpus=1 + n % 3, cpus=1 + n) for n in range(1, 4)], nodes) if seed % 2 else None
    rooms = [Room.of(nodes, mix=mix)]
    if seed % 3 == 0:
        rooms.append(rooms[0].copy())
    held: list[Sequence[Place]] = []
    for _ in range(40):
        shape = _shape(chance)
        is_steady = chance.random() < 0.3
        places = find(shape, rooms, is_steady=is_steady)
        assert places == _find_plainly(shape, rooms, is_steady=is_steady)
        assert most_tasks(shape, rooms) == sum(_copies(shape, rooms, node.id) for node in nodes)
        if places and chance.random() < 0.8:
            held.append(places)
            for room in rooms:
                room.take(places)
        if held and chance.random() < 0.3:
            gone = held.pop(chance.randrange(len(held)))
            for room in rooms:
                room.give(gone)
        if len(rooms) > 1 and chance.random() < 0.5:
            rooms[1].take([Place(chance.choice(nodes).id, chance.choice(TASKS[:4]))])


def _nodes(chance: random.Random) -> tuple[Node, ...]:
    is_cluster = chance.random() < 0.5
    return tuple(
        node(
            f"n{n}",
            cpus=chance.choice((16, 64)),
            gpus=chance.choice((0, 2, 4)),
            tasks_max=chance.choice((None, None, 3)),
            labels={"size": chance.choice(("big", "small")), "name": f"n{n}"} if is_cluster else None,
        )
        for n in range(chance.randint(1, 14))
    )


def _shape(chance: random.Random) -> Shape:
    task, rules = chance.choice(TASKS), chance.choice(RULES)
    tasks = chance.choice((1, 1, 2, 3, 6))
    return Shape(
        ((task, tasks),),
        Dimension.TASKS,
        tasks,
        tasks,
        is_array=False,
        time_limit_s=None,
        rules=() if rules is None else (rules,),
    )


def _copies(shape: Shape, rooms: Sequence[Room], name: str) -> int:
    rules, task = shape.rules_of(0), shape.roles[0][0]
    table = rooms[0].table
    if name not in table.allowed(rules):
        return 0
    copies = at(rooms, name).copies(name, task)
    is_apart = rules is not None and rules.company is Company.APART and table.nodes[name].labels is not None
    return min(copies, 1) if is_apart else copies


def _find_plainly(shape: Shape, rooms: Sequence[Room], *, is_steady: bool) -> tuple[Place, ...] | None:
    """Every node is looked at for every task."""
    task, tasks = shape.roles[0]
    table = rooms[0].table
    copies = {name: _copies(shape, rooms, name) for name in table.nodes}
    if sum(copies.values()) < tasks:
        return None
    takes_nothing = task == NOTHING and not is_steady and table.is_cluster
    if takes_nothing and tasks > 1:
        left, found = dict(copies), []
        for _ in range(tasks):
            name = max(sorted(left), key=lambda name: left[name])
            left[name] -= 1
            found.append(Place(name, task))
        return tuple(sorted(found, key=lambda place: place.node))
    names = _in_order(copies, tasks, task, rooms, is_steady=is_steady, is_spread=takes_nothing)
    chosen: list[Place] = []
    for name in names:
        count = min(copies[name], tasks - len(chosen))
        if not count:
            break
        if chosen and count < copies[name] and not is_steady:
            rest = _in_order(copies, count, task, rooms, is_steady=False, is_spread=takes_nothing)[0]
            name = name if any(place.node == rest for place in chosen) or copies[rest] < count else rest
        here = at(rooms, name)
        chosen += here.shares(name, task, count, is_steady=is_steady) if task.is_share else [Place(name, task)] * count
    return tuple(chosen) if len(chosen) == tasks else None


def _in_order(
    copies: dict[str, int], tasks: int, task: Resources, rooms: Sequence[Room], *, is_steady: bool, is_spread: bool
) -> list[str]:
    """The best one, if it holds all of them; else those that hold most first, or the largest first."""
    numbers = rooms[0].table.numbers
    whole = [name for name, count in copies.items() if count >= tasks]
    if not whole:
        some = [name for name, count in copies.items() if count]
        return sorted(some, key=lambda name: (-numbers[name],) if is_steady else (-copies[name], name))
    if is_spread:
        return [min(whole, key=lambda name: (-copies[name], numbers[name]))]
    if is_steady:
        return [min(whole, key=lambda name: numbers[name])]
    return [min(whole, key=lambda name: (*at(rooms, name).tightness(name, task, tasks), name))]


def test_small_nodes_come_before_large_ones() -> None:
    """What the plain search takes for granted."""
    room = Room.of((node("a", gpus=4), node("b"), node("c", gpus=2)))
    assert sorted(room.table.numbers, key=lambda name: room.table.numbers[name]) == ["b", "c", "a"]
    assert size(room.on("c")) == (2, 64_000, 256 * 1024)
