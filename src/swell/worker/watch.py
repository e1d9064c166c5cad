"""Whose GPU memory is it, and whose GPUs are idle?

Events in, values out: samples of the driver and what runs here become what each run uses and what outsiders do. Whose
a process is, is told by its session or group, its control group, or the marks in its environment: never by its number
alone, which may be of another namespace or have been used again. Anybody can write marks into their own environment,
so they count only for a job that runs now and only on a process of that job's own user. What is told changes rarely,
because a changed node is planned for anew: small differences are not mentioned.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from swell.model.cluster import Device, DeviceId
from swell.model.job import AttemptId, IdlePolicy
from swell.model.launch import GpuSeen
from swell.worker.nvml import GpuProcess, Reading, is_watched
from swell.worker.processes import Trace
from swell.worker.sampler import SAMPLE_S, Sample

STEP_MIB = 256  # outsiders are told in these, and a job's use when it has changed by as much
OUTSIDERS_MIB_MIN = 64  # below that it is a context somebody left open, or the MPS server
DESKTOP_MIB_MAX = 1024  # what draws the desktop; more is a program that means it
SILENT_SAMPLES = 3  # a busy driver may miss one; a GPU that has fallen off the bus misses all
GAP_S_MAX = 3 * SAMPLE_S  # longer between two samples: nobody looked, so nobody knows
QUIET_STEPS = 4  # a quiet run is told of so often within its window
BUSY_S = 30.0  # utilisation is averaged over so long: about as often is it told
GROUP_NAME = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,18}|[a-z]+)"
)  # attempt, then task or what stands beside

Task = tuple[AttemptId, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """What runs here, as far as it concerns GPUs."""

    attempt: AttemptId
    keepers: dict[int, int]  #: their pids, which are their sessions and groups → index of the task
    devices: tuple[DeviceId, ...]
    uid: int  #: as whom its processes run
    idle: IdlePolicy | None = None  #: None: they may idle


@dataclass(slots=True)
class _Run:
    """What was seen of one attempt."""

    used: dict[tuple[int, DeviceId], int] = field(default_factory=dict)  #: task, GPU → MiB, by the newest sample
    peak_mib: int = 0
    quiet_s: float = 0.0
    quiet_since: float | None = None  #: the last sample that tells; None: nobody looked
    told: GpuSeen = field(default_factory=GpuSeen)


@dataclass(slots=True)
class _Gpu:
    is_watched: bool
    outsiders_mib: int = 0  #: as told
    strangers: frozenset[int] = frozenset()  #: outsiders of the sample before
    silent: int = 0  #: samples since it last answered


class Watch:
    """What is known of this machine's GPUs and who uses them."""

    def __init__(self, store: str = "", devices: Iterable[Device] = ()) -> None:
        self.store = store  #: the marks of our own processes carry it
        self.groups: tuple[str, ...] = ()  #: above the control groups of tasks, as the kernel names them
        self._runs: dict[AttemptId, _Run] = {}
        self._gpus = {device.id: _Gpu(device.is_watched) for device in devices if not device.simulated}
        self._busy: deque[tuple[float, float]] = deque()  #: moments, and the mean of the GPUs then, percent

    def take(self, sample: Sample, claims: Iterable[Claim]) -> None:
        known = {claim.attempt: claim for claim in claims}
        owners = {pid: owner_of(trace, self.store, known, self.groups) for pid, trace in sample.traces.items()}
        for gpu in self._gpus.values():
            gpu.silent += 1
        for reading in sample.readings:
            self._look(reading, owners)
        for claim in known.values():
            self._listen(claim, sample)
        levels = [reading.utilization for reading in sample.readings if reading.utilization is not None]
        if levels:
            self._busy.append((sample.at, sum(levels) / len(levels)))

    def utilization(self, now: float) -> float | None:
        """Of all GPUs lately, 0 to 1; None: not measured."""
        while self._busy and self._busy[0][0] < now - BUSY_S:
            self._busy.popleft()
        return round(sum(level for _, level in self._busy) / len(self._busy) / 100, 3) if self._busy else None

    def seen(self, attempt: AttemptId) -> GpuSeen | None:
        """None: nothing was measured."""
        return self._runs[attempt].told if attempt in self._runs else None

    def devices(self, offered: tuple[Device, ...]) -> tuple[Device, ...]:
        """What is offered, with what is known of it, without those that have stopped to answer."""
        return tuple([self._described(device) for device in offered if not self._is_silent(device)])

    def lost(self, offered: tuple[Device, ...]) -> tuple[Device, ...]:
        """Those that have stopped to answer."""
        return tuple([device for device in offered if self._is_silent(device)])

    def keep(self, attempts: Iterable[AttemptId]) -> None:
        """Forget all others."""
        self._runs = {attempt: self._runs[attempt] for attempt in attempts if attempt in self._runs}

    def _is_silent(self, device: Device) -> bool:
        return device.id in self._gpus and self._gpus[device.id].silent >= SILENT_SAMPLES

    def _described(self, device: Device) -> Device:
        gpu = self._gpus.get(device.id)
        if gpu is None:
            return device
        return replace(device, is_watched=gpu.is_watched, outsiders_mib=gpu.outsiders_mib)

    def _look(self, reading: Reading, owners: dict[int, Task | None]) -> None:
        gpu = self._gpus.setdefault(reading.id, _Gpu(is_watched(reading)))
        gpu.is_watched, gpu.silent = is_watched(reading), 0
        if reading.processes is None:
            return
        ours = self._attribute(reading, owners)
        strangers = [process for process in reading.processes if owners.get(process.pid) is None]
        lasting = [process for process in strangers if process.pid in gpu.strangers]  # not one that was just ending
        gpu.strangers = frozenset([process.pid for process in strangers])
        gpu.outsiders_mib = told_outsiders(gpu.outsiders_mib, outsiders_mib(reading, lasting, ours_mib=ours))

    def _attribute(self, reading: Reading, owners: dict[int, Task | None]) -> int:
        """Note what each task uses of this GPU; returns what all of them do."""
        used: dict[Task, int] = {}
        unsure: set[Task] = set()
        for process in reading.processes or ():
            owner = owners.get(process.pid)
            if owner is not None:
                used[owner] = used.get(owner, 0) + (process.used_mib or 0)
                unsure |= {owner} if process.used_mib is None else set()
        for attempt, run in self._runs.items():
            kept = {key: mib for key, mib in run.used.items() if key[1] != reading.id or (attempt, key[0]) in unsure}
            run.used = kept
        for (attempt, index), mib in used.items():
            run = self._runs.setdefault(attempt, _Run())
            if (attempt, index) not in unsure:
                run.used[index, reading.id] = mib
            run.peak_mib = max(run.peak_mib, mib)
        return sum(used.values())

    def _listen(self, claim: Claim, sample: Sample) -> None:
        busy = [reading.utilization for reading in sample.readings if reading.id in claim.devices]
        if claim.attempt not in self._runs and not busy:
            return
        run = self._runs.setdefault(claim.attempt, _Run())
        if claim.idle is not None:
            _listen_for_quiet(run, claim.idle, busy if len(busy) == len(claim.devices) else [None], sample.at)
        run.told = told_use(run.told, _seen(run, claim.idle))


