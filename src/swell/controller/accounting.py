"""Who has used how much?

An attempt holds slots from the moment the plan gave them to it until it is seen to have ended; an array's change
meanwhile. Every record of an attempt that a cycle is about to store may give slots back (`enter`), and what they took
goes into the same transaction: after a crash it is either stored together with the slots' end, or counted again from
the attempt that still holds them. Nothing is counted twice or lost.

A slot counts until its last task ended, however late we hear of it: a server that was away for a week-end charges
nobody for it. The accounts are a value: whoever reads them, from any thread, sees one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from swell.controller.unstorable import blaming
from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.job import AttemptId, JobId
from swell.model.plan import Slot, held_slots
from swell.model.usage import Account, DayOfUse, DeviceMemory, Used, charged_gpus, cpu_seconds, faded_gpu_s, gpu_seconds
from swell.store import AttemptRecord, Changes

DAY_S = 86400.0
HALF_LIFE_S = 7 * DAY_S  # last week's work counts half: who filled the box over a week-end is level again in a month


@dataclass(frozen=True, slots=True)
class Holding:
    """What an open attempt holds, and since when."""

    owner: str
    slots: tuple[Slot, ...]
    created_at: float
    since: dict[int, float]  #: number of a slot → since when, where it was given later
    charges: tuple[tuple[float, float], ...] = ()  #: since when, and what that counts in fair share: every plan asks

    def charged(self, memory: DeviceMemory) -> Holding:
        """With its charges, of GPUs of these sizes."""
        return replace(self, charges=tuple((since, charged_gpus(slots, memory)) for since, slots in self.by_age()))

    @property
    def has_shares(self) -> bool:
        """Then what it counts depends on how large its GPUs are."""
        return any(slot.resources.is_share for slot in self.slots)

    def by_age(self) -> Iterable[tuple[float, list[Slot]]]:
        """Slots that are held since the same moment."""
        ages: dict[float, list[Slot]] = {}
        for slot in self.slots:
            ages.setdefault(self.since.get(slot.number, self.created_at), []).append(slot)
        return ages.items()


@dataclass(frozen=True)
class Accounts:
    """What has been used until now, by those who are through with it and those who still hold something."""

    half_life_s: float = HALF_LIFE_S
    faded: dict[str, Account] = field(default_factory=dict)  #: by owner, without what is still held
    totals: dict[str, Used] = field(default_factory=dict)  #: likewise, of all time
    held: dict[AttemptId, Holding] = field(default_factory=dict)
    memory: dict[tuple[NodeId, DeviceId], int] = field(default_factory=dict)  #: of every GPU ever seen

    def faded_gpu_s(self, owner: str, now: float) -> float:
        """What counts in fair share: use that fades, with what is held at the moment."""
        known = self.faded.get(owner, Account()).faded(now, self.half_life_s)
        return known + sum(
            faded_gpu_s(charge, since, now, now, self.half_life_s)
            for one in self.held.values()
            if one.owner == owner
            for since, charge in one.charges
        )

    def running(self, now: float) -> Iterator[DayOfUse]:
        """What is held at the moment has taken so far, by day."""
        for one in self.held.values():
            yield from self._period(one, now, is_over=True)

    def used(self, now: float) -> dict[str, Used]:
        """By owner, of all time, with what is held at the moment."""
        totals = dict(self.totals)
        for one in self.running(now):
            totals[one.owner] = totals.get(one.owner, Used()) + one.used
        return totals

    def seen(self, nodes: Iterable[Node]) -> Accounts:
        """With the GPUs of these machines, which shares of them are counted by."""
        there = {(node.id, device.id): device.memory_mib for node in nodes for device in node.devices}
        if there.items() <= self.memory.items():
            return self
        memory = {**self.memory, **there}
        held = {key: one.charged(memory) if one.has_shares else one for key, one in self.held.items()}
        return replace(self, memory=memory, held=held)

    def enter(self, changes: Changes, owner_of: Callable[[JobId], str]) -> Accounts:
        """Bring the accounts up to what is about to be stored, and let that be stored with it."""
        if not changes.attempts:
            return self
        after = replace(self, faded=dict(self.faded), totals=dict(self.totals), held=dict(self.held))
        for attempt in changes.attempts:
            with blaming(attempt.job_id):
                after._take(attempt, changes, owner_of)
        return after

    def hold(self, attempt: AttemptRecord, owner: str) -> None:
        """Only while nobody else has seen these accounts."""
        held = Holding(owner, held_slots(attempt.slots), attempt.created_at, attempt.since)
        self.held[AttemptId(attempt.job_id, attempt.number)] = held.charged(self.memory)

    def _take(self, attempt: AttemptRecord, changes: Changes, owner_of: Callable[[JobId], str]) -> None:
        key = AttemptId(attempt.job_id, attempt.number)
        holding = self.held.get(key)
        if holding is None:
            self.hold(attempt, owner_of(attempt.job_id))
        elif attempt.ended_at is not None:
            del self.held[key]
            self._charge(holding, attempt.ended_at, changes, is_over=True, lost_s=attempt.lost_s)
        elif (held := held_slots(attempt.slots)) != holding.slots:
            assert attempt.changed_at is not None
            self.hold(attempt, holding.owner)
            kept = {slot.number for slot in held}
            gone = replace(holding, slots=tuple(slot for slot in holding.slots if slot.number not in kept))
            if gone.slots:
                self._charge(gone, attempt.changed_at, changes, is_over=False)

    def _charge(self, holding: Holding, until: float, changes: Changes, *, is_over: bool, lost_s: float = 0.0) -> None:
        owner = holding.owner
        account = self.faded.get(owner, Account())
        for since, slots in holding.by_age():
            account = account.charged(charged_gpus(slots, self.memory), since, until, self.half_life_s)
        self.faded[owner] = changes.accounts[owner] = account
        for one in self._period(holding, until, is_over=is_over, lost_s=lost_s):
            changes.usage[owner, one.day] = changes.usage.get((owner, one.day), Used()) + one.used
            self.totals[owner] = self.totals.get(owner, Used()) + one.used

    def _period(self, one: Holding, until: float, *, is_over: bool, lost_s: float = 0.0) -> Iterator[DayOfUse]:
        """An attempt counts on the day it began, what it lost on the day it ended."""
        for since, slots in one.by_age():
            for day, seconds in split_over_days(since, until):
                took = Used(gpu_seconds(slots, self.memory, seconds), cpu_seconds(slots, seconds))
                yield DayOfUse(one.owner, day, took)
        if is_over:
            yield DayOfUse(one.owner, day_of(one.created_at), Used(attempts=1))
        if lost_s:
            lost = gpu_seconds(one.slots, self.memory, lost_s)
            yield DayOfUse(one.owner, day_of(until), Used(lost_gpu_s=lost))


def split_over_days(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """How many seconds of it lie in each day, UTC."""
    while begin < end:
        midnight = (begin // DAY_S + 1) * DAY_S
        yield day_of(begin), min(midnight, end) - begin
        begin = midnight


def day_of(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
