"""What happens in one cycle?

When there is one is the loop's affair (`loop.py`); a test or a simulation runs cycles by hand. A cycle whose results
cannot be written changes nothing: the world is read again and the same facts are tried later.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from swell.config import UserLimits
from swell.controller.accounting import HALF_LIFE_S, Accounts
from swell.controller.apply import Begin, begin, carry_out, enact
from swell.controller.clock import Clock
from swell.controller.disk_limit import DiskLimit
from swell.controller.foresight import Foresight
from swell.controller.inbox import Inbox
from swell.controller.intents import Intent, Turn, report
from swell.controller.observe import Effect, fold
from swell.controller.pools import WorkerPools
from swell.controller.reporting import Reporting
from swell.controller.restoring import restore
from swell.controller.retention import Retention
from swell.controller.training import control_of
from swell.controller.unstorable import BareFacts, UnstorableJobs, blaming, brief, failed, not_recorded
from swell.controller.world import World
from swell.controller.yielding import Stop, next_due, see_to_what_is_due
from swell.engines import Engine
from swell.errors import Rejected, SwellError, Unavailable
from swell.model.cluster import Node, NodeId
from swell.model.job import AttemptId, JobId
from swell.model.launch import Observation
from swell.model.plan import Plan, Snapshot, Standing
from swell.model.training import Control
from swell.planner import BrokenPlan, check_plan, make_plan
from swell.planner.pools import PoolCapacity, PoolNeed
from swell.planner.why.wording import ON_MACHINES, Wording
from swell.store import Changes, EventRecord, JobRecord
from swell.store.jobstore import JobStore


@dataclass(frozen=True, slots=True)
class Cycled:
    events: Sequence[EventRecord]  #: what was recorded
    restarts_s: Sequence[float]  #: of jobs that began to train: what their start cost
    plan_s: float  #: CPU time of making the plan and checking it
    cycle_s: float  #: from the look at the world until everything was asked for


NOT_BY_DATA = (SwellError, OSError)  # nothing could be recorded at all, whatever it is
NOTHING_SEEN = Snapshot(0.0, (), ())
ARRIVALS_KEPT = 10  # how busy it is, is told from the last few submissions

T = TypeVar("T")

log = logging.getLogger(__name__)


class Cycles:
    """The cycles of one controller, all run by one thread. What others ask of it is in `controller.py`."""

    def __init__(
        self,
        store: JobStore,
        engine: Engine,
        clock: Clock,
        *,
        keep_s: float | None,
        reporting: Reporting,
        notify: Callable[[JobRecord], None] = lambda _: None,
        erase_checkpoints: Callable[[JobId], None] = lambda _: None,
        half_life_s: float = HALF_LIFE_S,
        limits: Callable[[str], UserLimits] = lambda _: UserLimits(),
        disk: DiskLimit | None = None,
        forgotten: Callable[[JobId], None] = lambda _: None,
        watch: Callable[[Cycled], None] = lambda _: None,
        wording: Wording = ON_MACHINES,
        plan: Callable[[Snapshot], Plan] = make_plan,
        check: Callable[[Snapshot, Plan], None] = check_plan,
        pools: WorkerPools | None = None,
    ) -> None:
        self._inbox = Inbox()
        self._store = store
        self._plan = plan
        self._check = check
        self._engine = engine
        self._clock = clock
        self._retention = Retention(
            store, engine, keep_s=keep_s, erase_checkpoints=erase_checkpoints, forgotten=forgotten
        )
        self._reporting = reporting
        self._half_life_s = half_life_s  #: of what somebody has used, in fair share
        self._limits = limits  #: of a user
        self._disk = DiskLimit(lambda _: None, lambda _: {}) if disk is None else disk
        self.accounts = Accounts(half_life_s)  #: who has used how much; a new value with every change
        self._wording = wording  #: of reasons
        self._watch = watch  #: told of every cycle; must not block
        self._booking = threading.Lock()  #: held while what is stored and the accounts may differ
        self._notify = notify  #: tell whoever wants to know that it has ended; must not block
        self.foresight = Foresight(plan)  #: when waiting jobs are expected to start
        self.pools = WorkerPools() if pools is None else pools  #: what starts workers when jobs wait
        self._arrivals: deque[float] = deque(maxlen=ARRIVALS_KEPT)
        self._controls: dict[AttemptId, Control] = {}
        self.on_control: Callable[[], None] = lambda: None  #: long polls of jobs should look
        self._world = World()
        self._unrecorded: list[Observation] = []
        self._bare_facts = BareFacts()
        self._ending: set[AttemptId] = set()  #: of jobs that were failed although something of them may still run
        self._generation = 0
        self._is_stale = False  #: a cycle broke off; the world may be ahead of the store
        self._latest: tuple[Snapshot, Plan] = NOTHING_SEEN, Plan()
        #: how many workers of pools the jobs of which plan lack; worked out when somebody asks
        self._pool_needs: tuple[tuple[Snapshot, Plan], tuple[PoolCapacity, ...], dict[str, PoolNeed]] = (
            self._latest,
            (),
            {},
        )
        self.made: tuple[Snapshot, Plan] = NOTHING_SEEN, Plan()  #: what was last decided, and from what
        self._nodes_known: frozenset[str] = frozenset()
        self._counted: dict[NodeId, Node] = {}  #: whose GPUs the accounts know

    @property
    def wanted(self) -> threading.Event:
        """Set: there is to be a cycle as soon as may be."""
        return self._inbox.wanted

    def look(self) -> None:
        """Something may have changed."""
        self.wanted.set()

    def refuse_more(self) -> None:
        """Nobody carries out what is asked from now on: whoever waits hears so."""
        self._inbox.refuse_more()

    def load(self) -> int:
        """Read the world, tell the engine what should be running; returns the generation to open it with."""
        self._generation = self._store.take_over().result()
        self._reload()
        return self._generation

    def next_due(self) -> float | None:
        """The earliest moment at which a job has something due; None: none has."""
        return min((at for job in self._world.timed if (at := self._due(job)) is not None), default=None)

    def _due(self, job: JobId) -> float | None:
        found = self._world.jobs.get(job)
        return None if found is None else next_due(found)

    def cycle(self) -> None:
        """observe → plan → check → record → apply. Whatever goes wrong, the store is the truth."""
        intents = self._inbox.take_intents()
        try:
            results = self._cycle_of_most([intent for intent, _ in intents])
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

    def _cycle_of_most(self, intents: Sequence[Intent[Any]]) -> list[tuple[Any, SwellError | None]]:
        """One that cannot be recorded is tried again without what cannot be stored, be it asked for or seen."""
        try:
            return self._cycle(intents)
        except NOT_BY_DATA:
            raise
        except Exception as error:
            if not intents and not isinstance(error, UnstorableJobs):
                raise
            log.exception("a cycle could not be recorded; what cannot be stored is left out")
        self._cycle_without_unstorable()
        return [self._cycle_alone(intent) for intent in intents]

    def _cycle_without_unstorable(self) -> None:
        while True:
            try:
                self._cycle([])
            except UnstorableJobs as problem:
                self._set_aside(problem.jobs)
            else:
                return

    def _cycle_alone(self, intent: Intent[Any]) -> tuple[Any, SwellError | None]:
        try:
            return self._cycle([intent])[0]
        except NOT_BY_DATA:
            raise
        except Exception as error:  # noqa: BLE001  told to who asked, and written to the log before
            return None, Rejected(f"this cannot be recorded, so nothing was changed: {brief(error.__cause__ or error)}")

    def _set_aside(self, unstorable: Mapping[JobId, str]) -> None:
        """Of each only the bare facts are believed from now on; one that cannot be stored even then is failed."""
        for job, why in unstorable.items():
            if job in self._bare_facts.jobs:
                self._fail(job, why)
            else:
                log.error("what was seen of job %d cannot be recorded: %s", job, why)
                self._store.record(Changes(events=[not_recorded(job, why)])).result()
                self._bare_facts.jobs[job] = why

    def _fail(self, job: JobId, why: str) -> None:
        record = self._store.job(job)
        attempt = next((one for one in self._store.open_attempts() if one.job_id == job), None)
        log.error("job %d is failed, because nothing of it can be recorded: %s", job, why)
        self._store.record(failed(record, attempt, why, self._clock.now())).result()
        if attempt is not None:
            self._engine.stop(AttemptId(job, attempt.number), record.spec.grace_s, self._generation)
            self._ending.add(AttemptId(job, attempt.number))

    def _forget_ending(self, seen: Observation) -> None:
        """Those that were failed are stopped; when nothing of them is left, nobody need know of them any more."""
        for run in seen.runs:
            if run.is_finished and run.attempt in self._ending:
                self._ending.discard(run.attempt)
                self._engine.forget(run.attempt)

    def _cycle(self, intents: Sequence[Intent[Any]]) -> list[tuple[Any, SwellError | None]]:
        if self._is_stale:
            self._reload()
        self._is_stale = True
        for message in self._inbox.take_messages():
            message(self._world)
        self._unrecorded.append(self._engine.observe())
        turn = Turn(self._world, Changes(), self._clock.now())
        self._unrecorded = [self._bare_facts.of(seen, turn.now) for seen in self._unrecorded]
        results, begins, latest = self._decide(turn, intents)
        if turn.changes:
            accounts = self.accounts.enter(turn.changes, lambda job: self._world.jobs[job].owner)
            with self._booking:
                self._record(turn.changes, turn.effects, begins)
                self.accounts = accounts
        self._disk.recorded()
        self._forget_ending(self._unrecorded[-1])
        self._unrecorded.clear()
        self._bare_facts.keep_only(self._world.jobs)
        self.foresight.keep_only(self._world.jobs)
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
                with blaming(left.attempt.job):
                    _, refusal = _attempt(report(left), turn)
                if refusal is not None:
                    log.info("attempt %s has left a report that does not count: %s", left.attempt, refusal)
            turn.effects += fold(self._world, seen, changes, now)
        turn.effects += see_to_what_is_due(self._world, changes, now)
        turn.effects += self._disk.enforce(self._world.jobs.values(), changes)
        self._note_nodes(self._unrecorded[-1], changes)
        arrivals = tuple(self._arrivals)
        snapshot = Snapshot(now, self._unrecorded[-1].nodes, self._world.views(), arrivals, self._standings(now))
        began = self._clock.busy()
        plan = self._checked(snapshot, self._plan(snapshot))
        self.made = snapshot, plan
        turn.plan_s = self._clock.busy() - began
        begins, stops = enact(self._world, plan, changes, now)
        turn.effects += stops
        changes.events += self.foresight.came_true([one.attempt.job_id for one in begins], now)
        # Reasons are told from how things stand with this plan carried out: what it starts is no longer free.
        after = replace(snapshot, jobs=self._world.views()) if plan.actions else snapshot
        return results, begins, (after, plan)

    def _checked(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """A broken plan is our bug: it is not applied, and what was seen is recorded all the same."""
        try:
            self._check(snapshot, plan)
        except BrokenPlan:
            log.exception("the planner made a plan that breaks a rule; nothing is started in this cycle")
            return Plan()
        return plan

    def _standings(self, now: float) -> dict[str, Standing]:
        """Of everybody whose jobs wait or run."""
        owners = {job.owner for job in self._world.jobs.values()}
        return {
            owner: Standing(self.accounts.faded_gpu_s(owner, now), limits.gpus, limits.running, self._disk.use(owner))
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
        try:
            self._store.record(changes).result()
        except SwellError:
            raise
        except Exception as error:
            unstorable = self._store.unstorable(changes).result()
            raise UnstorableJobs(unstorable) if unstorable else error from error

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


def _attempt(intent: Intent[Any], turn: Turn) -> tuple[Any, SwellError | None]:
    try:
        return intent(turn), None
    except SwellError as refusal:  # told to whoever asked; nothing was changed
        return None, refusal
