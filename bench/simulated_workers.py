"""What is a worker to the server? Machines that exist only in what they say, over real HTTP.

Each is two connections, as of a real worker: one waits for the desired set, one reports. A task lasts as long as it is
told and does nothing. What it has begun is counted, so that an attempt that was begun twice, or by two, is seen.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import KEY_HEADER, NODE_HEADER, Launch, RunSeen, TaskSeen, node_document, run_document
from swell.model.launch import task_document as told

RETRY_S = 0.3
HOLD_S = 25.0
LEASE_S = 600.0


class Line:
    """One kept-alive HTTP connection."""

    def __init__(self, host: str, port: int, headers: dict[str, str], *, comes_from: str) -> None:
        self._host, self._port, self._comes_from = host, port, comes_from
        named = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        self._head = (
            f"POST /api/v1/workers/sync HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n{named}"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, document: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._ask(json.dumps(document).encode())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, body: bytes) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, local_addr=(self._comes_from, 0))
        reader, writer = self._streams
        writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        data = await reader.readexactly(length)
        if " 200 " not in head.partition("\r\n")[0]:
            raise OSError(f"{head.splitlines()[0]}: {data[:200]!r}")
        answer: dict[str, Any] = json.loads(data)
        return answer


@dataclass(slots=True)
class Tallies:
    """Of all machines together."""

    begun: Counter[AttemptId] = field(default_factory=Counter)
    syncs_s: list[float] = field(default_factory=list)  #: of requests that do not wait


class SimulatedMachine:
    """One worker, with an address of its own."""

    def __init__(self, number: int, token: str, host: str, port: int, tallies: Tallies, *, lasts_s: float) -> None:
        name, address = f"m{number:03}", f"127.1.{number // 250}.{1 + number % 250}"
        headers = {"Authorization": f"Bearer {token}", NODE_HEADER: name, KEY_HEADER: name.ljust(40, "k")}
        self._watching, self._reporting = (Line(host, port, headers, comes_from=address) for _ in range(2))
        self._node = node_document(Node(name, 1000, 8192, address=address))
        self._name, self._lasts_s, self._tallies = name, lasts_s, tallies
        self._version, self._store, self._server = 0, "", ""
        self._runs: dict[AttemptId, RunSeen] = {}
        self._tasks: dict[AttemptId, TaskSeen] = {}
        self._unsaid: set[AttemptId] = set()
        self._news = asyncio.Event()
        self._ends: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await asyncio.gather(self._watch(), self._report())

    async def _watch(self) -> None:
        while True:
            try:
                self._take(await self._watching.post(self._document([], HOLD_S)))
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(RETRY_S)

    async def _report(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            said, self._unsaid = self._unsaid, set()
            began = time.perf_counter()
            try:
                self._take(await self._reporting.post(self._document(sorted(said), 0)))
                self._tallies.syncs_s.append(time.perf_counter() - began)
            except (OSError, asyncio.IncompleteReadError):
                self._unsaid |= said
                self._news.set()
                await asyncio.sleep(RETRY_S)

    def _document(self, said: list[AttemptId], hold_s: float) -> dict[str, Any]:
        return {
            "node": self._node,
            "version": self._version,
            "store": self._store,
            "server": self._server,
            "tasks": [told(self._tasks[one]) for one in said if one in self._tasks],
            "runs": [run_document(self._runs[one]) for one in said if one in self._runs],
            "hold_s": hold_s,
            "terms": {"lease_s": LEASE_S},
        }

    def _take(self, answer: dict[str, Any]) -> None:
        self._store = answer["store"]
        if answer["server"] != self._server:  # another process, which knows nothing
            self._server, self._unsaid = answer["server"], set(self._runs)
            self._news.set()
        if answer["launches"] is None or answer["version"] <= self._version:
            return
        self._version = answer["version"]
        launches = [Launch.from_document(document) for document in answer["launches"]]
        for launch in launches:
            if launch.attempt not in self._runs:
                self._begin(launch)
        for attempt in self._runs.keys() - {launch.attempt for launch in launches}:
            if self._runs[attempt].is_finished:
                del self._runs[attempt], self._tasks[attempt]
                self._unsaid.discard(attempt)

    def _begin(self, launch: Launch) -> None:
        self._tallies.begun[launch.attempt] += 1
        self._say(launch, time.time(), None)
        task = asyncio.get_running_loop().create_task(self._end(launch, time.time()))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, launch: Launch, began_at: float) -> None:
        await asyncio.sleep(self._lasts_s)
        self._say(launch, began_at, time.time())

    def _say(self, launch: Launch, began_at: float, ended_at: float | None) -> None:
        attempt, is_over = launch.attempt, ended_at is not None
        code = 0 if is_over else None
        self._tasks[attempt] = TaskSeen(attempt, 0, self._name, 0, began_at, ended_at, code)
        lanes = () if is_over else (0,)
        self._runs[attempt] = RunSeen(attempt, self._name, launch.revision, lanes, 0, is_over, port=20000)
        self._unsaid.add(attempt)
        self._news.set()
