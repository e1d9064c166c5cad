"""What do the GPUs do right now?

A thread of its own asks, because a driver in trouble may not answer for minutes, and tasks must be started and ended
meanwhile. It only collects; whose processes they are is for `watch.py` to say. No process and no driver can end it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from swell.worker import processes
from swell.worker.nvml import Nvml, Reading
from swell.worker.processes import Trace

SAMPLE_S = 2.0  # the driver averages over up to a second; asking costs about a millisecond for each GPU
SAMPLES_MAX = 30  # that wait for somebody to look at them; a minute
COMPLAINTS_MAX = 100  # different ones in the log; a process must not be able to fill it
PAUSE_S_MAX = 60.0  # opening NVML again may take seconds, and a driver that is gone stays so for long


log = logging.getLogger(__name__)


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
        self._said: set[str] = set()  #: complaints that are in the log already
        self.reads_environments = True  #: False: control groups tell whose a process is, and nothing else is asked

    def start(self) -> None:
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def take(self) -> list[Sample]:
        with self._mutex:
            samples, self._samples = self._samples, []
        return samples

    def _run(self) -> None:
        pause = SAMPLE_S
        while True:
            readings: tuple[Reading, ...] = ()
            try:
                readings = self._nvml.read()
                self._hand_over(Sample(time.monotonic(), readings, self._traces(readings)))
            except Exception as error:  # noqa: BLE001  the next sample may be a good one
                self._say(f"the GPUs could not be sampled: {error!r}")
            pause = SAMPLE_S if readings else min(2 * pause, PAUSE_S_MAX)
            time.sleep(pause)

    def _hand_over(self, sample: Sample) -> None:
        with self._mutex:
            self._samples = [*self._samples, sample][-SAMPLES_MAX:]
        self._wake()

    def _traces(self, readings: tuple[Reading, ...]) -> dict[int, Trace]:
        pids = {process.pid for reading in readings for process in reading.processes or ()}
        found = {pid: self._trace(pid) for pid in pids}
        return {pid: trace for pid, trace in found.items() if trace is not None}

    def _trace(self, pid: int) -> Trace | None:
        try:
            return processes.trace(pid, reads_environment=self.reads_environments)
        except Exception as error:  # noqa: BLE001  one process says nothing of the others
            self._say(f"a process on a GPU could not be examined: {error!r}")
            return None

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < COMPLAINTS_MAX:
            self._said.add(text)
            log.warning("%s", text)
