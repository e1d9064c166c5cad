"""How many gangs and pods a second are bound, beside other schedulers of the same control plane?

One real control plane with simulated nodes; raw pods, from the first create to the last bind. The naive binder knows
what comes and binds without thinking: it is what the API server allows. Every contender gets the same pods, the
same pod groups and client limits that are no limits. All run twice, in an order that is drawn and then backwards: a
machine is not equally fast all the time, and whoever comes first finds the API server's caches cold, which is why a
round that nobody counts comes before.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.installation import TICKS_PER_S
from bench.racecourse import (
    GROUPS,
    NAMESPACE,
    clean,
    connected,
    gather,
    in_drawn_order,
    pod,
    pod_group,
    racecourse,
    serving,
)
from bench.rows import Row, Setting, progress
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.mirror import WatchChange
from swell.engines.kubernetes.watch.observed_objects import PodSeen, read_pod
from swell.engines.kubernetes.watch.reflector import Reflector

GANG = 20
SINGLES_PER_NODE = 10
SCALE = 5
ROUNDS = 2  # there and back
STALL_S_MAX = 120.0  # who has bound nothing for so long is done; what was bound until then counts


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    gangs: int
    size: int  #: 1: single pods

    @property
    def pods(self) -> int:
        return self.gangs * self.size

    def documents(self, scheduler: str) -> list[dict[str, Any]]:
        return [
            pod(f"{name}-{rank}", scheduler, name if self.size > 1 else None)
            for name in self._names(scheduler)
            for rank in range(self.size)
        ]

    def groups(self, scheduler: str) -> list[dict[str, Any]]:
        return [pod_group(name, self.size) for name in self._names(scheduler)] if self.size > 1 else []

    def _names(self, scheduler: str) -> list[str]:
        """Nobody's names are another's: kwok is late under load, and deletes by name."""
        return [f"{scheduler}-{self.name}-{gang}" for gang in range(self.gangs)]


@dataclass(frozen=True, slots=True)
class Result:
    seconds: float
    bound: int
    cpu_s: float = 0.0  #: of ours; 0: not ours
    memory_mb: float = 0.0  #: at its peak
    memory_before_mb: float = 0.0

    def __add__(self, other: Result) -> Result:
        """Of both rounds; memory as where there was more."""
        larger = max(self, other, key=lambda one: one.memory_mb)
        return replace(
            larger,
            seconds=self.seconds + other.seconds,
            bound=self.bound + other.bound,
            cpu_s=self.cpu_s + other.cpu_s,
        )


def run(setting: Setting) -> Iterator[Row]:
    nodes = setting.nodes
    workloads = (
        Workload("gangs", nodes // 2, GANG),
        Workload("singles", nodes * SINGLES_PER_NODE, 1),
    )
    with racecourse(setting, nodes) as kubeconfig:
        contenders: dict[str, Callable[[Workload], Result]] = {
            "naive": partial(_naive, kubeconfig, nodes),
            "kube-scheduler": partial(_theirs, kubeconfig, "default-scheduler"),
            "coscheduling": partial(_theirs, kubeconfig, "coscheduling"),
            "swell": partial(_ours, kubeconfig, setting.folder),
        }
        contenders["naive"](replace(workloads[-1], name="warm-up"))
        for workload in workloads:
            yield from _rows(workload, _there_and_back(setting, contenders, workload), nodes)


def _there_and_back(
    setting: Setting, contenders: Mapping[str, Callable[[Workload], Result]], workload: Workload
) -> dict[str, Result]:
    results = in_drawn_order(setting, workload.name, contenders, workload)
    again = replace(workload, name=f"{workload.name}-again")
    for name in reversed(results):
        second = contenders[name](again)
        progress(f"{again.name}: {name} {second}")
        results[name] += second
    return results


def _rows(workload: Workload, results: dict[str, Result], nodes: int) -> Iterator[Row]:
    ours = results["swell"]
    unit = "gangs/s" if workload.size > 1 else "pods/s"
    rates = {name: result.bound / workload.size / result.seconds for name, result in results.items()}
    for name in ("naive", "kube-scheduler", "coscheduling"):
        bound = {"bound": ours.bound, "bound by them": results[name].bound}
        detail = {"nodes": nodes, "pods": ROUNDS * workload.pods, **bound, "seconds": ours.seconds}
        yield Row("kubernetes", f"{workload.name} beside {name}", unit, rates["swell"], rates[name], detail=detail)
    yield from _costs("kubernetes", workload, ours)


def _costs(bench: str, workload: Workload, ours: Result) -> Iterator[Row]:
    yield Row(bench, f"{workload.name}: CPU of ours per 1,000 pods", "s", ours.cpu_s / (ours.bound / 1000))
    added = (ours.memory_mb - ours.memory_before_mb) / (workload.pods / 1000)
    detail = {"before": ours.memory_before_mb, "at its peak": ours.memory_mb}
    yield Row(bench, f"{workload.name}: memory of ours per 1,000 pods", "MB", added, detail=detail)


def run_scale(setting: Setting) -> Iterator[Row]:
    """Five times the cluster, and only ours: does it hold so much, and go on planning?"""
    nodes = SCALE * setting.nodes
    workload = Workload("many", nodes * SINGLES_PER_NODE, 1)
    with racecourse(setting, nodes) as kubeconfig:
        ours = _ours(kubeconfig, setting.folder, workload, leave=True)
    detail = {"nodes": nodes, "pods": workload.pods, "bound": ours.bound, "seconds": ours.seconds}
    yield Row("scale", "single pods bound", "pods/s", ours.bound / ours.seconds, detail=detail)
    yield from _costs("scale", workload, ours)


# -- contenders ------------------------------------------------------------------------------------------------


def _theirs(kubeconfig: Path, scheduler: str, workload: Workload) -> Result:
    with connected(kubeconfig) as port:
        return _race(port, workload, scheduler)


def _naive(kubeconfig: Path, nodes: int, workload: Workload) -> Result:
    """Places are dealt out before anything comes; a pod is bound as soon as it was created."""
    with connected(kubeconfig) as port:
        places = itertools.cycle([f"kwok-{number}" for number in range(nodes)])

        def bind(made: dict[str, Any]) -> None:
            metadata = made["metadata"]
            port.bind(metadata["name"], NAMESPACE, metadata["uid"], next(places))

        return _race(port, workload, "naive", after=bind)


def _ours(kubeconfig: Path, folder: Path, workload: Workload, *, leave: bool = False) -> Result:
    with serving(kubeconfig, folder) as pid, connected(kubeconfig) as port:
        before, memory_before = _cpu_s(pid), _memory_mb(pid)
        found = _race(port, workload, "swell", leave=True)
        used = Result(found.seconds, found.bound, _cpu_s(pid) - before, _memory_mb(pid), memory_before)
        if not leave:
            clean(port)
    return used


# -- a race ----------------------------------------------------------------------------------------------------


class _Finish:
    """Counts pods that are bound."""

    def __init__(self, port: ApiClient) -> None:
        self._bound: set[str] = set()
        self._reflector = Reflector(port, Selection(PODS, NAMESPACE), read_pod, self._look)
        self.last_at = 0.0

    def __enter__(self) -> _Finish:
        self._reflector.start()
        assert self._reflector.wait_until_synced(60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._reflector.stop()

    def _look(self, changes: tuple[WatchChange[PodSeen], ...]) -> None:
        before = len(self._bound)
        self._bound |= {change.after.uid for change in changes if change.after is not None and change.after.node}
        if len(self._bound) > before:
            self.last_at = time.perf_counter()

    @property
    def bound(self) -> int:
        return len(self._bound)


def _race(
    port: ApiClient,
    workload: Workload,
    scheduler: str,
    *,
    after: Callable[[dict[str, Any]], None] = lambda _: None,
    leave: bool = False,
) -> Result:
    gather(port, [partial(port.create, GROUPS, group, NAMESPACE) for group in workload.groups(scheduler)])

    def create(document: dict[str, Any]) -> None:
        after(port.create(PODS, document, NAMESPACE))

    with _Finish(port) as finish:
        began = time.perf_counter()
        gather(port, [partial(create, document) for document in workload.documents(scheduler)])
        while finish.bound < workload.pods and time.perf_counter() - max(began, finish.last_at) < STALL_S_MAX:
            time.sleep(0.05)
        result = Result(finish.last_at - began, finish.bound)
    if not leave:
        clean(port)
    return result


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
