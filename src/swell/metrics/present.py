"""How do things stand at this moment? Read from the store and the latest plan when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from swell.controller import Controller
from swell.model.cluster import Node, NodeId
from swell.model.job import JobState
from swell.model.plan import Slot, Snapshot
from swell.store import Store

MIB = 1024 * 1024
Labelled = Iterable[tuple[tuple[str, ...], float]]  #: values of the labels, and the number


class Heard(Protocol):
    """An engine of workers, as far as it matters here."""

    def silences(self) -> dict[NodeId, float]:
        """Seconds since each was last heard of."""

    def gpu_utilizations(self) -> dict[NodeId, float]:
        """Of the GPUs of each, where it is measured."""

    def unreadable_objects(self) -> dict[str, int]:
        """How many of each kind are left out because they cannot be read."""


class Present(Collector):
    """Gauges, and the sums that the accounts keep."""

    def __init__(self, store: Store, controller: Controller, engine: Heard, now: Callable[[], float]) -> None:
        self._store = store
        self._controller = controller
        self._engine = engine
        self._now = now
        self._most: dict[str, float] = {}  #: a running job may turn out to have ended before; counters never fall

    def describe(self) -> Iterator[Metric]:
        """Nothing: it is asked for before there is anything to read."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._jobs()
        yield from self._machines(self._controller.snapshot)
        yield from self._usage()
        yield from self._pools()
        unreadable = [((kind,), count) for kind, count in sorted(self._engine.unreadable_objects().items())]
        text = "Objects of the cluster that are left out until they change."
        yield _gauge("swell_unreadable_objects", text, ("kind",), unreadable)

    def _jobs(self) -> Iterator[Metric]:
        counts, waiting = self._store.counts(), self._store.waiting()
        states = [((str(state),), counts.get(str(state), 0)) for state in JobState]
        yield _gauge("swell_jobs", "Stored jobs, by state.", ("state",), states)
        reasons = [((reason,), count) for reason, count in sorted(waiting.items())]
        yield _gauge("swell_waiting_jobs", "Waiting jobs, by reason.", ("reason",), reasons)
        ages = self._checkpoint_ages(self._controller.snapshot)
        oldest: Labelled = [((), max(ages))] if ages else []
        text = "Age of the oldest last checkpoint of a running job."
        yield _gauge("swell_checkpoint_age_seconds", text, (), oldest)

    def _checkpoint_ages(self, snapshot: Snapshot) -> list[float]:
        running = [job.training for job in snapshot.holding if job.state is JobState.RUNNING and job.training]
        return [max(0.0, self._now() - one.checkpoint_at) for one in running if one.checkpoint_at is not None]

    def _machines(self, snapshot: Snapshot) -> Iterator[Metric]:
        nodes = {node.id: node for node in snapshot.nodes}
        held: dict[NodeId, list[Slot]] = {node: [] for node in nodes}
        for _, slot in snapshot.held():
            held.setdefault(slot.node, []).append(slot)
        cpus = {name: _cpus(node, held[name]) for name, node in nodes.items()}
        silences = [((name,), seconds) for name, seconds in sorted(self._engine.silences().items())]
        yield from self._gpus(snapshot, nodes, held)
        yield _gauge("swell_cpus", "CPUs that a node offers.", ("node", "state"), _flat(cpus))
        yield _gauge("swell_worker_silence_seconds", "Time since the last message of a worker.", ("node",), silences)

    def _gpus(self, snapshot: Snapshot, nodes: dict[NodeId, Node], held: dict[NodeId, list[Slot]]) -> Iterator[Metric]:
        gpus = {name: _gpus(node, held[name]) for name, node in nodes.items()}
        used = self._memory_used_mib(snapshot)
        memory = {name: _memory(node, held[name], used[name]) for name, node in nodes.items()}
        ratios = [((name,), _allocated(own)) for name, own in gpus.items() if any(own.values())]
        busy = [((name,), ratio) for name, ratio in sorted(self._engine.gpu_utilizations().items())]
        yield _gauge("swell_gpus", "GPUs, each in one state.", ("node", "state"), _flat(gpus))
        yield _gauge("swell_gpu_allocation_ratio", "Fraction of the GPUs that jobs hold or share.", ("node",), ratios)
        yield _gauge("swell_gpu_memory_bytes", "Memory of all GPUs together.", ("node", "kind"), _flat(memory))
        yield _gauge(
            "swell_gpu_utilization_ratio", "Mean utilization of a node's GPUs over half a minute.", ("node",), busy
        )

    def _memory_used_mib(self, snapshot: Snapshot) -> Counter[NodeId]:
        """By jobs, as far as it is measured."""
        used: Counter[NodeId] = Counter()
        for job in snapshot.holding:
            used.update({node: seen.memory_mib for node, seen in self._controller.seen_on_gpus(job.id).items()})
        return used

    def _pools(self) -> Iterator[Metric]:
        pools = self._controller.pool_standings()
        workers = [
            ((pool.report.name, state), sum(worker.state == state for worker in pool.report.live))
            for pool in pools
            for state in ("pending", "running", "unknown")
        ]
        missing = [((pool.report.name,), pool.missing) for pool in pools]
        silences = [((pool.report.name,), pool.silent_s) for pool in pools]
        failed = [((pool.report.name,), pool.report.failed) for pool in pools]
        launched = [((pool.report.name,), pool.report.launched) for pool in pools]
        yield _gauge("swell_pool_workers", "Workers that a pool has launched.", ("pool", "state"), workers)
        yield _gauge("swell_pool_missing_workers", "Workers that waiting jobs need.", ("pool",), missing)
        yield _gauge("swell_pool_silence_seconds", "Time since the last report of a pool.", ("pool",), silences)
        yield _counter("swell_pool_launches", "Workers launched by a pool.", ("pool",), launched)
        yield _counter("swell_pool_failed_starts", "Failed starts of workers.", ("pool",), failed)

    def _usage(self) -> Iterator[Metric]:
        accounts = self._controller.accounts
        for owner, used in accounts.used(self._now()).items():
            self._most[owner] = max(used.gpu_s, self._most.get(owner, 0.0))
        users = [((owner,), gpu_s) for owner, gpu_s in sorted(self._most.items())]
        lost = sum(used.lost_gpu_s for used in accounts.totals.values())
        yield _counter("swell_usage_gpu_seconds", "GPU-seconds held, including running jobs.", ("user",), users)
        yield _counter("swell_lost_gpu_seconds", "GPU-seconds of work that had to be repeated.", (), [((), lost)])


