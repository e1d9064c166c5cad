"""Which nodes does a job get to itself?

A JobSet can ask that each of its Jobs is in a domain of its own: all its pods on nodes with the same value of a label,
and no pods of other JobSets there. Before a plan is made, each waiting job of that kind is given the domains that it
would start in, as a selector for the tasks of each of its Jobs, and other JobSets are kept off domains that are taken.

The choice is made anew for each plan. A Job gets the domain in which it fits now, the one with the least room first. If
it fits in none, it gets the one with the most room of those that could hold it, and waits there: the plan keeps that
room for it, so that the next choice is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from swell.model.cluster import Node, NodeId
from swell.model.job import Dimension, JobId, JobState
from swell.model.placement import NO_RULES, Operator, PlacementRules, Requirement, Term
from swell.model.plan import JobView, Shape, Slot, Snapshot, taken
from swell.model.resources import Resources
from swell.planner.devices import foreign_gpus, held_gpus
from swell.planner.fit import find, most_tasks
from swell.planner.nodes import Same
from swell.planner.rank import line_up
from swell.planner.room import Room

NONE_IS_FREE = "one that no other JobSet uses"  # no label has this value


def with_domains(snapshot: Snapshot) -> Snapshot:
    """The same jobs, with the domains that they would start in; the same object where no job asks for one."""
    if not any(job.shape.domains for job in snapshot.jobs):
        return snapshot
    return _with_domains(Same(snapshot))


@lru_cache(maxsize=1)
def _with_domains(snapshot: Same[Snapshot]) -> Snapshot:
    domains = _Domains(snapshot.value)
    line = [job for job in line_up(snapshot.value) if job.state is JobState.QUEUED and job.shape.is_jobset]
    changed = {job.id: domains.choose(job) if job.shape.domains else job for job in line}
    place = {job.id: number for number, job in enumerate(line)}
    shapes: dict[Shape, Shape] = {}  # jobs of one shape are one object
    for job in line:
        if not job.shape.domains:
            shape = domains.keep_off(job.shape, [one for one in line if place[one.id] < place[job.id]])
            changed[job.id] = replace(job, shape=shapes.setdefault(shape, shape))
    return replace(snapshot.value, jobs=tuple(changed.get(job.id, job) for job in snapshot.value.jobs))


class _Fit(Enum):
    """Do the tasks of one Job fit in the domain that it is given?"""

    NOW = "now"
    LATER = "when others have left it"
    NEVER = "not as long as the nodes are as they are, or other JobSets are there"


class _Domains:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes: defaultdict[str, defaultdict[str, list[Node]]] = defaultdict(lambda: defaultdict(list))
        keys = {key for job in snapshot.jobs for key, _ in job.shape.domains}
        for node in snapshot.nodes:
            for key, value in node.labels or ():
                if key in keys:
                    self._nodes[key][value].append(node)
        self._foreign = foreign_gpus(snapshot, held_gpus(snapshot))
        self._held: defaultdict[NodeId, list[Slot]] = defaultdict(list)
        for _, slot in snapshot.held():
            self._held[slot.node].append(slot)
        self._rooms: dict[tuple[str, str], tuple[Room, Room]] = {}  #: of domains: as they are, and were nobody there
        self._fits: dict[tuple[str, str, Shape], tuple[int, bool, bool]] = {}
        #: (label, value) → JobSets that are there, or start there
        self._users: defaultdict[tuple[str, str], set[JobId]] = defaultdict(set)
        self._owners: dict[tuple[str, str], JobId] = {}  #: (label, value) → whose it is alone
        self._starting: set[JobId] = set()  #: those for which there is room at this moment
        for job in snapshot.holding:
            self._note(job)

    def _note(self, job: JobView) -> None:
        if not job.shape.is_jobset:
            return
        own = {key for key, _ in job.shape.domains}
        for key, values in self._nodes.items():
            here = {slot.node for slot in job.slots}
            for value in (value for value, nodes in values.items() if any(node.id in here for node in nodes)):
                self._users[key, value].add(job.id)
                if key in own:
                    self._owners[key, value] = job.id

    def choose(self, job: JobView) -> JobView:
        """The job with a role for each domain, in rank order."""
        roles: list[tuple[Resources, int]] = []
        rules: list[PlacementRules | None] = []
        fits: list[_Fit] = []
        for role, (resources, count) in enumerate(job.shape.tasks_at(job.shape.width_min)):
            given = job.shape.rules_of(role) or NO_RULES
            if given.domain is None:
                roles.append((resources, count))
                rules.append(given)
                continue
            for _ in range(count // given.domain.tasks):
                group = resources, given.domain.tasks
                value, fit = self._choose_one(job, given, group)
                fits.append(fit)
                roles.append(group)
                rules.append(replace(given, selector=(*given.selector, (given.domain.key, value))))
        if all(fit is _Fit.NOW for fit in fits):
            self._starting.add(job.id)
        mine = [domain for domain, owner in self._owners.items() if owner == job.id]
        kept = tuple(one if one is not None and one.domain else _without(one, mine) for one in rules)
        if _Fit.NEVER in fits:  # nobody waits for what it will not take
            for domain in mine:
                self._users[domain].discard(job.id)
                del self._owners[domain]
        return replace(job, shape=replace(job.shape, roles=tuple(roles), rules=kept, is_split=True))

    def _choose_one(self, job: JobView, rules: PlacementRules, group: tuple[Resources, int]) -> tuple[str, _Fit]:
        """The value of the label, and when the tasks fit there."""
        assert rules.domain is not None
        key = rules.domain.key
        shape = Shape((group,), Dimension.TASKS, group[1], group[1], is_array=False, time_limit_s=None, rules=(rules,))
        fitting: list[tuple[int, str]] = []
        later: list[tuple[bool, int, str]] = []
        for value in sorted(self._nodes[key]):
            if self._users.get((key, value)):  # also those of this job's other Jobs
                continue
            count, is_free, is_enough = self._fit(key, value, shape)
            if is_free:
                fitting.append((count, value))
            later.append((not is_enough, -count, value))
        is_too_small, _, best = min(later, default=(True, 0, NONE_IS_FREE))
        value = min(fitting)[1] if fitting else best
        self._users[key, value].add(job.id)
        self._owners[key, value] = job.id
        return value, _Fit.NOW if fitting else _Fit.NEVER if is_too_small else _Fit.LATER

    def _fit(self, key: str, value: str, shape: Shape) -> tuple[int, bool, bool]:
        """How many such tasks have room in a domain, whether all have, and whether they would if it were empty."""
        known = self._fits.get((key, value, shape))
        if known is None:
            if (key, value) not in self._rooms:
                self._rooms[key, value] = self._make_rooms(self._nodes[key][value])
            free, empty = self._rooms[key, value]
            is_free, is_enough = find(shape, (free,)) is not None, find(shape, (empty,)) is not None
            known = self._fits[key, value, shape] = most_tasks(shape, (free,)), is_free, is_enough
        return known

    def _make_rooms(self, nodes: list[Node]) -> tuple[Room, Room]:
        """As it is, and were nobody there."""
        reachable = [node for node in nodes if node.is_reachable]
        free = Room.of(reachable, foreign=self._foreign)
        free.take(taken(slot for node in reachable for slot in self._held[node.id]))
        return free, Room.of(nodes)

    def keep_off(self, shape: Shape, ahead: list[JobView]) -> Shape:
        """Of a JobSet that shares its nodes: it goes to no domain that another has alone, or starts in now, or that is
        kept for one before it in line."""
        before = {job.id for job in ahead}
        closed = [
            domain
            for domain, owner in self._owners.items()
            if owner in before or owner in self._starting or self._snapshot.jobs_by_id[owner].slots
        ]
        rules = shape.rules or (None,) * len(shape.roles)
        return replace(shape, rules=tuple(_without(one, closed) for one in rules)) if closed else shape


def _without(rules: PlacementRules | None, domains: list[tuple[str, str]]) -> PlacementRules:
    """The same rules, and none of these domains."""
    given = rules or NO_RULES
    closed = tuple(Requirement(key, Operator.NOT_IN, tuple(values)) for key, values in _by_key(domains))
    if not closed:
        return given
    terms = tuple(replace(term, labels=(*term.labels, *closed)) for term in given.terms or (Term(),))
    return replace(given, terms=terms)


def _by_key(domains: list[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in sorted(domains):
        found[key].append(value)
    yield from found.items()
