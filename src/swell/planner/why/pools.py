"""Will a pool start a worker for a job that waits, and if not, why not, in words?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from swell.model.cluster import Node, NodeId, with_lost_gpus
from swell.model.plan import JobView, Snapshot
from swell.model.pool import PoolOffer, PoolPhase, PoolReport, WorkerRoom, worker_at
from swell.model.quantity import number_of
from swell.model.reason import Code, Reason
from swell.model.resources import Resources
from swell.planner.pools import NO_NEED, PoolCapacity, PoolNeed, can_hold
from swell.planner.shortage import LACKING
from swell.planner.why.waiting import NAMES_SHOWN_MAX

SILENCE_S = 60.0  # a pool that was not heard of for so long starts nothing
QUOTED_MAX = 200  # characters of what a backend said
OF_POOLS = frozenset({Code.WAITING_FOR_POOL})  # codes that only a pool's words have
HOPELESS = frozenset({Code.CANNOT_RUN_HERE, Code.NO_SUITABLE_NODE, Code.NO_WORKER})  # without another machine
NO_NODES: tuple[Node, ...] = ()
NOTHING_TO_DO = "nothing to do; it starts when a worker has registered"


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """A pool, and what the waiting jobs want of it."""

    report: PoolReport
    silent_s: float
    room: WorkerRoom | None = None  #: what its workers had; None: none has come yet
    need: PoolNeed = NO_NEED

    @property
    def name(self) -> str:
        return f"pool {self.report.name!r} ({self.report.kind})"

    @property
    def offer(self) -> PoolOffer:
        """What each further worker can be expected to have."""
        return self.report.offer.limited_to(self.room)

    @property
    def problem(self) -> str:
        """The last error, or what its workers lack; empty: there is none."""
        return self.report.problem or self.report.offer.shortfall(self.room)

    @property
    def obstacle(self) -> tuple[str, str] | None:
        """Why it starts no more workers, and what to do; None: it can."""
        report = self.report
        if self.silent_s > SILENCE_S:
            return (
                f"has not been heard from for {_ago(self.silent_s)}",
                f"start it again: swell pool start {report.kind}",
            )
        look = f"see `swell pool ps`, and `swell pool logs {report.name}` on the machine of the pool"
        if report.phase in (PoolPhase.STOPPING, PoolPhase.STOPPED):
            return "is being stopped", f"start it again: swell pool start {report.kind}"
        if report.phase is PoolPhase.BLIND:
            return f"cannot ask {report.kind} for its workers: {quoted(report.problem)}", look
        if report.phase is PoolPhase.FAILING:
            again = f"; it tries again in {report.retry_s:.0f} s" if report.retry_s else ""
            return f"could not start workers: {quoted(report.problem)}{again}", look
        if len(report.live) >= report.workers_max:
            return (
                f"has its maximum of {number_of(report.workers_max, 'worker')}",
                "nothing to do; it starts when one of them is free, or the pool is started with a larger --max-workers",
            )
        return None

    @property
    def missing(self) -> int:
        """Workers that waiting jobs could use and that are not on their way."""
        return max(0, self.need.workers - len(self.report.under_way))

    @property
    def more(self) -> int:
        """Workers that it may launch now."""
        return 0 if self.obstacle else self.report.workers_max - len(self.report.live)


def capacity_of(pool: PoolStanding, nodes: Collection[NodeId]) -> PoolCapacity:
    """What it can bring beside the nodes that are there."""
    there = set(map(worker_at, nodes))
    coming = [worker for worker in pool.report.under_way if worker.state == "pending" or worker.id not in there]
    return PoolCapacity(pool.report.name, pool.offer, len(coming), pool.more)


def with_pools(snapshot: Snapshot, job: JobView, reason: Reason, pools: Sequence[PoolStanding]) -> Reason:
    """The reason of a job that waits for room, with what pools do about it; the same where they do nothing."""
    if reason.code not in LACKING or not pools:
        return reason
    serving = [pool for pool in pools if job.id in pool.need.jobs]
    if serving:
        said = "; ".join(_coming(pool) for pool in serving)
        return _told(reason, said, NOTHING_TO_DO, serving)
    nodes = with_lost_gpus(snapshot.nodes) if reason.code in HOPELESS else NO_NODES  # otherwise they hold it alone
    able = [pool for pool in pools if can_hold(job, nodes, pool.offer, pool.report.workers_max)]
    if not able:
        shown = ", ".join(f"{pool.name}: {_offered(pool)}" for pool in pools[:NAMES_SHOWN_MAX])
        return replace(reason, message=f"{reason.message}; no pool has workers for it ({shown})")
    obstacles = [(pool, found) for pool in able if (found := pool.obstacle) is not None]
    if not obstacles:  # it is not its turn yet, or it was counted a moment ago
        return _told(reason, f"{able[0].name} can start a worker for it", NOTHING_TO_DO, able[:1])
    said = "; ".join(f"{pool.name} {problem}" for pool, (problem, _) in obstacles)
    return _told(reason, said, obstacles[0][1][1], able)


def _told(reason: Reason, said: str, following: str, pools: Sequence[PoolStanding]) -> Reason:
    evidence = {**reason.evidence, "pools": [pool.report.name for pool in pools]}
    if reason.code in HOPELESS:
        return Reason(Code.WAITING_FOR_POOL, f"no node can run it now; {said}", evidence, following)
    return replace(reason, message=f"{reason.message}; {said}", evidence=evidence)


def _coming(pool: PoolStanding) -> str:
    coming = pool.report.under_way
    if not coming:
        return f"{pool.name} starts a worker for it"
    first = coming[0]
    word = f"{first.word or first.state}{f': {quoted(first.detail)}' if first.detail else ''}"
    if len(coming) == 1:
        return f"{pool.name} has a worker on its way: {first.id}, in {pool.report.kind} {first.backend_id} ({word})"
    return f"{pool.name} has {number_of(len(coming), 'worker')} coming; {first.id} is {word}"


def _offered(pool: PoolStanding) -> str:
    offer, report = pool.offer, pool.report
    room = Resources(offer.cpus_milli, offer.memory_mib, offer.gpus)
    words = str(room.as_far_as(Resources(1, 1, 1)))
    words += f", only jobs with the tag {offer.tag}" if offer.is_exclusive else ""
    words += f", only the group {offer.group}" if offer.group else ""
    shortfall = report.offer.shortfall(pool.room)
    return f"at most {number_of(report.workers_max, 'worker')} of {words}{shortfall and f'; {shortfall}'}"


def quoted(text: str) -> str:
    """What a backend said, for a reason: one line. `swell pool ps` has it all."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED_MAX else f"{line[: QUOTED_MAX - 2]} …"


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
