"""How many pods a second does the port bind, and what does one cost us?

The API server is the tests' one, in a process of its own: what it costs is not counted, what it is slow at is. So the
number to look at is the CPU of ours; beside it stands the same request through `http.client`.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.rows import Row, Setting, middle
from swell.engines.kubernetes import Access, ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.credentials import Credential, Fixed
from swell.engines.kubernetes.client.resources import PODS

ROOT = Path(__file__).resolve().parent.parent
IN_FLIGHT = 64
AIM = "below 200"  # 500 binds/s, what a real control plane takes here, are then a tenth of a core


def run(setting: Setting) -> Iterator[Row]:
    rounds = [_round(setting) for _ in range(setting.repeats)]
    ours, theirs, rate, rate_theirs = (middle([one[part] for one in rounds]) for part in range(4))
    detail = {"in flight": IN_FLIGHT, "pods": setting.tasks, "beside": "http.client"}
    yield Row("binds", "CPU of ours per bind", "us", ours, theirs, aim=AIM, detail=detail)
    yield Row("binds", "binds per second", "1/s", rate, rate_theirs, detail=detail)


def _round(setting: Setting) -> tuple[float, float, float, float]:
    with _served(setting.folder, setting.tasks) as access:
        port = ApiClient(access)
        pods = [item["metadata"] for item in port.list(Selection(PODS)).items]
        half = len(pods) // 2
        calls = [partial(port.bind, pod["name"], "default", pod["uid"], "node") for pod in pods[:half]]
        ours = _timed(lambda: port.gather(calls), half)
        theirs = _timed(lambda: _plain(access, [pod["name"] for pod in pods[half:]]), len(pods) - half)
        bound = sum("nodeName" in item.get("spec", {}) for item in port.list(Selection(PODS)).items)
        port.close()
    assert bound == len(pods), f"only {bound} of {len(pods)} pods are bound"
    return ours[0], theirs[0], ours[1], theirs[1]


def _timed(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Microseconds of CPU for each, and how many a second."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - cpu) / count * 1e6, count / (time.perf_counter() - began)


def _plain(access: Access, names: list[str]) -> None:
    local = threading.local()
    headers = {**dict(access.credentials.current().headers), "Content-Type": "application/json"}

    def bind(name: str) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(access.server.removeprefix("http://"))
        body = {"kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        local.connection.request("POST", path, json.dumps(body), headers)
        json.loads(local.connection.getresponse().read())

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        list(threads.map(bind, names))


@contextmanager
def _served(folder: Path, pods: int) -> Iterator[Access]:
    command = [sys.executable, "-c", f"from bench import binds; binds.serve({str(folder / 'token')!r}, {pods})"]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        url, token = json.loads(server.stdout.readline())
        yield Access(url, "default", Fixed(Credential.bearer(token), "bench"), "bench")
        server.communicate()  # it ends with its input


def serve(token: str, pods: int) -> None:
    """The other process."""
    from tests.engines.kubernetes.apiserver import ApiServer

    server = ApiServer(Path(token))
    for number in range(pods):
        server.storage.create("pods", ("default", f"pod-{number}"), {"spec": {"schedulerName": "swell"}})
    print(json.dumps([server.url, server.token]), flush=True)
    sys.stdin.read()
    server.close()
