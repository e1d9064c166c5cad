"""Who makes what is there like what is wanted?

One thread goes over the attempts that are due, works out the next steps of each, and lets many calls be made at once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.follow import IMAGE_S
from swell.engines.kubernetes.hands import Hands
from swell.engines.kubernetes.leftovers import Leftovers
from swell.engines.kubernetes.life import Life, logs_of
from swell.engines.kubernetes.lives import Lives
from swell.engines.kubernetes.logs import LogKeeper
from swell.engines.kubernetes.picture import NodeSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.refusals import AGAIN_S, Refusals, missing, starting
from swell.engines.kubernetes.reserving import Reservations
from swell.engines.kubernetes.sight import Sight
from swell.engines.kubernetes.steps import Bind, Step, is_left_over, object_steps, pod_steps
from swell.engines.kubernetes.wanted import Seen, Wanted
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


class Carrier(threading.Thread):
    def __init__(
        self,
        port: Port,
        cluster: Cluster,
        lives: Lives,
        sight: Sight,
        hands: Hands,
        reservations: Reservations,
        leftovers: Leftovers,
        logs: LogKeeper,
        *,
        wake: Callable[[], None],
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(name="kubernetes-hands", daemon=True)
        self._port = port
        self._cluster = cluster
        self._lives = lives
        self._sight = sight
        self._hands = hands
        self._reservations = reservations
        self._leftovers = leftovers
        self._logs = logs
        self._wake = wake  #: the controller should look
        self._now = now
        self._monotonic = monotonic
        self._refusals = Refusals(port, cluster, monotonic)
        self.called_at = -math.inf
        self._looked_at = -math.inf  #: for those that do not start
        self._is_closing = False

    def run(self) -> None:
        while not self._is_closing:
            self._lives.bell.wait(TIMER_S)
            self._lives.bell.clear()
            try:
                self._cluster.look_for_kinds()
                self._watch_limits()
                self._watch_starts()
                while self._pass() and not self._is_closing:
                    pass
            except Exception:  # a thread that ends would leave every job as it is for ever
                log.exception("carrying out what is wanted failed in a way we did not think of; going on")
                time.sleep(TIMER_S)

    def close(self) -> None:
        self._is_closing = True
        self._lives.bell.set()
        if self.is_alive():
            self.join()

    def _watch_limits(self) -> None:
        for life in self._lives.limited():
            begun = min(list(life.memory.started.values()), default=None)  # the controller's thread adds to it
            if begun is None or life.wanted.time_limit_s is None or life.memory.is_overdue:
                continue
            if self._now() >= begun + life.wanted.time_limit_s:
                life.memory.is_overdue = True
                self._tell(life)

    def _watch_starts(self) -> None:
        """Nothing happens to a pod that does not start; room is not held for it for ever."""
        now = self._monotonic()
        if now < self._looked_at + AGAIN_S:
            return
        self._looked_at = now
        for life in self._lives.not_begun():
            memory = life.memory
            waited_s = 0.0 if memory.starts_since is None else now - memory.starts_since
            if waited_s > IMAGE_S and memory.refused and not memory.unplaced:
                self._give_up(life, memory.refused)
            elif memory.starts_since is not None:
                self._lives.again(life)

    def _tell(self, life: Life) -> None:
        self._lives.tell(life)
        self._wake()

    def _pass(self) -> bool:
        """One round over what is due. Is there more to do at once?"""
        nodes = self._cluster.nodes()
        calls: list[Callable[[], None]] = []
        is_rest = False
        for attempt in self._lives.due():
            if len(calls) >= CALLS_MAX:
                is_rest = True
                break
            life = self._lives.take_due(attempt)
            if life is not None:
                calls += self._careful_calls(life, nodes)
        calls += self._reservations.calls(self._lives.sharing(), nodes)
        calls += self._leftovers.calls(self._lives.is_active, self._monotonic())
        if calls:
            self.called_at = self._monotonic()
            self._port.gather(calls)
        return is_rest or bool(calls)

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _careful_calls(self, life: Life, nodes: Mapping[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        try:
            return self._calls(life, nodes)
        except Exception:  # one that cannot be understood must not keep all others from going on
            log.exception("attempt %s: what to do next cannot be told; trying again", life.wanted.attempt)
            life.memory.retry_at = self._monotonic() + PAUSE_S_MAX
            self._lives.again(life)
            return []

    def _calls(self, life: Life, nodes: Mapping[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        memory = life.memory
        if memory.retry_at > self._monotonic():
            self._lives.again(life)
            return []
        seen = self._sight.look(life, nodes)
        self._meet(life, seen, nodes)
        if life.finished_at is not None:
            self._wake()  # it has ended, and only the rest of its log is waited for
        if life.has_object:
            steps = object_steps(life.wanted, seen, memory, is_ours=life.is_ours)
        else:
            steps = pod_steps(life.wanted, seen, memory, is_ours=life.is_ours, remakes=life.remakes)
        others = [step for step in steps if not isinstance(step, Bind)]
        binds = self._may_bind(life, seen, [] if others else [step for step in steps if isinstance(step, Bind)])
        self._watch_patience(life, seen)
        calls = [self._call(life, seen, others)] if others else [self._call(life, seen, [bind]) for bind in binds]
        return calls + self._questions(life, seen)

    def _meet(self, life: Life, seen: Seen, nodes: Mapping[NodeId, NodeSeen]) -> None:
        for rank, pod in seen.pods:
            is_old = life.remakes and is_left_over(pod, life.wanted, life.memory)
            if rank is not None and not is_old and (not life.is_ours or pod.attempt in (None, life.wanted.attempt)):
                life.memory.met[rank] = pod.uid
        for source, has_ended in logs_of(life.wanted.attempt, seen, nodes):
            if has_ended:
                self._logs.finish(source)
            else:
                self._logs.follow(source)

    def _may_bind(self, life: Life, seen: Seen, binds: Sequence[Bind]) -> Sequence[Bind]:
        found = self._reservations.admit(life.wanted, binds)
        if found.why:
            self._lives.again(life)
        if found.why != life.memory.held:
            life.memory.held, life.memory.waits_since = found.why, None
            self._wake()
        if found.binds and _is_late(life, seen):
            return self._with_room(life, found.binds)
        for bind in found.binds:
            self._cluster.give_room(bind.pod, bind.place.node)
        return found.binds

    def _with_room(self, life: Life, binds: Sequence[Bind]) -> Sequence[Bind]:
        """Since their room was planned, somebody else may have taken it; pods that are remade are not planned again.

        A gang whole or not at all; the tasks of an array each for itself.
        """
        fitting: list[Bind] = []
        for bind in binds:
            node = bind.place.node
            if self._cluster.take_room(bind.pod, node):
                fitting.append(bind)
            else:
                self._note_problem(life, f"node {node} has no room left for pod {bind.pod.name}: others have taken it")
                self._lives.again(life)
        if life.wanted.is_array or len(fitting) == len(binds):
            return fitting
        for bind in fitting:
            self._cluster.leave_room(bind.pod)
        return ()

    def _call(self, life: Life, seen: Seen, steps: Sequence[Step]) -> Callable[[], None]:
        def call() -> None:
            try:
                for step in steps:
                    self._hands.do(step, life.wanted, seen, life.memory)
            except SwellError as error:
                self._failed(life, error)
            else:
                life.memory.problem, life.memory.fails_since, life.memory.failures = "", None, 0
            self._lives.again(life)

        return call

    def _questions(self, life: Life, seen: Seen) -> list[Callable[[], None]]:
        """Why are there no pods, or why do they not start? To be asked of the cluster now and then, while it is so."""
        memory = life.memory
        late = starting(life.wanted, seen)
        memory.starts_since = None if late is None else memory.starts_since or self._monotonic()
        if missing(life.wanted, seen):
            if self._refusals.is_due(memory):
                return [lambda: self._note_refusal(life, self._refusals.ask(life.wanted, seen, memory))]
        elif late is None:
            self._note_refusal(life, "")
        elif self._refusals.is_slow(memory):
            return [lambda: self._note_refusal(life, self._refusals.ask_kubelet(late, memory))]
        return []

    def _note_refusal(self, life: Life, said: str) -> None:
        if said != life.memory.refused:
            life.memory.refused = said
            self._tell(life)

    # -- what does not work ------------------------------------------------------------------------------------------

    def _failed(self, life: Life, error: SwellError) -> None:
        memory = life.memory
        memory.failures += 1
        self._note_problem(life, str(error))
        if isinstance(error, Unavailable) and not memory.is_half:
            # Nobody's patience runs out while nothing can be asked, and nothing is held.
            memory.waits_since = memory.fails_since = None
        memory.retry_at = self._monotonic() + min(PAUSE_S_MAX, 0.1 * 2.0**memory.failures)
        log.info("attempt %s: %s", life.wanted.attempt, error)
        is_verdict = isinstance(error, Rejected) and not isinstance(error, Conflict)
        has_hope = life.wanted.is_stopping or life.wanted.has_begun
        if is_verdict and memory.failures >= FAILURES_MAX and not has_hope:
            self._give_up(life, memory.problem)

    def _note_problem(self, life: Life, said: str) -> None:
        life.memory.problem = said
        if life.memory.fails_since is None:
            life.memory.fails_since = self._monotonic()

    def _watch_patience(self, life: Life, seen: Seen) -> None:
        """A gang that does not become whole gives its room back, and so does an array without a single pod."""
        wanted, memory = life.wanted, life.memory
        placed = [rank for rank in wanted.places if rank in seen.staying and seen.staying[rank].node]
        is_placed = len(placed) == len(wanted.places)
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
            self._lives.again(life)  # it goes on with what it has
        elif failed_s > GIVE_UP_S:
            self._give_up(life, memory.problem)
        elif waited_s > (RESERVE_S if memory.held else PODS_S):
            self._give_up(life, memory.held or _too_few(wanted, seen, memory.refused))
        else:
            self._lives.again(life)

    def _give_up(self, life: Life, problem: str) -> None:
        life.memory.unplaced = problem
        self._tell(life)


def _is_late(life: Life, seen: Seen) -> bool:
    """Was it planned a while ago? Its pods had to be made first then, or it has begun, or what was bound is gone."""
    if life.has_object or life.is_ours or life.wanted.has_begun:
        return True
    alive = {pod.uid for _, pod in seen.pods if not pod.has_ended}
    return not life.memory.bound.keys() <= alive


def _too_few(wanted: Wanted, seen: Seen, refused: str) -> str:
    there = 0 if wanted.is_array else len(seen.staying.keys() & wanted.places.keys())
    return f"{there} of {len(wanted.places)} pods were there after {PODS_S:.0f} s" + (refused and f"; {refused}")
