"""Who makes, asks and removes the pods that reserve GPUs?

Nothing here is durable: what is reserved, and which GPU it is, is written on the pods.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from swell.engines.kubernetes.attempt.steps import BindPod
from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.resources import PODS, RUNTIME_CLASSES
from swell.engines.kubernetes.sharing.reservation_pod import make_pod, parse_line, without_user
from swell.engines.kubernetes.sharing.reservations import (
    AskReservation,
    CreateReservation,
    Gpu,
    HeldReservation,
    RemoveReservation,
    SharedSeat,
    Step,
    admit,
    gpu_of,
    needed,
    steps,
)
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import (
    DEVICE,
    NUMBER,
    RESERVATION,
    TOTAL,
    NodeSeen,
    PodSeen,
    labelled_job,
)
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.errors import Conflict, NotFound, Rejected, SwellError
from swell.model.cluster import NodeId

log = logging.getLogger(__name__)

RUNTIME_CLASS = "nvidia"  # what NVIDIA's operator and its documentation call it
LOOK_FOR_CLASS_S = 60.0  # it may be installed while we run
ORPHAN_S = 10.0  # after a start: by then everybody who shares a GPU is known
LINGER_S = 0.5  # whoever follows is started within the same plan
REPEAT_S = 5.0  # what was done shows in the watches by then
RETRY_S = 1.0
RETRY_S_MAX = 30.0
LINE_BYTES_MAX = 10_000


class Reservations:
    """Thread-safe: one thread asks for calls, those are made by others."""

    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        *,
        store: str,
        namespace: str,
        image: str,
        monotonic: Callable[[], float],
        where: Callable[[int], frozenset[str] | None] = lambda _: None,
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._store = store
        self._namespace = namespace
        self._image = image
        self._monotonic = monotonic
        self._where = where  #: in which namespaces pods of a job may be; None: the job is not known
        self._lock = threading.Lock()
        self._began_at = monotonic()
        self._quiet: dict[tuple[type, object], float] = {}  #: what was done lately → when it may be done again
        self._released: set[str] = set()  #: uids of pods that we have deleted
        self._problems: dict[Gpu, str] = {}
        self._failures: dict[Gpu, int] = {}
        self._left_at: dict[Gpu, float] = {}  #: when nobody was left who shares it
        self._class_lock = threading.Lock()
        self._class: tuple[float, str | None] | None = None  #: when it was looked for, and what was found

    # -- questions -------------------------------------------------------------------------------------------------

    def is_one(self, pod: PodSeen) -> bool:
        """Of ours: a label is easily written elsewhere."""
        return RESERVATION in pod.labels and pod.labels.get(STORE) == self._store and pod.namespace == self._namespace

    def admit(self, wanted: Wanted, binds: Sequence[BindPod]) -> HeldReservation:
        if not binds:
            return HeldReservation(())
        there = self._there()
        with self._lock:
            problems = dict(self._problems)
        nodes = {bind.place.node for bind in binds} if any(wanted.shares_mib) else set()
        return admit(wanted, binds, there, self._sharers(nodes), problems)

    def runtime_class(self) -> str | None:
        """For pods that share a GPU; None: the cluster has none for them, and its default must do."""
        now = self._monotonic()
        if self._class is None or now - self._class[0] > LOOK_FOR_CLASS_S:
            with self._class_lock:
                if self._class is None or now - self._class[0] > LOOK_FOR_CLASS_S:
                    self._class = now, self._find_class()
        return self._class[1]

    def _find_class(self) -> str | None:
        try:
            self._port.get(RUNTIME_CLASSES, RUNTIME_CLASS)
        except NotFound:
            log.info("the cluster has no RuntimeClass %r: pods that share a GPU use its default runtime", RUNTIME_CLASS)
            return None
        except Rejected as error:
            log.warning("cannot tell whether there is a RuntimeClass %r: %s", RUNTIME_CLASS, error)
            return None
        return RUNTIME_CLASS

    def _there(self) -> dict[Gpu, PodSeen]:
        pods = [pod for pod in self._cluster.reservations(self._store) if pod.namespace == self._namespace]
        with self._lock:
            released = set(self._released)
        return {gpu_of(pod): replace(pod, is_deleting=True) if pod.uid in released else pod for pod in pods}

    def _sharers(self, nodes: Iterable[NodeId]) -> list[PodSeen]:
        return [
            pod
            for node in sorted(nodes)
            for pod in self._cluster.pods_on(node)
            if NUMBER in pod.annotations and self._is_of_a_job(pod)
        ]

    def _is_of_a_job(self, pod: PodSeen) -> bool:
        """Where that job is. One that is not known any more may have pods that are still ending."""
        job = labelled_job(pod.labels, self._store)
        places = None if job is None else self._where(job)
        return job is not None and (places is None or pod.namespace in places)

    # -- calls -----------------------------------------------------------------------------------------------------

    def calls(self, attempts: Iterable[Wanted], nodes: Mapping[NodeId, NodeSeen]) -> list[Callable[[], None]]:
        """What is to be done now, so that everybody finds their GPU."""
        need, there = needed(attempts), self._there()
        if not need.kept and not there:
            return []
        now = self._monotonic()
        self._forget(there, now)
        is_settled = now - self._began_at > ORPHAN_S
        present = {name for name, node in nodes.items() if node.is_ready}
        sharers = self._sharers({node for node, _ in there})
        found = steps(need, there, sharers, present, is_settled=is_settled)
        waits = self._lingering(found, now)
        return [self._call(step) for step in found if step not in waits and self._may_do(step, now)]

    def _lingering(self, found: Sequence[Step], now: float) -> list[Step]:
        """Those whose GPU was left a moment ago: perhaps somebody takes it over, and need not wait for another pod."""
        left = [step for step in found if isinstance(step, RemoveReservation) and not step.pod.has_ended]
        self._left_at = {step.gpu: self._left_at.get(step.gpu, now) for step in left}
        return [step for step in left if now - self._left_at[step.gpu] < LINGER_S]

    def _forget(self, there: Mapping[Gpu, PodSeen], now: float) -> None:
        uids = {pod.uid for pod in there.values()}
        with self._lock:
            self._released &= uids
            self._quiet = {key: until for key, until in self._quiet.items() if until > now}
            for gpu, pod in there.items():
                if DEVICE in pod.annotations:
                    self._problems.pop(gpu, None)
                    self._failures.pop(gpu, None)
                    self._quiet.pop((CreateReservation, gpu), None)
                if pod.ended is not None and not pod.is_deleting:
                    self._problems[gpu] = f"{pod.ended.reason}: {pod.ended.message}"

    def _may_do(self, step: Step, now: float) -> bool:
        with self._lock:
            if _key(step) in self._quiet:
                return False
            self._quiet[_key(step)] = now + REPEAT_S
        return True

    def _call(self, step: Step) -> Callable[[], None]:
        def call() -> None:
            try:
                self._do(step)
            except SwellError as error:
                self._failed(step, str(error))

        return call

    def _failed(self, step: Step, problem: str) -> None:
        with self._lock:
            if self._problems.get(step.gpu) != problem:
                log.warning("reserving GPU %s of node %s: %s", step.gpu[1], step.gpu[0], problem)
            self._problems[step.gpu] = problem
        self._pause(_key(step), step.gpu)

    def _pause(self, key: tuple[type, object], gpu: Gpu) -> None:
        """Longer each time, until its reservation has told which GPU it has."""
        with self._lock:
            count = self._failures[gpu] = self._failures.get(gpu, 0) + 1
            self._quiet[key] = self._monotonic() + min(RETRY_S_MAX, RETRY_S * 2.0 ** min(count - 1, 10))

    def _do(self, step: Step) -> None:
        match step:
            case CreateReservation(gpu):
                self._reserve(gpu)
            case SharedSeat(gpu, pod):
                self._seat(pod, gpu[0])
            case AskReservation(_, pod):
                self._ask(step, pod)
            case RemoveReservation(gpu, pod):
                with contextlib.suppress(NotFound):
                    self._port.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
                with self._lock:
                    self._released.add(pod.uid)
                if pod.has_ended:
                    self._pause((CreateReservation, gpu), gpu)  # its node refuses; it is not asked all the time

    def _seat(self, pod: PodSeen, node: NodeId) -> None:
        if not self._cluster.take_room(pod, node):
            raise Conflict(f"node {node} has no room left for pod {pod.namespace}/{pod.name}: others have taken it")
        try:
            self._port.bind(pod.name, pod.namespace, pod.uid, node)
        except SwellError as error:
            self._cluster.leave_room(pod)
            if not isinstance(error, Conflict):  # it is bound already; the watch will show where
                raise

    def _reserve(self, gpu: Gpu) -> None:
        runtime_class = self.runtime_class()
        pod = make_pod(
            gpu, store=self._store, namespace=self._namespace, image=self._image, runtime_class=runtime_class
        )
        try:
            self._port.create(PODS, pod, self._namespace)
        except Rejected as error:
            if "runAsUser" not in str(error):
                raise
            self._port.create(PODS, without_user(pod), self._namespace)

    def _ask(self, step: Step, pod: PodSeen) -> None:
        said = b""
        with self._port.log(pod.name, pod.namespace) as stream:
            for piece in stream:
                said += piece
                if len(said) > LINE_BYTES_MAX:
                    break
        told = parse_line(said.decode(errors="replace"))
        if told is None:
            self._failed(step, f"its pod {pod.namespace}/{pod.name} has not said yet which GPU it has")
        elif told.problem:
            self._failed(step, told.problem)
        else:
            notes = {DEVICE: told.uuid, TOTAL: str(told.total_mib)}
            body = {"metadata": {"uid": pod.uid, "annotations": notes}}
            self._port.patch(PODS, pod.name, body, pod.namespace)


def _key(step: Step) -> tuple[type, object]:
    return type(step), step.gpu if isinstance(step, CreateReservation) else step.pod.uid
