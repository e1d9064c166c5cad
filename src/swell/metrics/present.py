"""How do things stand at this moment? Read from the store and the latest plan when somebody asks."""

from __future__ import annotations

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

    def _jobs(self) -> Iterator[Metric]:
        counts, waiting = self._store.counts(), self._store.waiting()
        states = [((str(state),), counts.get(str(state), 0)) for state in JobState]
        yield _gauge("swell_jobs", "Jobs that are remembered.", ("state",), states)
        reasons = [((reason,), count) for reason, count in sorted(waiting.items())]
        yield _gauge("swell_waiting_jobs", "Jobs that wait.", ("reason",), reasons)
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
        gpus = {name: _gpus(node, held[name]) for name, node in nodes.items()}
        memory = {name: _memory(node, held[name]) for name, node in nodes.items()}
        cpus = {name: _cpus(node, held[name]) for name, node in nodes.items()}
        ratios = [((name,), own["held"] / sum(own.values())) for name, own in gpus.items() if sum(own.values())]
        silences = [((name,), seconds) for name, seconds in sorted(self._engine.silences().items())]
        yield _gauge("swell_gpus", "GPUs; one that is shared is held.", ("node", "state"), _flat(gpus))
        yield _gauge("swell_gpu_allocation_ratio", "Part of the GPUs that is held.", ("node",), ratios)
        yield _gauge("swell_gpu_memory_bytes", "Memory of all GPUs together.", ("node", "kind"), _flat(memory))
        yield _gauge("swell_cpus", "CPUs that are offered.", ("node", "state"), _flat(cpus))
        yield _gauge("swell_worker_silence_seconds", "Since a worker was last heard of.", ("node",), silences)

    def _usage(self) -> Iterator[Metric]:
        accounts = self._controller.accounts
        for owner, used in accounts.used(self._now()).items():
            self._most[owner] = max(used.gpu_s, self._most.get(owner, 0.0))
        users = [((owner,), gpu_s) for owner, gpu_s in sorted(self._most.items())]
        lost = sum(used.lost_gpu_s for used in accounts.totals.values())
        yield _counter("swell_usage_gpu_seconds", "GPU-seconds held, with what runs now.", ("user",), users)
        yield _counter("swell_lost_gpu_seconds", "GPU-seconds of work that had to be done again.", (), [((), lost)])


def _gpus(node: Node, slots: list[Slot]) -> dict[str, float]:
    taken = {device for slot in slots for device in slot.devices}
    held = sum(device.id in taken for device in node.devices)
    return {"free": len(node.devices) - held, "held": held}


def _memory(node: Node, slots: list[Slot]) -> dict[str, float]:
    """A whole GPU takes all of its memory, a share what it was promised."""
    of_device = {device.id: device.memory_mib for device in node.devices}
    reserved = 0
    for slot in slots:
        share = 0 if slot.resources.gpus else slot.resources.gpu_memory_mib
        reserved += sum(share or of_device.get(device, 0) for device in slot.devices)
    return {"total": MIB * sum(of_device.values()), "reserved": MIB * reserved}


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
