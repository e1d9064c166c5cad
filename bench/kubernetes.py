"""How many gangs and pods a second are bound, beside other schedulers of the same control plane?

One real control plane with simulated nodes; raw pods, from the first create to the last bind. The naive binder knows
what comes and binds without thinking: it is what the API server allows. Every contender gets the same pods, the
same pod groups and client limits that are no limits; the order of contenders is drawn.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.installation import TICKS_PER_S, swell
from bench.rows import Row, Setting, progress
from swell.engines.kubernetes import Port, find_access
from swell.engines.kubernetes.mirror import Change
from swell.engines.kubernetes.picture import PodSeen, read_pod
from swell.engines.kubernetes.port import Selection
from swell.engines.kubernetes.reflector import Reflector
from swell.engines.kubernetes.resources import PODS, Resource
from swell.state import StateFolder

ROOT = Path(__file__).resolve().parent.parent
GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
NAMESPACE = "default"
GANG = 20
SINGLES_PER_NODE = 10
SCALE = 5
ROUND_S_MAX = 1800.0
GONE_S_MAX = 600.0
QUIET_S_MAX = 120.0
BUSY_MAX = 0.15  # of all cores: heartbeats of simulated nodes


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
            _pod(f"{scheduler}-{self.name}-{gang}-{rank}", scheduler, self._group(scheduler, gang))
            for gang in range(self.gangs)
            for rank in range(self.size)
        ]

    def _group(self, scheduler: str, gang: int) -> str | None:
        """Nobody's names are another's: kwok is late under load, and deletes by name."""
        return f"{scheduler}-{self.name}-{gang}" if self.size > 1 else None

    def groups(self, scheduler: str) -> list[dict[str, Any]]:
        if self.size == 1:
            return []
        return [
            {
                "apiVersion": GROUPS.api_version,
                "kind": GROUPS.kind,
                "metadata": {"name": self._group(scheduler, gang), "namespace": NAMESPACE},
                "spec": {"minMember": self.size},
            }
            for gang in range(self.gangs)
        ]


@dataclass(frozen=True, slots=True)
class Result:
    seconds: float
    bound: int
    cpu_s: float = 0.0  #: of ours; 0: not ours
    memory_mb: float = 0.0  #: at its peak
    memory_before_mb: float = 0.0


def run(setting: Setting) -> Iterator[Row]:
    sys.path.insert(0, str(ROOT / "tests"))
    from cluster.cluster import Cluster

    nodes = setting.nodes
    workloads = (
        Workload("gangs", nodes // 2, GANG),
        Workload("singles", nodes * SINGLES_PER_NODE, 1),
    )
    with Cluster(setting.folder / "cluster", kwok=nodes, operators=("coscheduling",)) as cluster:
        contenders: dict[str, Callable[[Workload], Result]] = {
            "naive": partial(_naive, cluster.kubeconfig, nodes),
            "kube-scheduler": partial(_theirs, cluster.kubeconfig, "default-scheduler"),
            "coscheduling": partial(_theirs, cluster.kubeconfig, "coscheduling"),
            "swell": partial(_ours, cluster.kubeconfig, setting.folder),
        }
        for workload in workloads:
            order = sorted(contenders)
            setting.random().shuffle(order)
            results: dict[str, Result] = {}
            for name in order:
                results[name] = contenders[name](workload)
                progress(f"{workload.name}: {name} {results[name]}")
            yield from _rows(workload, results, nodes)


def _rows(workload: Workload, results: dict[str, Result], nodes: int) -> Iterator[Row]:
    ours = results["swell"]
    unit = "gangs/s" if workload.size > 1 else "pods/s"
    rates = {name: result.bound / workload.size / result.seconds for name, result in results.items()}
    for name in ("naive", "kube-scheduler", "coscheduling"):
        detail = {"nodes": nodes, "pods": workload.pods, "bound by them": results[name].bound, "seconds": ours.seconds}
        yield Row("kubernetes", f"{workload.name} beside {name}", unit, rates["swell"], rates[name], detail=detail)
    yield from _costs("kubernetes", workload, ours)


def _costs(bench: str, workload: Workload, ours: Result) -> Iterator[Row]:
    thousand = workload.pods / 1000
    yield Row(bench, f"{workload.name}: CPU of ours per 1,000 pods", "s", ours.cpu_s / thousand)
    added = (ours.memory_mb - ours.memory_before_mb) / thousand
    detail = {"before": ours.memory_before_mb, "at its peak": ours.memory_mb}
    yield Row(bench, f"{workload.name}: memory of ours per 1,000 pods", "MB", added, detail=detail)


def run_scale(setting: Setting) -> Iterator[Row]:
    """Five times the cluster, and only ours: does it hold so much, and go on planning?"""
    sys.path.insert(0, str(ROOT / "tests"))
    from cluster.cluster import Cluster

    nodes = SCALE * setting.nodes
    workload = Workload("many", nodes * SINGLES_PER_NODE, 1)
    with Cluster(setting.folder / "cluster", kwok=nodes, operators=("coscheduling",)) as cluster:
        ours = _ours(cluster.kubeconfig, setting.folder, workload, clean=False)
    detail = {"nodes": nodes, "pods": workload.pods, "bound": ours.bound, "seconds": ours.seconds}
    yield Row("scale", "single pods bound", "pods/s", ours.bound / ours.seconds, detail=detail)
    yield from _costs("scale", workload, ours)


# -- contenders ------------------------------------------------------------------------------------------------


def _theirs(kubeconfig: Path, scheduler: str, workload: Workload) -> Result:
    with _port(kubeconfig) as port:
        return _race(port, workload, scheduler)


def _naive(kubeconfig: Path, nodes: int, workload: Workload) -> Result:
    """Places are dealt out before anything comes; a pod is bound as soon as it was created."""
    with _port(kubeconfig) as port:
        places = itertools.cycle([f"kwok-{number}" for number in range(nodes)])

        def bind(made: dict[str, Any]) -> None:
            metadata = made["metadata"]
            port.bind(metadata["name"], NAMESPACE, metadata["uid"], next(places))

        return _race(port, workload, "naive", after=bind)


def _ours(kubeconfig: Path, folder: Path, workload: Workload, *, clean: bool = True) -> Result:
    state = StateFolder(folder / f"state-{workload.name}")
    swell("up", "-d", "--engine", "kubernetes", "--kubeconfig", str(kubeconfig), state=state.root)
    try:
        pid = state.lock_holder("server")
        with _port(kubeconfig) as port:
            before, memory_before = _cpu_s(pid), _memory_mb(pid)
            found = _race(port, workload, "swell", clean=False)
            used = Result(found.seconds, found.bound, _cpu_s(pid) - before, _memory_mb(pid), memory_before)
            if clean:
                _clean(port)
        return used
    finally:
        swell("down", state=state.root)


# -- a race ----------------------------------------------------------------------------------------------------


class _Finish:
    """Counts pods that are bound."""

    def __init__(self, port: Port) -> None:
        self._bound: set[str] = set()
        self._reflector = Reflector(port, Selection(PODS, NAMESPACE), read_pod, self._look)
        self.last_at = 0.0

    def __enter__(self) -> _Finish:
        self._reflector.start()
        assert self._reflector.wait_until_synced(60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._reflector.stop()

    def _look(self, changes: tuple[Change[PodSeen], ...]) -> None:
        before = len(self._bound)
        self._bound |= {change.after.uid for change in changes if change.after is not None and change.after.node}
        if len(self._bound) > before:
            self.last_at = time.perf_counter()

    @property
    def bound(self) -> int:
        return len(self._bound)


def _race(
    port: Port,
    workload: Workload,
    scheduler: str,
    *,
    after: Callable[[dict[str, Any]], None] = lambda _: None,
    clean: bool = True,
) -> Result:
    _gather(port, [partial(port.create, GROUPS, group, NAMESPACE) for group in workload.groups(scheduler)])

    def create(document: dict[str, Any]) -> None:
        after(port.create(PODS, document, NAMESPACE))

    with _Finish(port) as finish:
        began = time.perf_counter()
        _gather(port, [partial(create, document) for document in workload.documents(scheduler)])
        while finish.bound < workload.pods and time.perf_counter() - began < ROUND_S_MAX:
            time.sleep(0.05)
        result = Result(finish.last_at - began, finish.bound)
    if clean:
        _clean(port)
    return result


def _clean(port: Port) -> None:
    names = [pod["metadata"]["name"] for pod in port.list(Selection(PODS, NAMESPACE)).items]
    port.gather([partial(port.delete, PODS, name, NAMESPACE, grace_s=0) for name in names])
    groups = [group["metadata"]["name"] for group in port.list(Selection(GROUPS, NAMESPACE)).items]
    port.gather([partial(port.delete, GROUPS, name, NAMESPACE) for name in groups])
    until = time.monotonic() + GONE_S_MAX
    while port.list(Selection(PODS, NAMESPACE)).items:
        assert time.monotonic() < until, "pods of the last round do not go away"
        time.sleep(0.5)
    _await_quiet()


def _await_quiet() -> None:
    """What the last round left to do for the cluster's own parts is not the next contender's burden."""
    until = time.monotonic() + QUIET_S_MAX
    while time.monotonic() < until:
        busy, total = _ticks()
        time.sleep(1.0)
        now_busy, now_total = _ticks()
        if now_busy - busy < BUSY_MAX * (now_total - total):
            return
    progress("the machine does not become quiet; something else runs on it")


def _ticks() -> tuple[int, int]:
    """Of all cores since the start of the machine: busy, and all."""
    counted = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(counted) - counted[3] - counted[4], sum(counted)


def _gather(port: Port, calls: Sequence[Callable[[], Any]]) -> None:
    for result in port.gather(list(calls)):
        if isinstance(result, Exception):
            raise result


@contextmanager
def _port(kubeconfig: Path) -> Iterator[Port]:
    port = Port(find_access(kubeconfig), agent="bench")
    try:
        yield port
    finally:
        port.close()


def _pod(name: str, scheduler: str, group: str | None) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {GROUP_LABEL: group} if group else {}},
        "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
    }


def _cpu_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _memory_mb(pid: int | None) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
