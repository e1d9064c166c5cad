"""What do the GPUs do right now?

A thread of its own asks, because a driver in trouble may not answer for minutes, and tasks must be started and ended
meanwhile. It only collects; whose processes they are is for `watch.py` to say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from swell.worker import processes
from swell.worker.nvml import Nvml, Reading
from swell.worker.processes import Trace

SAMPLE_S = 2.0  # the driver averages over up to a second; asking costs about a millisecond for each GPU
PAUSE_S_MAX = 60.0  # opening NVML again may take seconds, and a driver that is gone stays so for long


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs that answered, at one moment; perhaps none."""

    at: float  #: monotonic
    readings: tuple[Reading, ...]
    traces: dict[int, Trace]  #: of the processes on them; one that is missing is not to be found here


class Sampler:
    """Hands its samples over; `wake` is called after each."""

    def __init__(self, nvml: Nvml, wake: Callable[[], None]) -> None:
        self._nvml = nvml
        self._wake = wake
        self._mutex = threading.Lock()
        self._samples: list[Sample] = []

    def start(self) -> None:
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def take(self) -> list[Sample]:
        with self._mutex:
            samples, self._samples = self._samples, []
        return samples

    def _run(self) -> None:
        pause = SAMPLE_S
        while True:
            readings = self._nvml.read()
            sample = Sample(time.monotonic(), readings, _traces(readings))
            with self._mutex:
                self._samples.append(sample)
            self._wake()
            pause = SAMPLE_S if readings else min(2 * pause, PAUSE_S_MAX)
            time.sleep(pause)


def _traces(readings: tuple[Reading, ...]) -> dict[int, Trace]:
    pids = {process.pid for reading in readings for process in reading.processes or ()}
    found = {pid: processes.trace(pid) for pid in pids}
    return {pid: trace for pid, trace in found.items() if trace is not None}
