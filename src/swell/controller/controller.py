"""What may others ask of the controller, from any thread?

Intents go through the inbox and are carried out by the next cycle; questions are answered from what the last
cycle left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from swell.controller.cycle import NOTHING_SEEN, Cycles
from swell.controller.foresight import StartForeseen
from swell.controller.intents import asked_from, give_up, hold, release, report, requeue, scale
from swell.controller.restoring import follow_ended
from swell.controller.what_if import Outlook, what_if
from swell.controller.world import World
from swell.errors import Conflict
from swell.model.cluster import NodeId
from swell.model.job import AttemptId, JobId, JobSpec, JobState
from swell.model.launch import GpuSeen
from swell.model.plan import Snapshot
from swell.model.pool import PoolDemand, worker_at
from swell.model.quota import NO_QUOTA, Quota
from swell.model.reason import Reason
from swell.model.training import Control, RankPosition, Report
from swell.model.usage import DayOfUse
from swell.planner import Shortage, explain, find_shortages
from swell.planner.pools import NO_NEED, find_pool_needs
from swell.planner.why.explain import NOT_YET_PLANNED, is_waiting_code
from swell.planner.why.pools import PoolStanding, capacity_of, with_pools
from swell.planner.why.recorded import explain_record
from swell.store import Acceptance, Changes, EventRecord, JobRecord, NewJob
from swell.store.accepting import PLAINLY

T = TypeVar("T")
JOBS_SHOWN_MAX = 100  # of those that a pool is told its workers are for


class Controller(Cycles):
    """The cycles, and what may be asked of them."""

    # -- intents ---------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob], how: Acceptance = PLAINLY) -> Future[list[JobRecord]]:
        """Accepted means stored; the loop hears of it from the same commit, whoever still listens."""
        return _followed_by(self._accepted, self._store.accept(jobs, how))

    def take_in(
        self,
        jobs: Mapping[str, NewJob],
        known: Callable[[list[JobRecord | None]], None],
        *,
        origin: str,
        quota: Quota = NO_QUOTA,
    ) -> Future[list[JobRecord | None]]:
        """Jobs of one owner that came another way, each under a key of its own. None: it came before, and was deleted.

        `known` hears which each has become before any of them is planned. Above the quota none of them is taken in.
        """

        def accepted(records: list[JobRecord | None]) -> None:
            try:
                known(records)
            finally:
                self._accepted(records)  # what is stored is planned, whatever becomes of who asked

        return _followed_by(accepted, self._store.accept_each(jobs, origin=origin, quota=quota))

    def _accepted(self, records: Sequence[JobRecord | None]) -> None:
        queued = [record for record in records if record is not None and record.state is JobState.QUEUED]
        self._inbox.tell(lambda world: self._arrive(world, queued))

    def _arrive(self, world: World, records: Sequence[JobRecord]) -> None:
        for record in records:
            if record.id not in world.jobs:
                self._arrivals.append(record.submitted_at)
                follow_ended(self._store, world, world.add(record))

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str = "") -> Future[None]:
        """All of them before the next plan: what one gives back must not start another that is to end too."""

        def asked(world: World) -> None:
            for job in world.jobs.keys() & set(jobs):
                world.jobs[job].cancel_by, world.jobs[job].cancel_grace_s = by, grace_s
                world.asked.add(job)

        stored = self._store.request_cancel(jobs, by=by, grace_s=grace_s, origin=origin)
        return _followed_by(lambda _: self._inbox.tell(asked), stored)

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        """Cancel those of them of which nothing has ever begun."""
        return self._inbox.intend(asked_from(origin, give_up(jobs, by)))

    def hold(self, job: JobId, *, by: str, origin: str = "") -> Future[None]:
        """It waits until somebody releases it; a running one gives its room back at its next checkpoint."""
        return self._inbox.intend(asked_from(origin, hold(job, by)))

    def release(self, job: JobId, *, by: str, origin: str = "") -> Future[None]:
        return self._inbox.intend(asked_from(origin, release(job, by)))

    def requeue(self, job: JobId, *, by: str, is_now: bool, origin: str = "") -> Future[None]:
        """Start it again: from its last checkpoint when it has one."""
        store = self._store
        return self._inbox.intend(
            asked_from(origin, requeue(job, by, is_now=is_now, read=store.job, tasks=store.tasks))
        )

    def scale(
        self, job: JobId, width: int | None, *, by: str, is_now: bool, origin: str = "", is_kept: bool = True
    ) -> Future[None]:
        """Give it this width as soon as there is room; None: what the planner thinks best again."""
        intent = scale(job, width, by, is_now=is_now, is_kept=is_kept, read=self._store.job)
        return self._inbox.intend(asked_from(origin, intent))

    def report(self, told: Report) -> Future[None]:
        """What a job says of itself. Done when it is on disk."""
        return self._inbox.intend(report(told))

    def has_begun(self, attempt: AttemptId, rank: int, epochs: int, position: RankPosition | None = None) -> None:
        """A rank says where it is; only to agree on where to stop. `position`: None, where it knows epochs only."""

        def note(world: World) -> None:
            job = world.jobs.get(attempt.job)
            if job is not None and job.attempts == attempt.number:
                job.progress.begun[rank] = max(epochs, job.progress.begun.get(rank, 0))
                if position is not None:
                    job.note_position(rank, position)

        self._inbox.tell(note, is_urgent=position is not None and position.was_asked)

    def delete(self, jobs: Sequence[JobRecord], *, by: str, origin: str = "") -> Future[None]:
        """Their history, logs and checkpoints go; a folder for checkpoints that its user named stays."""
        return self._retention.delete(jobs, by=by, origin=origin)

    def told(self, job: JobId, kind: str, detail: Mapping[str, object], *, is_last: bool = True) -> Future[None]:
        """Whoever wanted to know that it ended has been told, or will not be: an event says which.

        `is_last`: it has not ended again meanwhile.
        """
        due: dict[JobId, dict[str, Any]] = {job: {"notice_due": 0}} if is_last else {}
        return self._store.record(Changes(jobs=due, events=[EventRecord(kind, job, detail=dict(detail))]))

    # -- questions -------------------------------------------------------------------------------------------

    def control(self, attempt: AttemptId) -> Control:
        """What a job is asked to do; as of the last cycle."""
        job = self._world.jobs.get(attempt.job)
        if job is None or job.attempts != attempt.number or job.attempt is None:
            raise Conflict(f"attempt {attempt} is over; there is nothing to ask it any more")
        return self._controls.get(attempt, Control())

    def reason(self, job: JobRecord) -> Reason | None:
        """Why it is not running, worked out from the latest plan; None while all is well."""
        if job.reason_code is None:
            return None
        snapshot, plan = self._latest
        view = snapshot.jobs_by_id.get(job.id)
        if not is_waiting_code(job.reason_code, job.state):
            return explain_record(job.reason_code, job.reason_evidence, job.spec.kind, words=self._wording.recorded)
        if view is None or job.id not in plan.verdicts:
            return NOT_YET_PLANNED
        known = self._world.jobs.get(job.id)  # of a long list of jobs, reading each one's spec would take longest
        kind = job.spec.kind if known is None else known.terms.kind
        reason = explain(snapshot, view, plan.verdicts[job.id], kind, words=self._wording.waiting)
        return with_pools(snapshot, view, reason, self.pool_standings())

    def start_foreseen(self, job: JobRecord) -> StartForeseen | None:
        """When a job that waits is expected to start; None: it does not wait, or nobody can say.

        May run the planner forward, so it is asked in a reader's thread.
        """
        return self.foresight.of(job.id, self._latest[0]) if job.state is JobState.QUEUED else None

    def what_if(self, specs: Sequence[JobSpec], user: str) -> list[Outlook]:
        """What would happen to these jobs of a user's; nothing is submitted. In a reader's thread, as above."""
        curves = self._world.curves
        return what_if(self._latest[0], self._plan, specs, user, words=self._wording.waiting, curves=curves)

    def shortages(self) -> tuple[Shortage, ...] | None:
        """For whom there is not enough room, by the latest plan, in line; None: nothing was planned yet."""
        snapshot, plan = self._latest
        return None if snapshot is NOTHING_SEEN else find_shortages(snapshot, plan)

    def pool_standings(self) -> tuple[PoolStanding, ...]:
        """Every pool, and what the jobs that wait by the latest plan want of it."""
        pools = [PoolStanding(*one) for one in self.pools.all()]
        if not pools:
            return ()
        latest, known = self._latest, self._pool_needs
        names = {node.id for node in latest[0].nodes if node.is_reachable}
        capacities = tuple(capacity_of(pool, names) for pool in pools)
        if known[0] is not latest or known[1] != capacities:
            needs = {} if latest[0] is NOTHING_SEEN else find_pool_needs(*latest, capacities)
            known = self._pool_needs = latest, capacities, needs
        return tuple(replace(pool, need=known[2].get(pool.report.name, NO_NEED)) for pool in pools)

    def pool_demand(self, name: str) -> PoolDemand:
        """What a pool is told: of one moment, so that a worker that has just registered is not counted twice."""
        known, snapshot = self.pools.find(name), self._latest[0]
        self.pools.note_nodes(snapshot.nodes)
        need = next((one.need for one in self.pool_standings() if one.report.name == name), NO_NEED)
        workers = {worker.id for worker in known.report.workers}
        ours = [node.id for node in snapshot.nodes if node.is_reachable and worker_at(node.id) in workers]
        return PoolDemand(
            None if snapshot is NOTHING_SEEN else need.workers,
            need.jobs[:JOBS_SHOWN_MAX],
            tuple(sorted(ours)),
            kills=tuple(sorted(known.kills)),
            forced=tuple(sorted(worker for worker, is_forced in known.kills.items() if is_forced)),
            is_stopping=known.is_stopping,
            ends_workers=known.ends_workers,
        )

    def owner(self, job: JobId) -> str | None:
        """Of one that has not ended; None: there is no such."""
        found = self._world.jobs.get(job)
        return None if found is None else found.owner

    def seen_on_gpus(self, job: JobId) -> Mapping[NodeId, GpuSeen]:
        """What its present attempt does on each of its nodes; empty: nothing was measured."""
        found = self._world.jobs.get(job)
        return {} if found is None else found.progress.gpu

    def checkpoint_folder(self, job: JobRecord) -> str:
        return self._reporting.folder(job.id, job.spec.checkpoints)

    def usage(self, *, since: str, now: float) -> list[DayOfUse]:
        """Since a day, with what runs. Of one moment: no attempt ends in between and is in both, or in none."""
        with self._booking:
            stored, accounts = self._store.usage(since=since), self.accounts
        return stored + [one for one in accounts.running(now) if one.day >= since]

    @property
    def snapshot(self) -> Snapshot:
        return self._latest[0]


def _followed_by(act: Callable[[T], None], stored: Future[T]) -> Future[T]:
    """Done when that has followed, too: who waits for a future itself may go on before its callbacks have run."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # what is stored is followed up, whoever still listens

    def follow(done: Future[T]) -> None:
        try:
            result = done.result()
            act(result)
        except BaseException as error:  # noqa: BLE001  told to who asked
            answer.set_exception(error)
        else:
            answer.set_result(result)

    stored.add_done_callback(follow)
    return answer
