"""The `kubernetes` engine: what is wanted, what is there, and a thread that makes the one like the other.

Nothing here needs to be durable: the controller says again what is wanted, the watches show what is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.follow import follow
from swell.engines.kubernetes.hands import Hands
from swell.engines.kubernetes.kinds import KINDS
from swell.engines.kubernetes.lease import NotHeld
from swell.engines.kubernetes.leftovers import KEPT_S, Leftovers
from swell.engines.kubernetes.life import Life, differs, is_there, make_run, parse_number, pod_log, uids
from swell.engines.kubernetes.logs import LogKeeper
from swell.engines.kubernetes.nodes import make_node
from swell.engines.kubernetes.numbering import number
from swell.engines.kubernetes.objects import ObjectSeen
from swell.engines.kubernetes.picture import JOB, RANK, RESERVATION, SCHEDULER, STORE, NodeSeen, PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.reservationpod import IMAGE
from swell.engines.kubernetes.reserving import Reservations
from swell.engines.kubernetes.steps import Bind, Step, object_steps, pod_steps
from swell.engines.kubernetes.wanted import Seen, Wanted
from swell.engines.logfolder import LogFolder
from swell.errors import Conflict, Rejected, SwellError, Unavailable
from swell.model.cluster import Node, NodeId
from swell.model.job import AttemptId
from swell.model.launch import Launch, Observation, RunSeen, TaskSeen

log = logging.getLogger(__name__)
Document = dict[str, Any]

CALLS_MAX = 512  # in one go: a second or so, then what has changed meanwhile is looked at
GIVE_UP_S = 30.0  # a gang is not partly bound for longer than this
LOGS_S = 10.0  # so long an end waits for the rest of its log
PODS_S = 60.0  # within this an object's controller has made its pods, or something is wrong
RESERVE_S = 180.0  # within this a GPU is ready to be shared, its pod's image being pulled, or something is wrong
PAUSE_S_MAX = 5.0
SILENCE_S = 60.0  # a node that is not ready for longer is out of reach
TIMER_S = 1.0


class KubernetesEngine:
    """Thread-safe: the controller's thread asks and is answered, one thread of our own makes the calls."""

    def __init__(
        self,
        port: Port,
        manifests: Callable[[Wanted], Document],
        logs: LogKeeper,
        kept: LogFolder,
        *,
        store: str,
        namespace: str,
        wake: Callable[[], None],
        reservation_image: str = IMAGE,
        cancelled_kept_s: float = KEPT_S,
        guard: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._manifests = manifests
        self._store = store
        self._wake = wake  #: the controller should look
        self._now = now
        self._monotonic = monotonic
        self._logs = logs
        self._kept = kept
        self._lock = threading.RLock()
        self._lives: dict[AttemptId, Life] = {}
        self._by_job: dict[int, AttemptId] = {}
        self._by_uid: dict[str, AttemptId] = {}  #: of objects and pods that came by kubectl
        self._sharing: set[AttemptId] = set()  #: those that share GPUs
        self._changed: set[AttemptId] = set()  #: to be told to the controller
        self._due: dict[AttemptId, None] = {}  #: to be looked at by the hands, in order
        self._stale_nodes: set[NodeId] = set()
        self._made_nodes: dict[NodeId, Node] = {}
        self._bell = threading.Event()
        self._is_closing = False
        self.on_change: Callable[[], None] = lambda: None  #: somebody else may want to look
        self.cluster = Cluster(port, self._seen)
        self._guard = guard  #: raises where another server may be acting
        self._reservations = Reservations(
            port,
            self.cluster,
            store=store,
            namespace=namespace,
            image=reservation_image,
            guard=guard,
            monotonic=monotonic,
        )
        self._leftovers = Leftovers(port, self.cluster, store, guard, cancelled_kept_s)
        self._hands = Hands(
            port,
            self.cluster,
            manifests,
            store=store,
            namespace=namespace,
            is_active=self._by_job.__contains__,
            runtime_class=self._reservations.runtime_class,
        )
        self._thread = threading.Thread(target=self._run, name="kubernetes-hands", daemon=True)

    # -- the controller's side (Engine) ----------------------------------------------------------------------------

    def open(self, generation: int) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closing = True
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join()
        self.cluster.stop()

    def start(self, launches: tuple[Launch, ...]) -> None:
        """Told again, it starts from what is seen; what was reported before is reported again."""
        wanted = Wanted.of(launches)
        with self._lock:
            known = self._lives.get(wanted.attempt)
            if known is None:
                life = Life(wanted, self._manifests(wanted))
                life.memory.kind = life.document["kind"] if life.has_object else ""
                self._lives[wanted.attempt] = life
                self._by_job[wanted.attempt.job] = wanted.attempt
                self._by_uid |= dict.fromkeys(uids(life.document), wanted.attempt)
            else:
                known.wanted = replace(wanted, has_begun=wanted.has_begun or known.wanted.has_begun)
                known.reported.clear()
                known.run = None
            if any(wanted.shares_mib):
                self._sharing.add(wanted.attempt)
            self._touch(wanted.attempt, wanted.nodes)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int) -> None:
        with self._lock:
            life = self._lives.get(attempt)
            if life is None:
                return
            if not (life.wanted.is_stopping and life.wanted.grace_s <= grace_s):
                life.wanted = replace(life.wanted, is_stopping=True, grace_s=grace_s, generation=generation)
                life.memory.deleted.clear()
            self._touch(attempt, ())

    def forget(self, attempt: AttemptId) -> None:
        with self._lock:
            life = self._lives.pop(attempt, None)
            if life is None:
                return
            if self._by_job.get(attempt.job) == attempt:
                del self._by_job[attempt.job]
            for uid in uids(life.document):
                self._by_uid.pop(uid, None)
            self._changed.discard(attempt)
            self._due.pop(attempt, None)
            self._stale_nodes.update(life.wanted.nodes)
            if attempt in self._sharing:
                self._sharing.discard(attempt)
                self._bell.set()  # the last one leaves a GPU behind

    def erase(self, attempt: AttemptId) -> None:
        """Its logs, and what is left of its job in the cluster."""
        self._kept.erase(attempt)
        self._leftovers.remove(attempt.job)

    def discard(self, job: int) -> None:
        self._leftovers.add(job, self._monotonic())

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        return self._kept.size(attempt, index)

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return self._kept.read(attempt, index, offset, limit)

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        return self._kept.offset_at(attempt, index, moment)

    def observe(self) -> Observation:
        seen_nodes = self.cluster.nodes()
        with self._lock:
            changed, self._changed = self._changed, set()
            stale, self._stale_nodes = self._stale_nodes, set()
            lives = [self._lives[attempt] for attempt in changed if attempt in self._lives]
            ours, held = self._ours(), self._held()
        nodes = self._nodes(seen_nodes, stale, ours, held)
        tasks: list[TaskSeen] = []
        runs: list[RunSeen] = []
        for life in sorted(lives, key=lambda one: one.wanted.attempt):
            self._report(life, seen_nodes, tasks, runs)
        silent = {name: seconds for name, seconds in self.silences().items() if seconds > SILENCE_S}
        return Observation(nodes, tuple(tasks), tuple(runs), silent)

    def _report(self, life: Life, nodes: dict[NodeId, NodeSeen], tasks: list[TaskSeen], runs: list[RunSeen]) -> None:
        wanted = life.wanted
        memory = replace(life.memory, met=dict(life.memory.met))  # a pod that is met from now on was not seen here
        seen = self._look(life, nodes)
        kind = {"has_object": life.has_object, "is_ours": life.is_ours, "remakes": life.remakes}
        found = follow(wanted, seen, memory, self._now(), **kind)
        for task in found.tasks:
            known = life.reported.get(task.index)
            if known is None or (known.ended_at is None) != (task.ended_at is None):
                life.reported[task.index] = task
                tasks.append(task)
                if task.has_run:
                    life.memory.started.setdefault(task.index, task.started_at)
        if not wanted.has_begun and any(task.cause == "" for task in found.tasks):
            with self._lock:
                life.wanted = replace(life.wanted, has_begun=True)
        if found.is_finished and not self._has_all_logs(life, seen):
            found = replace(found, is_finished=False)
            self._again(life)
        if found.trouble and wanted.has_begun:
            self._again(life)  # that it is over is seen by time alone
        if life.run is None or differs(life.run, found):
            life.run = found
            runs += [make_run(life.wanted, found, node) for node in wanted.nodes]

    def _has_all_logs(self, life: Life, seen: Seen) -> bool:
        """A job that has ended is asked for its log at once; the last of it is on its way."""
        sources = [
            pod_log(life.wanted.attempt, rank, pod)
            for rank, pod in seen.pods
            if rank is not None and pod.ended is not None and pod.ended.has_run
        ]
        missing = [source for source in sources if not self._logs.finish(source)]
        if not missing:
            return True
        now = self._monotonic()
        life.finished_at = now if life.finished_at is None else life.finished_at
        return now - life.finished_at > LOGS_S

    def silences(self) -> dict[NodeId, float]:
        """How long each node has not been ready."""
        now = self._now()
        ages = {name: node.not_ready_since for name, node in self.cluster.nodes().items()}
        return {name: 0.0 if since is None else max(0.0, now - since) for name, since in ages.items()}

    def gpu_utilizations(self) -> dict[NodeId, float]:
        """The cluster's own monitoring has them."""
        return {}

    def has_attempt_of(self, job: int) -> bool:
        with self._lock:
            return job in self._by_job

    def pod_of(self, attempt: AttemptId, index: int) -> PodSeen | None:
        """The one that runs a task now; None: there is none."""
        with self._lock:
            life = self._lives.get(attempt)
        if life is None:
            return None
        return self._look(life, self.cluster.nodes()).staying.get(index)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _nodes(
        self,
        seen: dict[NodeId, NodeSeen],
        stale: set[NodeId],
        ours: Callable[[PodSeen], bool],
        held: dict[NodeId, set[str]],
    ) -> tuple[Node, ...]:
        """The same objects as before for those that nothing has changed on."""
        for name in stale | (self._made_nodes.keys() ^ seen.keys()):
            if name not in seen:
                self._made_nodes.pop(name, None)
                continue
            there = self.cluster.pods_on(name)
            reserving = [pod for pod in there if self._reservations.is_one(pod)]
            foreign = [pod for pod in there if not ours(pod) and not self._reservations.is_one(pod)]
            made = make_node(seen[name], foreign, held.get(name, set()), reserving)
            if self._made_nodes.get(name) != made:
                self._made_nodes[name] = made
        return tuple(self._made_nodes[name] for name in sorted(self._made_nodes))

    def _ours(self) -> Callable[[PodSeen], bool]:
        jobs = {str(job) for job in self._by_job}
        roots = set(self._by_uid)

        def is_ours(pod: PodSeen) -> bool:
            if pod.labels.get(STORE) == self._store and pod.scheduler == SCHEDULER:
                return pod.labels.get(JOB) in jobs
            return self.cluster.root(pod) in roots

        return is_ours

    def _held(self) -> dict[NodeId, set[str]]:
        held: dict[NodeId, set[str]] = {}
        for life in self._lives.values():
            for place in (*life.wanted.places.values(), *life.wanted.draining.values()):
                held.setdefault(place.node, set()).update(place.devices)
        return held

    # -- what has changed, from the reflectors' threads -------------------------------------------------------------

    def _seen(self, pods: Sequence[PodSeen], objects: Iterable[ObjectSeen], nodes: Iterable[NodeId]) -> None:
        with self._lock:
            touched = {self._attempt_of(pod.labels, self.cluster.root(pod)) for pod in pods}
            touched |= {self._attempt_of({STORE: one.store, JOB: one.job}, one.uid) for one in objects}
            touched.discard(None)
            for attempt in touched:
                if attempt is not None:
                    self._touch(attempt, ())
            self._stale_nodes.update(nodes)
            is_news = bool(touched) or bool(self._stale_nodes)
        if any(RESERVATION in pod.labels for pod in pods):
            self._bell.set()  # somebody waits for it
        if is_news:
            self._wake()
        self.on_change()

    def _attempt_of(self, labels: dict[str, str], root: str) -> AttemptId | None:
        job = labels.get(JOB, "")
        if labels.get(STORE) == self._store and job.isdecimal():
            return self._by_job.get(int(job))
        return self._by_uid.get(root)

    def _touch(self, attempt: AttemptId, nodes: Iterable[NodeId]) -> None:
        self._changed.add(attempt)
        self._due.setdefault(attempt)
        self._stale_nodes.update(nodes)
        self._bell.set()

    def _look(self, life: Life, nodes: dict[NodeId, NodeSeen]) -> Seen:
        """What the watches show, or what the API server has answered since."""
        present = frozenset(place.node for place in life.wanted.places.values() if is_there(nodes, place.node))
        memory = life.memory
        if not life.has_object:
            return Seen(None, tuple((self._rank(life, pod), pod) for pod in self._pods_of(life)), present)
        found = self._object_of(life)
        if memory.fresh is not None and (found is None or found.uid == memory.fresh.uid):
            is_newer = found is None or int(memory.fresh.version) > int(found.version)
            if is_newer and memory.fresh.uid not in memory.deleted:
                found = memory.fresh
            else:
                memory.fresh = None
        if found is None:
            # Those that its garbage collector has not reached yet.
            pods = self.cluster.pods_of_job((self._store, str(life.wanted.attempt.job))) if life.is_ours else []
            return Seen(None, tuple((None, pod) for pod in pods), present)
        if found.uid in memory.deleted:
            found = replace(found, is_deleting=True)
        memory.kind = f"{found.kind} {found.namespace}/{found.name}"
        kind = KINDS[found.kind]
        pods = self.cluster.pods_of_object(found)
        ranked = tuple((kind.rank(pod, found), pod) for pod in pods)
        return Seen(found, number(ranked, life.wanted, memory) if found.kind == "Job" else ranked, present)

    def _object_of(self, life: Life) -> ObjectSeen | None:
        if life.is_ours:
            namespace = self._hands.namespace(life.document)
            objects = self.cluster.objects_of_job((self._store, str(life.wanted.attempt.job)))
            mine = [one for one in objects if (one.kind, one.namespace) == (life.document["kind"], namespace)]
            return mine[0] if mine else None
        metadata = life.document["metadata"]
        found = self.cluster.object(life.document["kind"], metadata["namespace"], metadata["name"])
        return found if found is not None and found.uid == metadata["uid"] else None

    def _pods_of(self, life: Life) -> list[PodSeen]:
        """Made by us, at first or again; before them those that came by kubectl."""
        namespace = self._hands.namespace(life.document)
        made = self.cluster.pods_of_job((self._store, str(life.wanted.attempt.job)))
        ours = [pod for pod in made if pod.namespace == namespace]  # a label is easily written elsewhere
        return ours if life.is_ours else [*self.cluster.pods(uids(life.document)), *ours]

    def _rank(self, life: Life, pod: PodSeen) -> int | None:
        known = uids(life.document)
        return known.index(pod.uid) if pod.uid in known else parse_number(pod.annotations.get(RANK, "0"))

    # -- the hands -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            self._bell.wait(TIMER_S)
            self._bell.clear()
            try:
                self.cluster.look_for_kinds()
                self._watch_limits()
                while self._pass():
                    pass
            except Exception:  # a thread that ends would leave every job as it is for ever
                log.exception("carrying out what is wanted failed in a way we did not think of; going on")
                time.sleep(TIMER_S)

    def _watch_limits(self) -> None:
        with self._lock:
            limited = [life for life in self._lives.values() if life.wanted.time_limit_s is not None]
        for life in limited:
            begun = min(life.memory.started.values(), default=None)
            if begun is None or life.wanted.time_limit_s is None or life.memory.is_overdue:
                continue
            if self._now() >= begun + life.wanted.time_limit_s:
                life.memory.is_overdue = True
                with self._lock:
                    self._changed.add(life.wanted.attempt)
                self._wake()

    def _pass(self) -> bool:
        """One round over what is due. Is there more to do at once?"""
        nodes = self.cluster.nodes()
        calls: list[Callable[[], None]] = []
        with self._lock:
            due = list(self._due)
        later: list[AttemptId] = []
        for position, attempt in enumerate(due):
            if len(calls) >= CALLS_MAX:
                later = due[position:]
                break
            with self._lock:
                self._due.pop(attempt, None)
                life = self._lives.get(attempt)
            if life is not None:
                calls += self._calls(life, nodes)
        with self._lock:
            sharing = [self._lives[attempt].wanted for attempt in self._sharing]
        calls += self._reservations.calls(sharing, nodes)
        calls += self._leftovers.calls(self.has_attempt_of, self._monotonic())
        if calls:
            self._port.gather(calls)
        return bool(later) or bool(calls)

    def _calls(self, life: Life, nodes: dict[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        memory = life.memory
        if memory.retry_at > self._monotonic():
            self._again(life)
            return []
        seen = self._look(life, nodes)
        self._meet(life, seen)
        if life.finished_at is not None:
            self._wake()  # it has ended, and only the rest of its log is waited for
        if life.has_object:
            steps = object_steps(life.wanted, seen, memory, is_ours=life.is_ours)
        else:
            steps = pod_steps(life.wanted, seen, memory, is_ours=life.is_ours, remakes=life.remakes)
        binds = self._may_bind(life, [step for step in steps if isinstance(step, Bind)])
        self._watch_patience(life, seen)
        others = [step for step in steps if not isinstance(step, Bind)]
        calls = [self._call(life, seen, others)] if others else []
        return calls or [self._call(life, seen, [bind]) for bind in binds]

    def _may_bind(self, life: Life, binds: Sequence[Bind]) -> tuple[Bind, ...]:
        found = self._reservations.admit(life.wanted, binds)
        if found.why:
            self._again(life)
        if found.why != life.memory.held:
            life.memory.held = found.why
            self._wake()
        return found.binds

    def _call(self, life: Life, seen: Seen, steps: Sequence[Step]) -> Callable[[], None]:
        def call() -> None:
            try:
                self._guard()
                for step in steps:
                    self._hands.do(step, life.wanted, seen, life.memory)
            except SwellError as error:
                self._failed(life, error)
            else:
                life.memory.problem, life.memory.failures = "", 0
            self._again(life)

        return call

    def _again(self, life: Life) -> None:
        with self._lock:
            if life.wanted.attempt in self._lives:
                self._due.setdefault(life.wanted.attempt)
                self._changed.add(life.wanted.attempt)

    def _failed(self, life: Life, error: SwellError) -> None:
        memory = life.memory
        memory.failures += 1
        memory.problem = str(error)
        if isinstance(error, Unavailable | NotHeld) and not memory.is_half:
            memory.waits_since = None  # nobody's patience runs out while nothing can be asked, and nothing is held
        memory.retry_at = self._monotonic() + min(PAUSE_S_MAX, 0.1 * 2.0**memory.failures)
        log.info("attempt %s: %s", life.wanted.attempt, error)
        is_verdict = isinstance(error, Rejected) and not isinstance(error, Conflict)
        if is_verdict and memory.failures >= 3 and not (life.wanted.is_stopping or life.wanted.has_begun):
            self._give_up(life, memory.problem)

    def _meet(self, life: Life, seen: Seen) -> None:
        for rank, pod in seen.pods:
            if rank is None:
                continue
            if not life.is_ours or pod.attempt in (None, life.wanted.attempt):
                life.memory.met[rank] = pod.uid
            if pod.ended is not None and pod.ended.has_run:
                self._logs.finish(pod_log(life.wanted.attempt, rank, pod))
            elif pod.started_at is not None:
                self._logs.follow(pod_log(life.wanted.attempt, rank, pod))

    def _watch_patience(self, life: Life, seen: Seen) -> None:
        """A gang that does not become whole gives its room back."""
        wanted, memory = life.wanted, life.memory
        placed = [rank for rank in wanted.places if rank in seen.staying and seen.staying[rank].node]
        is_placed = len(placed) == len(wanted.places)
        memory.is_half = bool(placed) and not is_placed
        if wanted.is_stopping or wanted.is_array or is_placed or memory.unplaced:
            memory.waits_since = None
            return
        now = self._monotonic()
        memory.waits_since = now if memory.waits_since is None else memory.waits_since
        waited_s = now - memory.waits_since
        if memory.problem and waited_s > GIVE_UP_S:
            self._give_up(life, memory.problem)
        elif waited_s > (RESERVE_S if memory.held else PODS_S):
            there = len(seen.staying.keys() & wanted.places.keys())
            missing = f"{there} of {len(wanted.places)} pods were there after {PODS_S:.0f} s"
            self._give_up(life, memory.held or missing)
        else:
            self._again(life)

    def _give_up(self, life: Life, problem: str) -> None:
        life.memory.unplaced = problem
        with self._lock:
            self._changed.add(life.wanted.attempt)
        self._wake()