def owner_of(trace: Trace, store: str, claims: Mapping[AttemptId, Claim], groups: tuple[str, ...] = ()) -> Task | None:
    """The task it belongs to, of those that run here; None: an outsider."""
    return _by_session(trace, claims) or _by_group(trace, claims, groups) or _by_marks(trace, store, claims)


def _by_session(trace: Trace, claims: Mapping[AttemptId, Claim]) -> Task | None:
    for claim in claims.values():
        for keeper, index in claim.keepers.items():
            if keeper in (trace.group, trace.session):
                return claim.attempt, index
    return None


def _by_group(trace: Trace, claims: Mapping[AttemptId, Claim], groups: tuple[str, ...]) -> Task | None:
    """Only the whole path counts: users may name folders of their own as they like."""
    for path in trace.cgroups:
        for base in groups:
            inside = path.removeprefix(base + "/").partition("/")[0] if path.startswith(base + "/") else ""
            name = GROUP_NAME.fullmatch(inside)
            claim = None if name is None else claims.get(AttemptId(int(name[1]), int(name[2])))
            if name is not None and claim is not None:
                return claim.attempt, _task_of(claim, name[3])
    return None


def _by_marks(trace: Trace, store: str, claims: Mapping[AttemptId, Claim]) -> Task | None:
    told = dict(trace.told)
    claim = next((claim for claim in claims.values() if told.get("SWELL_ATTEMPT") == str(claim.attempt)), None)
    if claim is None or told.get("SWELL_STORE") != store or trace.uid != claim.uid:
        return None
    return claim.attempt, _task_of(claim, told.get("SWELL_TASK_INDEX", ""))


def _task_of(claim: Claim, told: str) -> int:
    """The task that it says it is of, if there is one; else any of the same job."""
    tasks = {str(index): index for index in claim.keepers.values()}
    return tasks.get(told, min(tasks.values(), default=0))


def outsiders_mib(reading: Reading, strangers: list[GpuProcess], *, ours_mib: int) -> int:
    """What outsiders use of one GPU. A desktop is not counted: on many machines it is always there."""
    if any(process.used_mib is None for process in strangers):
        rest = 0 if reading.used_mib is None else reading.used_mib - ours_mib
        return max(rest, OUTSIDERS_MIB_MIN)
    drawing = sum(process.used_mib or 0 for process in strangers if process.is_graphics)
    computing = sum(process.used_mib or 0 for process in strangers if not process.is_graphics)
    return computing + (drawing if drawing > DESKTOP_MIB_MAX else 0)


def told_outsiders(told_mib: int, now_mib: int) -> int:
    """In steps, rounded up; less is told when it is less by more than a step."""
    if now_mib < OUTSIDERS_MIB_MIN:
        return 0
    rounded = -(-now_mib // STEP_MIB) * STEP_MIB
    return told_mib if told_mib - STEP_MIB <= rounded <= told_mib else rounded


def told_use(told: GpuSeen, now: GpuSeen) -> GpuSeen:
    """A peak always, an amount when it has changed enough to matter."""
    is_same = bool(told.memory_mib) == bool(now.memory_mib) and abs(told.memory_mib - now.memory_mib) < STEP_MIB
    return replace(now, memory_mib=told.memory_mib) if is_same and told.peak_mib == now.peak_mib else now


def _seen(run: _Run, idle: IdlePolicy | None) -> GpuSeen:
    step_s = 0.0 if idle is None else idle.window_s / QUIET_STEPS
    quiet_s = run.quiet_s // step_s * step_s if step_s else 0.0
    return GpuSeen(sum(run.used.values()), run.peak_mib, quiet_s)


def _listen_for_quiet(run: _Run, idle: IdlePolicy, busy: list[int | None], at: float) -> None:
    """What nobody looked at does not count as idle."""
    levels = [level for level in busy if level is not None]
    if any(level >= idle.min_gpu_utilization for level in levels):
        run.quiet_s, run.quiet_since = 0.0, at
    elif not levels or len(levels) < len(busy):
        run.quiet_since = None
    else:
        if run.quiet_since is not None and at - run.quiet_since <= GAP_S_MAX:
            run.quiet_s += at - run.quiet_since
        run.quiet_since = at
