"""Do gangs that arrive at once all get done, or do halves of them keep each other out for ever?

A gang's program begins when its last member runs, and ends so many seconds later. Until then its members wait for each
other and hold what they have: simulated pods run for ever by themselves, and `Play` ends them, for every contender
alike. The nodes are so small that about four gangs fit at once, in pods of one GPU: less, and there would be hardly
two gangs to mix; more, and one that is not whole finds its missing room. Each gang makes its own pods, one after the
other as a controller does, and all gangs do so at the same time, so a scheduler that knows no gangs sees a member of
each first. Where every GPU is held by gangs that are not whole, nothing can change any more: a round is over then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from bench.rows import Row, Setting
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.observed_objects import PodSeen, read_pod
from swell.engines.kubernetes.watch.reflector import Reflector

GANGS = 50
SIZE_MIN, SIZE_MAX = 2, 6
NODES = 8
GPUS_PER_NODE = 2
GPUS = NODES * GPUS_PER_NODE
RUN_S = 5.0  # long beside the time that it takes to place a gang, short enough for all rounds in ten minutes
ROUND_S_MAX = 450.0  # the work takes a minute, and what a kube-scheduler has put aside may wait for five
CLOGGED_S = 20.0  # four times what any gang takes: a round that is given up is seen not to move
LOOK_S = 0.05
END_NOW = {"metadata": {"annotations": {"sim/run-for": "0s"}}}  # tests/cluster/kwok.py


@dataclass(frozen=True, slots=True)
class Gang:
    name: str
    size: int

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{rank}" for rank in range(self.size))


@dataclass(frozen=True, slots=True)
class Result:
    done: int  #: gangs
    seconds: float  #: until the last of those was
    clogged_after_s: float | None  #: None: it was not


class Play:
    """The program of the gangs: pictures of their pods in, pods that end out."""

    def __init__(self, gangs: Sequence[Gang], gpus: int) -> None:
        self._gangs = gangs
        self._gpus = gpus
        self._whole_at: dict[Gang, float] = {}
        self.done_at: dict[Gang, float] = {}
        self.clogged_at: float | None = None  #: since when; None: it is not

    def look(self, pods: Mapping[str, PodSeen], now: float) -> tuple[str, ...]:
        for gang in self._gangs:
            phases = {pods[name].phase if name in pods else "" for name in gang.members}
            if phases == {"Running"}:
                self._whole_at.setdefault(gang, now)
            elif phases == {"Succeeded"}:
                self.done_at.setdefault(gang, now)
            elif phases & {"", "Pending"}:  # somebody has taken a member away: the others wait again
                self._whole_at.pop(gang, None)
        self._look_for_clogging(pods, now)
        over = [gang for gang, at in self._whole_at.items() if now - at >= RUN_S]
        return tuple(name for gang in over for name in gang.members if pods[name].phase == "Running")

    def _look_for_clogging(self, pods: Mapping[str, PodSeen], now: float) -> None:
        held = {name for name, seen in pods.items() if seen.node and not seen.has_ended}
        can_end = any(held.issuperset(gang.members) for gang in self._gangs)
        if len(held) < self._gpus or can_end:
            self.clogged_at = None
        elif self.clogged_at is None:
            self.clogged_at = now


def run(setting: Setting) -> Iterator[Row]:
    sizes = draw_sizes(setting.random())
    with racecourse(setting, NODES, gpus=GPUS_PER_NODE) as kubeconfig:
        contenders: dict[str, Callable[[Sequence[int]], Result]] = {
            "kube-scheduler": partial(_theirs, kubeconfig, "default-scheduler"),
            "coscheduling": partial(_theirs, kubeconfig, "coscheduling"),
            "swell": partial(_ours, kubeconfig, setting.folder),
        }
        results = in_drawn_order(setting, "clogging", contenders, sizes)
    yield from rows(sizes, results)


def draw_sizes(lots: random.Random) -> tuple[int, ...]:
    return tuple(lots.randint(SIZE_MIN, SIZE_MAX) for _ in range(GANGS))


def rows(sizes: Sequence[int], results: Mapping[str, Result]) -> Iterator[Row]:
    ours = results["swell"]
    work = {"GPUs": GPUS, "each runs, s": RUN_S, "sizes": list(sizes)}
    yield Row("clogging", "the work alone", "s", None, sum(sizes) * RUN_S / GPUS, detail=work)
    for name in ("kube-scheduler", "coscheduling"):
        theirs = results[name]
        detail = {"their last after, s": theirs.seconds, "they clogged after, s": theirs.clogged_after_s}
        yield Row("clogging", f"done beside {name}", f"of {GANGS}", ours.done, theirs.done, detail=detail)
        yield Row("clogging", f"until the last beside {name}", "s", _until_all(ours), _until_all(theirs))


def _until_all(result: Result) -> float | None:
    return result.seconds if result.done == GANGS else None


def _theirs(kubeconfig: Path, scheduler: str, sizes: Sequence[int]) -> Result:
    with connected(kubeconfig) as port:
        return _round(port, scheduler, sizes)


def _ours(kubeconfig: Path, folder: Path, sizes: Sequence[int]) -> Result:
    with serving(kubeconfig, folder), connected(kubeconfig) as port:
        return _round(port, "swell", sizes)


def _round(port: ApiClient, scheduler: str, sizes: Sequence[int]) -> Result:
    gangs = [Gang(f"{scheduler}-{number}", size) for number, size in enumerate(sizes)]
    gather(port, [partial(port.create, GROUPS, pod_group(gang.name, gang.size), NAMESPACE) for gang in gangs])
    reflector = Reflector(port, Selection(PODS, NAMESPACE), read_pod, lambda _: None)
    reflector.start()
    try:
        assert reflector.wait_until_synced(60.0)
        result = _watch(port, gangs, scheduler, reflector)
    finally:
        reflector.stop()
    clean(port)
    return result


def _watch(port: ApiClient, gangs: Sequence[Gang], scheduler: str, reflector: Reflector[PodSeen]) -> Result:
    play = Play(gangs, GPUS)
    began = now = time.perf_counter()
    gather(port, [partial(_arrive, port, gang, scheduler) for gang in gangs])
    while len(play.done_at) < len(gangs) and now - began < ROUND_S_MAX:
        now = time.perf_counter()
        pods = {seen.name: seen for seen in reflector.snapshot().values()}
        gather(port, [partial(port.patch, PODS, name, END_NOW, NAMESPACE) for name in play.look(pods, now)])
        if play.clogged_at is not None and now - play.clogged_at > CLOGGED_S:
            break
        time.sleep(LOOK_S)
    last = max(play.done_at.values(), default=began) - began
    return Result(len(play.done_at), last, None if play.clogged_at is None else play.clogged_at - began)


def _arrive(port: ApiClient, gang: Gang, scheduler: str) -> None:
    for name in gang.members:
        port.create(PODS, pod(name, scheduler, gang.name, gpus=1), NAMESPACE)
