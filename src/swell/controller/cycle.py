"""When do we look, and what happens then?

One thread runs cycles. The first event plans at once; while events keep coming there is a rest after each cycle
(`pacing.py`), so a busy server spends most of its time elsewhere; a slow timer finds what no event tells. A cycle whose
results cannot be written changes nothing: the world is read again and the same facts are tried later.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from swell.config import Limits
from swell.controller.accounting import HALF_LIFE_S, Accounts
from swell.controller.apply import Begin, begin, carry_out, enact
from swell.controller.clock import Clock
from swell.controller.intents import Intent, Turn, asked_from, give_up, hold, release, report, requeue, scale
from swell.controller.observe import Effect, fold
from swell.controller.pacing import rest_s
from swell.controller.reporting import Reporting
from swell.controller.restoring import follow_ended, restore
from swell.controller.retention import Retention
from swell.controller.training import control_of
from swell.controller.watch import Cycled
from swell.controller.world import World
from swell.controller.yielding import Stop, next_due, see_to_what_is_due
from swell.engines import Engine
from swell.errors import Conflict, SwellError, Unavailable
from swell.model.cluster import Node, NodeId
from swell.model.diskuse import DiskUse
from swell.model.job import AttemptId, JobId, JobState
from swell.model.launch import GpuSeen, Observation
from swell.model.plan import Plan, Snapshot, Standing
from swell.model.quota import NO_QUOTA, Quota
from swell.model.reason import Reason
from swell.model.training import Control, Report
from swell.model.usage import DayOfUse
from swell.planner import BrokenPlan, Shortage, check_plan, explain, find_shortages, make_plan
from swell.planner.explain import NOT_YET_PLANNED, is_waiting_code
from swell.planner.recorded import explain_record
from swell.store import Changes, EventRecord, JobRecord, NewJob, Store

TIMER_S = 15.0  # finds silent workers and old history; nothing urgent waits for it
RETRY_S = 2.0  # after a cycle that could not be recorded (disk full …)
NOTHING_SEEN = Snapshot(0.0, (), ())
CLOSED = "the server is ending; ask again when it is there again"
ARRIVALS_KEPT = 10  # how busy it is, is told from the last few submissions

T = TypeVar("T")

log = logging.getLogger(__name__)


class Controller:
    """The loop, and the few intents that go through it."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        clock: Clock,
        *,
        keep_s: float | None,
        reporting: Reporting,
        notify: Callable[[JobRecord], None] = lambda _: None,
        erase_checkpoints: Callable[[JobId], None] = lambda _: None,
        half_life_s: float = HALF_LIFE_S,
        limits: Callable[[str], Limits] = lambda _: Limits(),
        disk_use: Callable[[str], DiskUse | None] = lambda _: None,
        forgotten: Callable[[JobId], None] = lambda _: None,
        watch: Callable[[Cycled], None] = lambda _: None,
        on_cluster: bool = False,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._retention = Retention(
            store, engine, keep_s=keep_s, erase_checkpoints=erase_checkpoints, forgotten=forgotten
        )
        self._reporting = reporting
        self._half_life_s = half_life_s  #: of what somebody has used, in fair share
        self._limits = limits  #: of a user
        self._disk_use = disk_use  #: of a user; None: nothing limits it
        self.accounts = Accounts(half_life_s)  #: who has used how much; a new value with every change
        self._on_cluster = on_cluster  #: its nodes are a cluster's, and reasons speak of nodes instead of workers
        self._watch = watch  #: told of every cycle; must not block
        self._booking = threading.Lock()  #: held while what is stored and the accounts may differ
        self._notify = notify  #: tell whoever wants to know that it has ended; must not block
        self._intents: list[tuple[Intent[Any], Future[Any]]] = []
        self._arrivals: deque[float] = deque(maxlen=ARRIVALS_KEPT)
        self._controls: dict[AttemptId, Control] = {}
        self.on_control: Callable[[], None] = lambda: None  #: long polls of jobs should look
        self._world = World()
        self._unrecorded: list[Observation] = []
        self._generation = 0
        self._inbox: list[Callable[[World], object]] = []
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._is_closed = False  #: nobody carries out what is asked any more
        self._is_stale = False  #: a cycle broke off; the world may be ahead of the store
        self._latest: tuple[Snapshot, Plan] = NOTHING_SEEN, Plan()
        self._nodes_known: frozenset[str] = frozenset()
        self._counted: dict[NodeId, Node] = {}  #: whose GPUs the accounts know
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    # -- intents, from any thread ---------------------------------------------------------------------------

    def submit(
        self,
        jobs: Sequence[NewJob],
        *,
        key: str | None = None,
        digest: str = "",
        origin: str = "",
        quota: Quota = NO_QUOTA,
    ) -> Future[list[JobRecord]]:
        """Accepted means stored; the loop hears of it from the same commit, whoever still listens."""
        stored = self._store.accept(jobs, key=key, digest=digest, origin=origin, quota=quota)
        return _followed_by(self._accepted, stored)

    def take_in(
        self, jobs: Mapping[str, NewJob], known: Callable[[list[JobRecord | None]], None], *, origin: str
    ) -> Future[list[JobRecord | None]]:
        """Jobs that came another way, each under a key of its own. None: it came before, and was deleted.

        `known` hears which each has become before any of them is planned.
        """

        def accepted(records: list[JobRecord | None]) -> None:
            try:
                known(records)
            finally:
                self._accepted(records)  # what is stored is planned, whatever becomes of who asked

        return _followed_by(accepted, self._store.accept_each(jobs, origin=origin))

    def _accepted(self, records: Sequence[JobRecord | None]) -> None:
        queued = [record for record in records if record is not None and record.state is JobState.QUEUED]
        self._tell(lambda world: self._arrive(world, queued))

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
        return _followed_by(lambda _: self._tell(asked), stored)

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        """Cancel those of them of which nothing has ever begun."""
        return self._intend(asked_from(origin, give_up(jobs, by)))

    def hold(self, job: JobId, *, by: str, origin: str = "") -> Future[None]:
        """It waits until somebody releases it; a running one gives its room back at its next checkpoint."""
        return self._intend(asked_from(origin, hold(job, by)))

    def release(self, job: JobId, *, by: str, origin: str = "") -> Future[None]:
        return self._intend(asked_from(origin, release(job, by)))

    def requeue(self, job: JobId, *, by: str, is_now: bool, origin: str = "") -> Future[None]:
        """Start it again: from its last checkpoint when it has one."""
        return self._intend(asked_from(origin, requeue(job, by, is_now=is_now, read=self._store.job)))

    def scale(
        self, job: JobId, width: int | None, *, by: str, is_now: bool, origin: str = "", is_kept: bool = True
    ) -> Future[None]:
        """Give it this width as soon as there is room; None: what the planner thinks best again."""
        intent = scale(job, width, by, is_now=is_now, is_kept=is_kept, read=self._store.job)
        return self._intend(asked_from(origin, intent))

    def report(self, told: Report) -> Future[None]:
        """What a job says of itself. Done when it is on disk."""
        return self._intend(report(told))

    def control(self, attempt: AttemptId) -> Control:
        """What a job is asked to do; as of the last cycle."""
        job = self._world.jobs.get(attempt.job)
        if job is None or job.attempts != attempt.number or job.attempt is None:
            raise Conflict(f"attempt {attempt} is over; there is nothing to ask it any more")
        return self._controls.get(attempt, Control())

    def has_begun(self, attempt: AttemptId, rank: int, epochs: int) -> None:
        """A rank that does not report says where it is; only to agree on where to stop."""

        def note(world: World) -> None:
            job = world.jobs.get(attempt.job)
            if job is not None and job.attempts == attempt.number:
                job.begun[rank] = max(epochs, job.begun.get(rank, 0))

        self._tell(note, is_urgent=False)

    def _intend(self, intent: Intent[T]) -> Future[T]:
        """Carried out by the loop, in its next cycle; done when that is on disk."""
        future: Future[T] = Future()
        with self._mutex:
            if self._is_closed:
                raise Unavailable(CLOSED)
            self._intents.append((intent, future))
        self._wake.set()
        return future

    def delete(self, jobs: Sequence[JobRecord], *, by: str, origin: str = "") -> Future[None]:
        """Their history, logs and checkpoints go; a folder for checkpoints that its user named stays."""
        return self._retention.delete(jobs, by=by, origin=origin)

    def reason(self, job: JobRecord) -> Reason | None:
        """Why it is not running, worked out from the latest plan; None while running or succeeded."""
        if job.reason_code is None:
            return None
        snapshot, plan = self._latest
        view = snapshot.jobs_by_id.get(job.id)
        if not is_waiting_code(job.reason_code, job.state):
            return explain_record(job.reason_code, job.reason_evidence, job.spec.kind, on_cluster=self._on_cluster)
        if view is None or job.id not in plan.verdicts:
            return NOT_YET_PLANNED
        known = self._world.jobs.get(job.id)  # of a long list of jobs, reading each one's spec would take longest
        kind = job.spec.kind if known is None else known.kind
        return explain(snapshot, view, plan.verdicts[job.id], kind, on_cluster=self._on_cluster)

    def shortages(self) -> tuple[Shortage, ...] | None:
        """For whom there is not enough room, by the latest plan, in line; None: nothing was planned yet."""
        snapshot, plan = self._latest
        return None if snapshot is NOTHING_SEEN else find_shortages(snapshot, plan)

    def owner(self, job: JobId) -> str | None:
        """Of one that has not ended; None: there is no such."""
        found = self._world.jobs.get(job)
        return None if found is None else found.owner

    def seen_on_gpus(self, job: JobId) -> Mapping[NodeId, GpuSeen]:
        """What its present attempt does on each of its nodes; empty: nothing was measured."""
        found = self._world.jobs.get(job)
        return {} if found is None else found.gpu

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

    def look(self) -> None:
        """Something may have changed."""
        self._wake.set()

    def _tell(self, message: Callable[[World], object], *, is_urgent: bool = True) -> None:
        with self._mutex:
            self._inbox.append(message)
        if is_urgent:
            self._wake.set()

    # -- the loop --------------------------------------------------------------------------------------------

    def load(self) -> int:
        """Read the world, tell the engine what should be running; returns the generation to open it with."""
        self._generation = self._store.generation() + 1
        self._store.record(Changes(generation=self._generation)).result()
        self._reload()
        return self._generation

    def start(self) -> None:
        """Cycle until `close`, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join()
        with self._mutex:
            self._is_closed = True
        for _, future in self._take_intents():
            future.set_exception(Unavailable(CLOSED))

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.is_set():
            self._wake.wait(self._patience())
            self._wake.clear()
            began = self._clock.busy()
            try:
                self.cycle()
                pause = rest_s(self._clock.busy() - began)
            except SwellError as error:
                log.warning("nothing could be recorded (%s), trying again in %s s", error, RETRY_S)
                pause = RETRY_S
                self._wake.set()
            except Exception:
                log.exception("a cycle failed; nothing of it was applied, trying again in %s s", RETRY_S)
                pause = RETRY_S
                self._wake.set()
            self._closing.wait(pause)

    def _patience(self) -> float:
        """Until something is due, at most."""
        due = [at for job in self._world.timed if (at := self._due(job)) is not None]
        return max(0.0, min([TIMER_S, *(at - self._clock.now() for at in due)]))

    def _due(self, job: JobId) -> float | None:
        found = self._world.jobs.get(job)
        return None if found is None else next_due(found)

    def cycle(self) -> None:
        """observe → plan → check → record → apply. Whatever goes wrong, the store is the truth."""
        intents = self._take_intents()
        try:
            results = self._cycle([intent for intent, _ in intents])
        except BaseException as error:
            problem = error if isinstance(error, SwellError) else Unavailable("a cycle failed; try again")
            for _, future in intents:
                future.set_exception(problem)
            raise
        for (_, future), (result, failure) in zip(intents, results, strict=True):
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

    def _cycle(self, intents: Sequence[Intent[Any]]) -> list[tuple[Any, SwellError | None]]:
        if self._is_stale:
            self._reload()
        self._is_stale = True
        self._take_inbox()
        self._unrecorded.append(self._engine.observe())
        turn = Turn(self._world, Changes(), self._clock.now())
        results, begins, latest = self._decide(turn, intents)
        if turn.changes:
            accounts = self.accounts.enter(turn.changes, lambda job: self._world.jobs[job].owner)
            with self._booking:
                self._record(turn.changes, turn.effects, begins)
                self.accounts = accounts
        self._unrecorded.clear()
        self._latest = latest
        carry_out(self._engine, turn.effects, self._generation)
        records = self._store.jobs([one.attempt.job_id for one in begins])
        begin(self._engine, begins, self._generation, records, self._reporting)
        self._is_stale = False
        self._publish_controls()
        self._notify_ended(turn.changes)
        self._watch(Cycled(turn.changes.events, turn.restarts_s, turn.plan_s, self._clock.now() - turn.now))
        self._retention.forget_old(self._clock.now())
        return results

    def _take_intents(self) -> list[tuple[Intent[Any], Future[Any]]]:
        with self._mutex:
            intents, self._intents = self._intents, []
        return [(intent, future) for intent, future in intents if future.set_running_or_notify_cancel()]

    def _publish_controls(self) -> None:
        asked = [job for job in map(self._world.jobs.get, self._world.timed) if job is not None and job.asked]
        controls = {job.attempt_id: control_of(job) for job in asked}
        if controls != self._controls:
            self._controls = controls
            self.on_control()

    def _notify_ended(self, changes: Changes) -> None:
        for job, values in changes.jobs.items():
            if values.get("notice_due"):
                self._notify(self._store.job(job))

    def _take_inbox(self) -> None:
        with self._mutex:
            messages, self._inbox = self._inbox, []
        for message in messages:
            message(self._world)

    def _decide(
        self, turn: Turn, intents: Sequence[Intent[Any]]
    ) -> tuple[list[tuple[Any, SwellError | None]], list[Begin], tuple[Snapshot, Plan]]:
        changes, now = turn.changes, turn.now
        fresh = [node for node in self._unrecorded[-1].nodes if self._counted.get(node.id) is not node]
        self._counted |= {node.id: node for node in fresh}
        self.accounts = self.accounts.seen(fresh)
        self._world.gpus = self.accounts.memory
        results = [_attempt(intent, turn) for intent in intents]
        for seen in self._unrecorded:
            for left in seen.reports:  # before its attempt is over: then nothing can be said of it any more
                _, refusal = _attempt(report(left), turn)
                if refusal is not None:
                    log.info("attempt %s has left a report that does not count: %s", left.attempt, refusal)
            turn.effects += fold(self._world, seen, changes, now)
        turn.effects += see_to_what_is_due(self._world, changes, now)
        self._note_nodes(self._unrecorded[-1], changes)
        arrivals = tuple(self._arrivals)
        snapshot = Snapshot(now, self._unrecorded[-1].nodes, self._world.views(), arrivals, self._standings(now))
        began = self._clock.busy()
        plan = _plan_safely(snapshot)
        turn.plan_s = self._clock.busy() - began
        begins, stops = enact(self._world, plan, changes, now)
        turn.effects += stops
        # Reasons are told from how things stand with this plan carried out: what it starts is no longer free.
        after = replace(snapshot, jobs=self._world.views()) if plan.actions else snapshot
        return results, begins, (after, plan)

    def _standings(self, now: float) -> dict[str, Standing]:
        """Of everybody whose jobs wait or run."""
        owners = {job.owner for job in self._world.jobs.values()}
        return {
            owner: Standing(self.accounts.faded_gpu_s(owner, now), limits.gpus, limits.running, self._disk_use(owner))
            for owner, limits in ((owner, self._limits(owner)) for owner in sorted(owners))
        }

    def _note_nodes(self, seen: Observation, changes: Changes) -> None:
        reachable = frozenset(node.id for node in seen.nodes if node.is_reachable)
        for kind, names in (
            ("NodeJoined", reachable - self._nodes_known),
            ("NodeLost", self._nodes_known - reachable),
        ):
            changes.events.extend(EventRecord(kind, detail={"node": name}) for name in sorted(names))
        self._nodes_known = reachable

    def _record(self, changes: Changes, effects: list[Effect], begins: list[Begin]) -> None:
        """What the plan changes is on disk before it is applied, under a generation of its own."""
        if begins or any(isinstance(effect, Stop) for effect in effects):
            self._generation += 1
            changes.generation = self._generation
        self._store.record(changes).result()

    def _reload(self) -> None:
        """The store is the truth: read it again, and tell the engine everything again."""
        self._arrivals = deque(self._store.arrivals(ARRIVALS_KEPT), ARRIVALS_KEPT)
        accounts = Accounts(
            self._half_life_s, self._store.accounts(), self._store.usage_totals(), memory=self.accounts.memory
        )
        found = restore(self._store, accounts)
        self._world, self.accounts = found.world, accounts
        begin(self._engine, found.begins, self._generation, found.records, self._reporting)
        carry_out(self._engine, found.stops, self._generation)
        self._publish_controls()
        for record in self._store.with_notice_due():
            self._notify(record)

    def told(self, job: JobId, kind: str, detail: Mapping[str, object], *, is_last: bool = True) -> Future[None]:
        """Whoever wanted to know that it ended has been told, or will not be: an event says which.

        `is_last`: it has not ended again meanwhile.
        """
        due: dict[JobId, dict[str, Any]] = {job: {"notice_due": 0}} if is_last else {}
        return self._store.record(Changes(jobs=due, events=[EventRecord(kind, job, detail=dict(detail))]))


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


def _attempt(intent: Intent[Any], turn: Turn) -> tuple[Any, SwellError | None]:
    try:
        return intent(turn), None
    except SwellError as refusal:  # told to whoever asked; nothing was changed
        return None, refusal


def _plan_safely(snapshot: Snapshot) -> Plan:
    """A broken plan is our bug: it is not applied, and what was seen is recorded all the same."""
    plan = make_plan(snapshot)
    try:
        check_plan(snapshot, plan)
    except BrokenPlan:
        log.exception("the planner made a plan that breaks a rule; nothing is started in this cycle")
        return Plan()
    return plan
