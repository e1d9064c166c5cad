"""What do a pool and the server tell each other?

A pool reports what its workers offer and which ones it has; the server answers how many workers the waiting jobs lack.
Both are values; what comes over the wire is checked by `parse_report` before anybody believes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from swell.model.cluster import Device, Node
from swell.model.codec import from_document
from swell.model.launch import TAG, WorkerTerms, with_terms
from swell.model.quantity import COUNT_MAX, MEMORY_MIB_MAX

POOL_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")  # also a label, a name of a pod and of a Slurm job
WORKER_ID = re.compile(r"(?P<pool>[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?)-[0-9a-f]{8}")
AGAIN = re.compile(r"-r(?P<run>[0-9]{1,10})$")  # added to the id where the backend starts one worker several times
WORKERS_MAX = 10_000  # of one pool; as many as a server takes
TEXT_MAX = 1000  # characters of what a pool quotes
GPUS_MAX = 64  # of one worker


def pool_of(worker: str) -> str | None:
    """The name of the pool that made this id; None: it is no id of a pool's."""
    found = WORKER_ID.fullmatch(worker)
    return None if found is None else found["pool"]


def worker_at(node: str) -> str:
    """The worker whose node this is; one that was started again has a node of another name."""
    return AGAIN.sub("", node)


def run_at(node: str) -> int:
    """Of the worker whose node this is: a later run has a higher number; 0: a node that is called as its worker."""
    found = AGAIN.search(node)
    return 0 if found is None else int(found["run"])


class PoolPhase(StrEnum):
    RUNNING = "running"
    FAILING = "failing"  #: starts failed, and it waits before the next one
    BLIND = "blind"  #: its backend cannot be asked, so it starts nothing
    STOPPING = "stopping"
    STOPPED = "stopped"  #: its last report


@dataclass(frozen=True, slots=True)
class PoolOffer:
    """What one worker of it offers to jobs."""

    cpus_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_memory_mib: int = 0  #: of each GPU; 0: nobody has said
    tag: str = ""
    is_exclusive: bool = False  #: only jobs that ask for the tag may come
    group: str = ""  #: only jobs of its users may come; empty: of everybody

    def node(self, name: str) -> Node:
        """A worker of it, as the planner would see it."""
        devices = tuple(Device(f"{name}-gpu{n}", self.gpu_memory_mib, "") for n in range(self.gpus))
        terms = WorkerTerms(0.0, self.tag, self.is_exclusive, group=self.group)
        return with_terms(Node(name, self.cpus_milli, self.memory_mib, devices), terms)

    def limited_to(self, room: WorkerRoom | None) -> PoolOffer:
        """What its workers can be expected to offer. `room`: what they had; None: none has come yet."""
        if room is None:
            return self
        return replace(self, **{name: min(getattr(self, name), getattr(room, name)) for name in ROOM})

    def shortfall(self, room: WorkerRoom | None) -> str:
        """What its workers have less of than it says, in words; empty: nothing, as far as is known."""
        if room is None:
            return ""
        told = (
            (self.cpus_milli, room.cpus_milli, _cpus, "CPUs", "--cpus"),
            (self.memory_mib, room.memory_mib, _size, "of memory", "--memory"),
            (self.gpus, room.gpus, str, "GPUs", "--gpus"),
            (self.gpu_memory_mib, room.gpu_memory_mib, _size, "on each GPU", "--gpu-memory"),
        )
        less = [f"{text(had)} {what} ({flag} {text(said)})" for said, had, text, what, flag in told if had < said]
        return f"its workers have {', '.join(less)}" if less else ""


@dataclass(frozen=True, slots=True)
class WorkerRoom:
    """The most that a worker of a pool really had, of each thing."""

    cpus_milli: int
    memory_mib: int
    gpus: int
    gpu_memory_mib: int  #: of its smallest GPU; 0: it has none

    @classmethod
    def of(cls, node: Node) -> WorkerRoom:
        """A GPU that does not answer now counts: the next worker may have a better one."""
        devices = (*node.devices, *node.lost)
        smallest = min((device.memory_mib for device in devices), default=0)
        return cls(node.cpus_milli, node.memory_mib, len(devices), smallest)

    def at_least(self, other: WorkerRoom | None) -> WorkerRoom:
        if other is None:
            return self
        return WorkerRoom(*(max(getattr(self, name), getattr(other, name)) for name in ROOM))


ROOM = tuple(field.name for field in fields(WorkerRoom))