def _gpus(node: Node, slots: list[Slot]) -> dict[str, float]:
    """Each is in one state; one that outsiders use beside a job is the job's."""
    shared = {device for slot in slots if slot.resources.is_share for device in slot.devices}
    whole = {device for slot in slots for device in slot.devices} - shared
    counts = dict.fromkeys(("free", "held", "shared", "outsiders"), 0.0)
    for device in node.devices:
        unheld = "outsiders" if device.outsiders_mib else "free"
        counts["held" if device.id in whole else "shared" if device.id in shared else unheld] += 1
    return counts


def _allocated(gpus: dict[str, float]) -> float:
    return (gpus["held"] + gpus["shared"]) / sum(gpus.values())


def _memory(node: Node, slots: list[Slot], used_mib: int) -> dict[str, float]:
    """A whole GPU takes all of its memory, a share what it was promised; what is used is told where it is measured."""
    of_device = {device.id: device.memory_mib for device in node.devices}
    reserved = 0
    for slot in slots:
        share = slot.resources.gpu_memory_mib if slot.resources.is_share else 0
        reserved += sum(share or of_device.get(device, 0) for device in slot.devices)
    used = {"used": MIB * used_mib} if any(device.is_watched for device in node.devices) else {}
    return {"total": MIB * sum(of_device.values()), "reserved": MIB * reserved, **used}


def _cpus(node: Node, slots: list[Slot]) -> dict[str, float]:
    held = sum(slot.resources.cpus_milli for slot in slots)
    return {"free": (node.cpus_milli - held) / 1000, "held": held / 1000}


def _flat(by_node: Mapping[NodeId, Mapping[str, float]]) -> Labelled:
    return [((node, kind), value) for node, own in by_node.items() for kind, value in own.items()]


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Labelled) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], samples: Labelled) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
