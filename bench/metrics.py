"""What does being measured cost: a request, a cycle, a scrape with many jobs stored?

In this process, without a network: only what the measuring adds is timed, beside the same call without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from bench.rows import Row, Setting, middle
from swell.api import Measured
from swell.controller.accounting import Accounts
from swell.controller.cycle import Cycled
from swell.manifests import Context, read_document
from swell.metrics import Metrics, Present
from swell.model.plan import Snapshot
from swell.store import EventRecord, NewJob, Store, open_store

CALLS = 2_000
SCRAPES = 20
BATCH = 500
EVENTS = (
    EventRecord("Started", 1, detail={"attempt": 1, "waited_s": 3.0}),
    EventRecord("Ended", 1, detail={"state": "succeeded", "ran_s": 5.0}),
)


def run(setting: Setting) -> Iterator[Row]:
    metrics = Metrics()
    bare = _call(_answer)
    yield Row("metrics", "calibration: an application that answers at once", "us", None, middle(bare))
    measured = _call(Measured(_answer, metrics))
    yield Row("metrics", "one request, added", "us", middle(measured) - middle(bare), aim="below 50")
    cycles = [_timed(lambda: metrics.cycled(Cycled(EVENTS, (), 0.001, 0.002))) for _ in range(CALLS)]
    yield Row("metrics", "one cycle that starts a job and ends one", "us", 1e6 * middle(cycles), aim="below 50")
    store = open_store(setting.folder / "metrics.db", time.time)
    try:
        yield from _scrapes(setting, metrics, store)
    finally:
        store.close()


def _scrapes(setting: Setting, metrics: Metrics, store: Store) -> Iterator[Row]:
    manifest = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["true"]}}
    job = NewJob(read_document(manifest, Context("/")), "ann", {})
    for begin in range(0, setting.stored, BATCH):
        store.accept([job] * min(BATCH, setting.stored - begin)).result()
    controller: Any = SimpleNamespace(snapshot=Snapshot(0.0, (), ()), accounts=Accounts())
    engine: Any = SimpleNamespace(silences=dict, gpu_utilizations=dict)
    metrics.registry.register(Present(store, controller, engine, time.time))
    took = [1000 * _timed(metrics.text) for _ in range(SCRAPES)]
    yield Row("metrics", f"one scrape with {setting.stored} jobs that wait", "ms", middle(took), aim="below 50")


async def _answer(scope: Any, _: Any, send: Any) -> None:
    scope["route"] = SimpleNamespace(path="/api/v1/jobs/{ref}")
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body"})


async def _send(_: Any) -> None:
    return None


def _call(app: Any) -> list[float]:
    """Microseconds of each call, driven by hand: nothing in it waits."""

    def once() -> None:
        asked = app({"type": "http", "method": "GET", "path": "/api/v1/jobs/1"}, None, _send)
        try:
            asked.send(None)
        except StopIteration:
            return

    return [1e6 * _timed(once) for _ in range(CALLS)]


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
