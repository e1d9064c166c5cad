"""What does the library cost the training script that calls it, with a server there and with none?

Every case is a process of its own, as a job is: it trains nothing, calls, and prints how long the calls took. The
server is another process that answers every report at once. "Away" is an address where nobody listens.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.rows import Row, Setting, at_95, middle

ROOT = Path(__file__).resolve().parent.parent
STEPS = 200_000
EPOCHS = 500
STEPS_PER_EPOCH = 20
AIMS = {"measure": "below 5", "steps": "below 5", "end_epoch": "below 100"}
NAMES = {"measure": "measure(), one step", "steps": "steps(), one step", "end_epoch": "end_epoch()"}


def run(setting: Setting) -> Iterator[Row]:
    with _served() as there:
        free = _free_port()
        calibration = middle([_time(setting, "nothing", there)[0] for _ in range(setting.repeats)])
        yield Row("sdk", "calibration: a call that does nothing", "us", None, calibration)
        for place, url in (("server there", there), ("server away", f"http://127.0.0.1:{free}")):
            for case in NAMES:
                rounds = [_time(setting, case, url) for _ in range(setting.repeats)]
                mean, slow, worst = (middle([one[part] for one in rounds]) for part in range(3))
                detail = {"95th": slow, "worst": worst}
                yield Row("sdk", f"{NAMES[case]}, {place}", "us", mean, aim=AIMS[case], detail=detail)


def _time(setting: Setting, case: str, url: str) -> tuple[float, float, float]:
    """Microseconds: middle, 95th of a hundred, worst."""
    told = {
        "SWELL_URL": url,
        "SWELL_TOKEN": "bench",
        "SWELL_ATTEMPT": "1.1",
        "SWELL_CHECKPOINTS": str(setting.folder / "checkpoints"),
        "EPOCHS_TO_BE_DONE": str(10 * EPOCHS),
        "HEARTBEAT_FREQ": "100",
    }
    command = [sys.executable, "-c", f"from bench import sdk; sdk.child({case!r})"]
    env = {**os.environ, **told}
    done = subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    times: list[float] = json.loads(done.stdout)
    return middle(times), at_95(times), max(times)


def child(case: str) -> None:
    """In a process of its own: prints the microseconds of calls, those of steps as means of a hundred."""
    work: dict[str, Callable[[], list[float]]] = {
        "measure": _measures,
        "steps": _steps,
        "end_epoch": _end_epochs,
        "nothing": _nothing,
    }
    print(json.dumps(work[case]()), flush=True)
    os._exit(0)  # without the last report: with no server there it takes its three seconds


def _hundreds(call: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(STEPS // 100):
        began = time.perf_counter()
        for _ in range(100):
            call()
        times.append(1e4 * (time.perf_counter() - began))
    return times


def _nothing() -> list[float]:
    return _hundreds(lambda: None)


def _measures() -> list[float]:
    from kubernetesdlprofile.kubeprofiler import KubeProfiler

    profiler = KubeProfiler()
    profiler.start_epoch()
    return _hundreds(profiler.measure)


def _steps() -> list[float]:
    import swell_sdk

    steps = iter(swell_sdk.attach().steps(range(STEPS + 1)))
    return _hundreds(steps.__next__)


def _end_epochs() -> list[float]:
    from kubernetesdlprofile.kubeprofiler import KubeProfiler

    profiler = KubeProfiler()
    times = []
    for _ in range(EPOCHS):
        profiler.start_epoch()
        for _ in range(STEPS_PER_EPOCH):
            profiler.measure()
        time.sleep(0.001)  # an epoch is not over in a microsecond: the threads have gone back to waiting
        began = time.perf_counter()
        profiler.end_epoch()
        times.append(1e6 * (time.perf_counter() - began))
    return times


@contextmanager
def _served() -> Iterator[str]:
    command = [sys.executable, "-c", "from bench import sdk; sdk.serve()"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.communicate()


def serve() -> None:
    """In a process of its own: prints its port, takes every report, holds every question."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    print(http.server_address[1], flush=True)
    http.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def do_GET(self) -> None:
        time.sleep(25)
        self._answer()

    def _answer(self) -> None:
        body = b'{"stop_after_epoch": null, "yield_now": false}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silent."""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
