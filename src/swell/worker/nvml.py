"""What does the driver say of the GPUs? The only place that speaks NVML.

The library is loaded late and every call is guarded: a broken driver means no numbers and a line in the log, never a
worker that dies. It is opened once, kept, and opened again after it has failed. What it says is not believed blindly:
memory may be unknown (other users' processes, WSL, old drivers) or nonsense (a driver newer than the library), and so
may process ids.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from swell.model.cluster import Device, DeviceId

T = TypeVar("T")

MIB = 1 << 20
MAJOR = 195  # of /dev/nvidia0 and its siblings, registered with the kernel
PID_MAX = 1 << 22  # the kernel's own limit; what lies above is not a process
#: a process may be in several; an older driver knows only the function with the suffix
COMPUTE = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses",)
OLDER = "_v2"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one GPU. On several GPUs it is listed on each, with what it uses there."""

    pid: int  #: as the host counts them
    used_mib: int | None  #: None: the driver does not say, or says nonsense
    is_graphics: bool = False  #: it draws and computes nothing: a desktop


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment."""

    id: DeviceId
    total_mib: int
    used_mib: int | None  #: None: not known
    utilization: int | None  #: percent; None: not known
    processes: tuple[GpuProcess, ...] | None  #: by pid; None: the driver does not list them


class Nvml:
    """Opened on first use. Not for several threads at once."""

    def __init__(self) -> None:
        self._library: Any = None  #: None: not open
        self._handles: dict[DeviceId, Any] = {}
        self._said: set[str] = set()  #: complaints that are in the log already

    def devices(self) -> tuple[Device, ...]:
        """By UUID; empty when there is no driver."""
        return tuple([device for uuid in self._opened() if (device := self._device(uuid)) is not None])

    def numbers(self) -> dict[DeviceId, tuple[int, int]]:
        """Of the device files: major and minor. Without those that the driver does not tell."""
        minors = {uuid: _quietly(partial(self._minor, uuid)) for uuid in self._opened()}
        return {uuid: (MAJOR, minor) for uuid, minor in minors.items() if minor is not None}

    def _minor(self, uuid: DeviceId) -> int:
        return int(self._library.nvmlDeviceGetMinorNumber(self._handles[uuid]))

    def read(self) -> tuple[Reading, ...]:
        """What each GPU does now, without those that do not answer; when none does, NVML is opened again next time."""
        found = tuple([reading for uuid in self._opened() if (reading := self._reading(uuid)) is not None])
        if self._library is not None and not found:
            self.close()
        return found

    def versions(self) -> tuple[str, str] | None:
        """Of the driver and of NVML; None: it cannot be asked."""
        self._opened()
        if self._library is None:
            return None
        asked = (self._library.nvmlSystemGetDriverVersion, self._library.nvmlSystemGetNVMLVersion)
        driver, nvml = (_text(_quietly(ask) or "unknown") for ask in asked)
        return driver, nvml

    def problem(self) -> str:
        """Why there are no GPUs, in NVML's words; empty: nothing went wrong."""
        return "; ".join(sorted(self._said))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._library.nvmlShutdown()
        self._library = None
        self._handles = {}

    def _opened(self) -> tuple[DeviceId, ...]:
        if self._library is None:
            self._handles = self._guarded("there are no GPUs", self._open) or {}
        return tuple(self._handles)

    def _open(self) -> dict[DeviceId, Any]:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
        self._library = library
        numbers = range(library.nvmlDeviceGetCount())
        found = [self._guarded(f"GPU {number} is not used", partial(self._identify, number)) for number in numbers]
        return dict([one for one in found if one is not None])

    def _identify(self, number: int) -> tuple[DeviceId, Any]:
        handle = self._library.nvmlDeviceGetHandleByIndex(number)
        return _text(self._library.nvmlDeviceGetUUID(handle)), handle

    def _device(self, uuid: DeviceId) -> Device | None:
        nvml, handle = self._library, self._handles[uuid]

        def ask() -> Device:
            memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB
            is_watched = _is_watched(self._processes(handle, memory))
            return Device(uuid, memory, _text(nvml.nvmlDeviceGetName(handle)), is_watched=is_watched)

        return self._guarded(f"{uuid} is not used", ask)

    def _reading(self, uuid: DeviceId) -> Reading | None:
        nvml, handle = self._library, self._handles[uuid]

        def ask() -> Reading:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            total = int(memory.total) // MIB
            busy = _quietly(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
            utilization = busy if busy is not None and 0 <= busy <= 100 else None
            return Reading(uuid, total, mib(memory.used, total), utilization, self._processes(handle, total))

        reading = self._guarded(f"{uuid} is not read", ask)
        if reading is not None:
            self._said = {text for text in self._said if not text.startswith(uuid)}  # well again
        return reading

    def _processes(self, handle: Any, total_mib: int) -> tuple[GpuProcess, ...] | None:
        compute = [found for name in COMPUTE if (found := self._listed(name, handle)) is not None]
        graphics = [found for name in GRAPHICS if (found := self._listed(name, handle)) is not None]
        if not compute:
            return None
        computing = {process.pid for found in compute for process in found}
        used: dict[int, int | None] = {}
        for process in (process for found in (*compute, *graphics) for process in found):
            if 0 < process.pid <= PID_MAX:
                known, new = used.get(process.pid), mib(process.usedGpuMemory, total_mib)
                used[process.pid] = new if known is None else known if new is None else max(known, new)
        return tuple([GpuProcess(pid, used[pid], pid not in computing) for pid in sorted(used)])

    def _listed(self, name: str, handle: Any) -> list[Any] | None:
        for function in (name, name + OLDER):
            ask = getattr(self._library, function, None)
            found = None if ask is None else _quietly(partial(ask, handle))
            if found is not None:
                return list(found)
        return None

    def _guarded(self, what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  no library, no driver, no permission: NVML has a class for each
            text = f"{what}: NVML says {error}"
            if text not in self._said:
                self._said.add(text)
                log.warning("%s", text)
            return None


def _is_watched(processes: tuple[GpuProcess, ...] | None) -> bool:
    """Does the driver tell who uses how much? It lists processes, and has a number for one of them at least."""
    return processes is not None and (not processes or any(one.used_mib is not None for one in processes))


def is_watched(reading: Reading) -> bool:
    return _is_watched(reading.processes)


def mib(value: Any, total_mib: int) -> int | None:
    """Bytes as MiB, rounded up; None when that cannot be: not a number, negative, more than the GPU has."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= total_mib * MIB:
        return None
    return -(-value // MIB)


def _quietly(ask: Callable[[], T]) -> T | None:
    """For what many drivers and cards do not offer; that is not worth a line."""
    try:
        return ask()
    except Exception:  # noqa: BLE001  as above
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