def _cpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def _size(mib: int) -> str:
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A worker that the pool has launched, as its backend shows it."""

    id: str
    backend_id: str  #: empty: the backend has not said it yet
    state: str  #: pending, running, ended or unknown
    word: str = ""  #: the backend's own
    detail: str = ""
    log: str = ""
    has_registered: bool = False  #: it is, or was, a node of this server since its backend started it
    is_gone: bool = False  #: the backend has seen that nothing of its last run runs any more
    last_run: int = 0  #: the least number that this run can have (`run_at`); of runs before it nothing is proven

    @property
    def is_live(self) -> bool:
        return self.state != "ended"

    @property
    def is_under_way(self) -> bool:
        """It may still become a node."""
        return self.is_live and not self.has_registered


@dataclass(frozen=True, slots=True)
class PoolReport:
    name: str
    kind: str
    key: str  #: of its folder: two pools of one name are not taken for one
    offer: PoolOffer
    workers_min: int
    workers_max: int
    phase: PoolPhase = PoolPhase.RUNNING
    problem: str = ""  #: the last error, in whole words; empty: there was none since the last start that worked
    retry_s: float = 0.0  #: until it tries again; 0: at once
    launched: int = 0  #: since it was made
    failed: int = 0  #: starts that failed, since it was made
    workers: tuple[PoolWorker, ...] = ()

    @property
    def live(self) -> tuple[PoolWorker, ...]:
        return tuple(worker for worker in self.workers if worker.is_live)

    @property
    def under_way(self) -> tuple[PoolWorker, ...]:
        return tuple(worker for worker in self.workers if worker.is_under_way)

    def without_workers(self) -> PoolReport:
        return replace(self, workers=())


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What the server answers."""

    workers: int | None  #: not registered yet, that waiting jobs could use; None: nothing was planned yet
    jobs: tuple[int, ...] = ()  #: that they are for
    present: tuple[str, ...] = ()  #: names of its nodes that answer, at the moment that was counted at
    known: tuple[str, ...] = ()  #: workers of this pool that were nodes at some time
    kills: tuple[str, ...] = ()  #: workers that somebody wants to end
    forced: tuple[str, ...] = ()  #: those of them that end at once
    is_stopping: bool = False  #: somebody wants the pool to end
    ends_workers: bool = False  #: together with all its workers


def parse_report(document: Any) -> PoolReport:
    """Raises `ValueError`, `TypeError`, `LookupError` or `AttributeError` where it is none."""
    report = from_document(PoolReport, document)
    _check_types(report)
    _check_types(report.offer)
    if not POOL_NAME.fullmatch(report.name):
        raise ValueError(f"the name {report.name[:100]!r}")
    if not 0 <= report.workers_min <= report.workers_max <= WORKERS_MAX or len(report.workers) > 2 * WORKERS_MAX:
        raise ValueError(f"{report.workers_min} to {report.workers_max} workers")
    offer = report.offer
    if not 0 < offer.cpus_milli <= COUNT_MAX * 1000 or not 0 < offer.memory_mib <= MEMORY_MIB_MAX:
        raise ValueError(f"workers of {offer.cpus_milli} thousandths of a CPU and {offer.memory_mib} MiB")
    if not 0 <= offer.gpus <= GPUS_MAX or not 0 <= offer.gpu_memory_mib <= MEMORY_MIB_MAX:
        raise ValueError(f"workers of {offer.gpus} GPUs of {offer.gpu_memory_mib} MiB")
    for text in filter(None, (offer.tag, offer.group)):
        if not TAG.fullmatch(text):
            raise ValueError(f"the tag or group {text[:100]!r}")
    for worker in report.workers:
        _check_types(worker)
        if pool_of(worker.id) != report.name:
            raise ValueError(f"the worker {worker.id[:100]!r}")
    return report


_TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool}


def _check_types(value: Any) -> None:
    """Of plain fields; text is one line, and not long."""
    for field in fields(value):
        kind = _TYPES.get(str(field.type))
        found = getattr(value, field.name)
        if kind is None:
            continue
        if not isinstance(found, kind) or (kind is not bool and isinstance(found, bool)):  # type: ignore[arg-type]
            raise ValueError(f"{field.name} {str(found)[:100]!r}")
        if isinstance(found, str) and (len(found) > TEXT_MAX or not found.isprintable()):
            raise ValueError(f"{field.name} {found[:100]!r}; it must be one line of text")
        if isinstance(found, float) and not 0 <= found < 1e9:
            raise ValueError(f"{field.name} {found}")
