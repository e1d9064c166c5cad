"""Who makes what is there like what is wanted?

One thread goes over the attempts that are due, works out the next steps of each, and lets many calls be made at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from swell.engines.kubernetes.attempt.api_calls import ApiCalls
from swell.engines.kubernetes.attempt.follow import IMAGE_S
from swell.engines.kubernetes.attempt.leftovers import Leftovers
from swell.engines.kubernetes.attempt.live_attempt import LiveAttempt, logs_of
from swell.engines.kubernetes.attempt.live_attempts import LiveAttempts
from swell.engines.kubernetes.attempt.observer import AttemptObserver
from swell.engines.kubernetes.attempt.refusals import AGAIN_S, Refusals, missing, starting
from swell.engines.kubernetes.attempt.steps import BindPod, Step, is_left_over, object_steps, pod_steps
from swell.engines.kubernetes.attempt.wanted import AttemptSeen, Wanted
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.converger import Converger, TurnPace
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.kubernetes.sharing.reserver import Reservations
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import NodeSeen
from swell.errors import Conflict, Rejected, SwellError, Unavailable
from swell.model.cluster import NodeId

log = logging.getLogger(__name__)

CALLS_MAX = 512  # in one go: a second or so, then what has changed meanwhile is looked at
FAILURES_MAX = 3  # a verdict of the API server that stays the same is one
GIVE_UP_S = 30.0  # a gang is not partly bound for longer than this
PODS_S = 60.0  # within this an object's controller has made its pods, or something is wrong
RESERVE_S = 180.0  # within this a GPU is ready to be shared, its pod's image being pulled, or something is wrong
PAUSE_S_MAX = 5.0
TIMER_S = 1.0
TASK = "making the objects of jobs like what is wanted"


class Reconciler:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        live_attempts: LiveAttempts,
        observer: AttemptObserver,
        api_calls: ApiCalls,
        reservations: Reservations,
        leftovers: Leftovers,
        logs: LogKeeper,
        *,
        wake: Callable[[], None],
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._live_attempts = live_attempts
        self._observer = observer
        self._api_calls = api_calls
        self._reservations = reservations
        self._leftovers = leftovers
        self._logs = logs
        self._wake = wake  #: the controller should look
        self._now = now
        self._monotonic = monotonic
        self._refusals = Refusals(port, cluster, monotonic)
        self.called_at = -math.inf
        self._looked_at = -math.inf  #: for those that do not start
        pace = TurnPace(look_s=TIMER_S, trouble_s=TIMER_S, denied_s=TIMER_S)
        self._converger = Converger("kubernetes-reconciler", TASK, self._turn, pace, bell=live_attempts.bell)

    def start(self) -> None:
        self._converger.start()

    def close(self) -> None:
        self._converger.close()

    def _turn(self) -> bool:
        self._cluster.look_for_kinds()
        self._watch_limits()
        self._watch_starts()
        while self._pass() and not self._converger.is_closing:
            pass
        return False

    def _watch_limits(self) -> None:
        for live in self._live_attempts.limited():
            begun = min(list(live.memory.started.values()), default=None)  # the controller's thread adds to it
            if begun is None or live.wanted.time_limit_s is None or live.memory.is_overdue:
                continue
            if self._now() >= begun + live.wanted.time_limit_s:
                live.memory.is_overdue = True
                self._tell(live)

    def _watch_starts(self) -> None:
        """Nothing happens to a pod that does not start; room is not held for it for ever."""
        now = self._monotonic()
        if now < self._looked_at + AGAIN_S:
            return
        self._looked_at = now
        for live in self._live_attempts.not_begun():
            memory = live.memory
            waited_s = 0.0 if memory.starts_since is None else now - memory.starts_since
            if waited_s > IMAGE_S and memory.refused and not memory.unplaced:
                self._give_up(live, memory.refused)
            elif memory.starts_since is not None:
                self._live_attempts.again(live)

    def _tell(self, live: LiveAttempt) -> None:
        self._live_attempts.tell(live)
        self._wake()

    def _pass(self) -> bool:
        """One round over what is due. Is there more to do at once?"""
        nodes = self._cluster.nodes()
        calls: list[Callable[[], None]] = []
        is_rest = False
        for attempt in self._live_attempts.due():
            if len(calls) >= CALLS_MAX:
                is_rest = True
                break
            live = self._live_attempts.take_due(attempt)
            if live is not None:
                calls += self._careful_calls(live, nodes)
        calls += self._reservations.calls(self._live_attempts.sharing(), nodes)
        calls += self._leftovers.calls(self._live_attempts.is_active, self._monotonic())
        if calls:
            self.called_at = self._monotonic()
            self._port.gather(calls)
        return is_rest or bool(calls)

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _careful_calls(self, live: LiveAttempt, nodes: Mapping[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        try:
            return self._calls(live, nodes)
        except Exception:  # one that cannot be understood must not keep all others from going on
            log.exception("attempt %s: what to do next cannot be told; trying again", live.wanted.attempt)
            live.memory.retry_at = self._monotonic() + PAUSE_S_MAX
            self._live_attempts.again(live)
            return []

    def _calls(self, live: LiveAttempt, nodes: Mapping[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        memory = live.memory
        if memory.retry_at > self._monotonic():
            self._live_attempts.again(live)
            return []
        seen = self._observer.look(live, nodes)
        self._meet(live, seen, nodes)
        if live.finished_at is not None:
            self._wake()  # it has ended, and only the rest of its log is waited for
        if live.origin.has_object:
            steps = object_steps(live.wanted, seen, memory, live.origin)
        else:
            steps = pod_steps(live.wanted, seen, memory, live.origin)
        others = [step for step in steps if not isinstance(step, BindPod)]
        binds = self._may_bind(live, seen, [] if others else [step for step in steps if isinstance(step, BindPod)])
        self._watch_patience(live, seen)
        calls = [self._call(live, seen, others)] if others else [self._call(live, seen, [bind]) for bind in binds]
        return calls + self._questions(live, seen)

    def _meet(self, live: LiveAttempt, seen: AttemptSeen, nodes: Mapping[NodeId, NodeSeen]) -> None:
        for rank, pod in seen.pods:
            is_old = live.origin.is_remade and is_left_over(pod, live.wanted, live.memory)
            if (
                rank is not None
                and not is_old
                and (not live.origin.is_ours or pod.attempt in (None, live.wanted.attempt))
            ):
                live.memory.met[rank] = pod.uid
        for source, has_ended in logs_of(live.wanted.attempt, seen, nodes):
            if has_ended:
                self._logs.finish(source)
            else:
                self._logs.follow(source)

    def _may_bind(self, live: LiveAttempt, seen: AttemptSeen, binds: Sequence[BindPod]) -> Sequence[BindPod]:
        found = self._reservations.admit(live.wanted, binds)
        if found.why:
            self._live_attempts.again(live)
        if found.why != live.memory.held:
            live.memory.held, live.memory.waits_since = found.why, None
            self._wake()
        if found.binds and _is_late(live, seen):
            return self._with_room(live, found.binds)
        for bind in found.binds:
            self._cluster.give_room(bind.pod, bind.place.node)
        return found.binds

    def _with_room(self, live: LiveAttempt, binds: Sequence[BindPod]) -> Sequence[BindPod]:
        """Since their room was planned, somebody else may have taken it; pods that are remade are not planned again.

        A gang whole or not at all; the tasks of an array each for itself.
        """
        fitting: list[BindPod] = []
        for bind in binds:
            node = bind.place.node
            if self._cluster.take_room(bind.pod, node):
                fitting.append(bind)
            else:
                self._note_problem(live, f"node {node} has no room left for pod {bind.pod.name}: others have taken it")
                self._live_attempts.again(live)
        if live.wanted.is_array or len(fitting) == len(binds):
            return fitting
        for bind in fitting:
            self._cluster.leave_room(bind.pod)
        return ()

    def _call(self, live: LiveAttempt, seen: AttemptSeen, steps: Sequence[Step]) -> Callable[[], None]:
        def call() -> None:
            try:
                for step in steps:
                    self._api_calls.do(step, live.wanted, seen, live.memory)
            except SwellError as error:
                self._failed(live, error)
            else:
                live.memory.problem, live.memory.fails_since, live.memory.failures = "", None, 0
            self._live_attempts.again(live)

        return call

    def _questions(self, live: LiveAttempt, seen: AttemptSeen) -> list[Callable[[], None]]:
        """Why are there no pods, or why do they not start? To be asked of the cluster now and then, while it is so."""
        memory = live.memory
        late = starting(live.wanted, seen)
        memory.starts_since = None if late is None else memory.starts_since or self._monotonic()
        if missing(live.wanted, seen):
            if self._refusals.is_due(memory):
                return [lambda: self._note_refusal(live, self._refusals.ask(live.wanted, seen, memory))]
        elif late is None:
            self._note_refusal(live, "")
        elif self._refusals.is_slow(memory):
            return [lambda: self._note_refusal(live, self._refusals.ask_kubelet(late, memory))]
        return []

    def _note_refusal(self, live: LiveAttempt, said: str) -> None:
        if said != live.memory.refused:
            live.memory.refused = said
            self._tell(live)

    # -- what does not work ------------------------------------------------------------------------------------------

    def _failed(self, live: LiveAttempt, error: SwellError) -> None:
        memory = live.memory
        memory.failures += 1
        self._note_problem(live, str(error))
        if isinstance(error, Unavailable) and not memory.is_half:
            # Nobody's patience runs out while nothing can be asked, and nothing is held.
            memory.waits_since = memory.fails_since = None
        memory.retry_at = self._monotonic() + min(PAUSE_S_MAX, 0.1 * 2.0**memory.failures)
        log.info("attempt %s: %s", live.wanted.attempt, error)
        is_verdict = isinstance(error, Rejected) and not isinstance(error, Conflict)
        has_hope = live.wanted.is_stopping or live.wanted.has_begun
        if is_verdict and memory.failures >= FAILURES_MAX and not has_hope:
            self._give_up(live, memory.problem)

    def _note_problem(self, live: LiveAttempt, said: str) -> None:
        live.memory.problem = said
        if live.memory.fails_since is None:
            live.memory.fails_since = self._monotonic()

    def _watch_patience(self, live: LiveAttempt, seen: AttemptSeen) -> None:
        """A gang that does not become whole gives its room back, and so does an array without a single pod."""
        wanted, memory = live.wanted, live.memory
        needed = wanted.places.keys() - wanted.emptied
        placed = [rank for rank in needed if rank in seen.staying and seen.staying[rank].node]
        is_placed = len(placed) == len(needed)
        memory.is_half = bool(placed) and not is_placed
        is_well = not missing(wanted, seen) if wanted.is_array else is_placed
        if wanted.is_stopping or is_well or memory.unplaced:
            memory.waits_since = None
            return
        now = self._monotonic()
        memory.waits_since = now if memory.waits_since is None else memory.waits_since
        waited_s = now - memory.waits_since
        failed_s = 0.0 if memory.fails_since is None else now - memory.fails_since
        if wanted.is_array and (wanted.has_begun or seen.alive):
            self._live_attempts.again(live)  # it goes on with what it has
        elif failed_s > GIVE_UP_S:
            self._give_up(live, memory.problem)
        elif waited_s > (RESERVE_S if memory.held else PODS_S):
            self._give_up(live, memory.held or _too_few(wanted, seen, memory.refused))
        else:
            self._live_attempts.again(live)

    def _give_up(self, live: LiveAttempt, problem: str) -> None:
        live.memory.unplaced = problem
        self._tell(live)


def _is_late(live: LiveAttempt, seen: AttemptSeen) -> bool:
    """Was it planned a while ago? Its pods had to be made first then, or it has begun, or what was bound is gone."""
    if live.origin.has_object or live.origin.is_ours or live.wanted.has_begun:
        return True
    alive = {pod.uid for _, pod in seen.pods if not pod.has_ended}
    return not live.memory.bound.keys() <= alive


def _too_few(wanted: Wanted, seen: AttemptSeen, refused: str) -> str:
    there = 0 if wanted.is_array else len(seen.staying.keys() & wanted.places.keys())
    return f"{there} of {len(wanted.places)} pods were there after {PODS_S:.0f} s" + (refused and f"; {refused}")
