"""How do server and worker learn of each other?

Two threads share one address, `POST /api/v1/workers/sync`. The *watcher* keeps a long poll open and hands every
newer desired set to the agent. The *reporter* sends what was seen, everything that has gathered in one request,
and keeps it until the server has answered.

A report that reached a server may have died with it. So every report names the server process that has been told
everything before it; another one takes nothing from it but that we are there, and when it answers, the agent tells
everything from the beginning. Half a story ("the run is finished") without the other ("its tasks ended so") would
be worse than none.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import Launch, RunSeen, TaskSeen, node_document, run_document, task_document
from swell.sockets import UnixConnection
from swell.state import StateFolder

HOLD_S = 25.0  # how long a long poll stays open; proxies cut at 30
SOON_S = 0.01  # what somebody waits for: a gang's tasks, the end of a run, a lane given back
LATER_S = 0.3  # an array's tasks in between; at 700 a second one request carries two hundred
RETRY_S = 0.3  # between attempts to reach the server
TIMEOUT_S = 40.0
COMPLAINTS_MAX = 100  # different ones in the log

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outbox:
    """What the server has not been told yet."""

    tasks: dict[tuple[AttemptId, int], TaskSeen] = field(default_factory=dict)  #: the latest word on each
    runs: dict[AttemptId, RunSeen] = field(default_factory=dict)

    is_urgent: bool = False  #: somebody waits for it

    def __bool__(self) -> bool:
        return bool(self.tasks or self.runs or self.is_urgent)

    def put_back(self, unsent: Outbox) -> None:
        """What was not sent, unless something newer has been said since."""
        self.tasks = {**unsent.tasks, **self.tasks}
        self.runs = {**unsent.runs, **self.runs}


@dataclass(frozen=True, slots=True)
class Desired:
    version: int
    launches: tuple[Launch, ...]


class ServerLink:
    """The worker's two threads, and what they hand over."""

    def __init__(self, state: StateFolder, node: Node, *, wake: Callable[[], None]) -> None:
        self._state = state
        self._node = node
        self._wake = wake
        self._mutex = threading.Condition()
        self._outbox = Outbox()
        self._desired: Desired | None = None
        self._version = 0
        self._server = ""  #: the server process that has been told everything
        self._met = ""  #: the one that answered last
        self._said: set[str] = set()  #: complaints that are in the log already
        self.store = ""  #: the store we belong to; empty: none has answered yet
        self.heard_at = time.monotonic()
        self.gpu_utilization: float | None = None  #: told with whatever is sent next; None: not measured

    def start(self) -> None:
        for target, name in ((self._watch, "watcher"), (self._report, "reporter")):
            threading.Thread(target=target, name=name, daemon=True).start()

    # -- the agent's side --------------------------------------------------------------------------------------

    def tell(self, tasks: list[TaskSeen], runs: list[RunSeen], *, is_urgent: bool = True) -> None:
        with self._mutex:
            self._outbox.is_urgent |= is_urgent
            self._outbox.tasks.update({(task.attempt, task.index): task for task in tasks})
            self._outbox.runs.update({run.attempt: run for run in runs})
            self._mutex.notify_all()

    def tell_all(self, tasks: list[TaskSeen], runs: list[RunSeen]) -> None:
        """Everything there is to say, to the server that answered last."""
        with self._mutex:
            self._outbox = Outbox()
            self._server = self._met
        self.tell(tasks, runs)

    def offer(self, node: Node) -> None:
        """The machine has changed: something else uses its GPUs."""
        with self._mutex:
            self._node = node
            self._outbox.is_urgent = True
            self._mutex.notify_all()

    def ask_again(self) -> None:
        """Be told the whole desired set with the next answer."""
        with self._mutex:
            self._version = 0
            self._outbox.is_urgent = True
            self._mutex.notify_all()

    def take(self) -> tuple[Desired | None, bool]:
        """The newest desired set, if there is one; and whether `tell_all` is due."""
        with self._mutex:
            desired, self._desired = self._desired, None
            return desired, self._met != self._server

    # -- the threads -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        line = _Line(self._state)
        while True:
            try:
                self._take_answer(line, line.post(self._document(Outbox(), hold_s=HOLD_S)))
            except Exception as error:  # noqa: BLE001  no answer ends a thread; HTTPException and OSError are the usual ones
                line.close()
                log.debug("no server: %s", error)
                time.sleep(RETRY_S)

    def _report(self) -> None:
        line = _Line(self._state)
        while True:
            with self._mutex:
                self._mutex.wait_for(lambda: bool(self._outbox))
                self._mutex.wait_for(lambda: self._outbox.is_urgent, timeout=LATER_S)
                sending, self._outbox = self._outbox, Outbox()
            try:
                self._take_answer(line, line.post(self._document(sending, hold_s=0)))
                time.sleep(SOON_S)
            except Exception as error:  # noqa: BLE001  no answer ends a thread; HTTPException and OSError are the usual ones
                line.close()
                log.debug("not reported yet: %s", error)
                with self._mutex:
                    self._outbox.put_back(sending)
                time.sleep(RETRY_S)

    def _document(self, outbox: Outbox, *, hold_s: float) -> dict[str, Any]:
        return {
            "node": node_document(self._node),
            "version": self._version,
            "store": self.store,
            "server": self._server,
            "tasks": [task_document(task) for task in outbox.tasks.values()],
            "runs": [run_document(run) for run in outbox.runs.values()],
            "gpu_utilization": self.gpu_utilization,
            "hold_s": hold_s,
        }

    def _take_answer(self, line: _Line, answer: dict[str, Any]) -> None:
        with self._mutex:
            if self.store and answer["store"] != self.store:
                raise ValueError(f"this server keeps store {answer['store']}, ours is {self.store}: ignored")
            self.store = answer["store"]
            self.heard_at = time.monotonic()
            self._met = answer["server"]
            is_other = self._met != self._server
        launches = answer["launches"]
        if launches is not None:
            parsed = tuple([launch for document in launches if (launch := self._parse(document)) is not None])
            for digest in {launch.environment for launch in parsed}:
                keep_environment(self._state, digest, line)
            with self._mutex:
                if answer["version"] > self._version:
                    self._version = answer["version"]
                    self._desired = Desired(answer["version"], parsed)
        if launches is not None or is_other:
            self._wake()

    def _parse(self, document: Any) -> Launch | None:
        """None: it cannot be read. One job's launch must not keep the others' from being heard."""
        try:
            return Launch.from_document(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"a launch of the server's cannot be read, and is left out: {error!r}"
            if text not in self._said and len(self._said) < COMPLAINTS_MAX:
                self._said.add(text)
                log.error("%s", text, exc_info=error)
            return None


def keep_environment(state: StateFolder, digest: str, line: _Line) -> None:
    """Fetched once, kept beside the tasks (mode 0600), so that an array goes on while the server is away."""
    path = state.tasks / ".environments" / digest
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        state.write_json(path, line.get(f"/api/v1/workers/environments/{digest}"))


class _Line:
    """One connection to whatever server the state folder names now."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def post(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", "/api/v1/workers/sync", json.dumps(document).encode())

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        if self._connection is None and self._state.socket is not None:
            self._connection = UnixConnection(self._state.socket, timeout=TIMEOUT_S)
        if self._connection is None:
            address = urlsplit(str(self._state.read_json(self._state.server_file).get("url", "")))
            if not address.hostname:
                raise OSError(f"{self._state.server_file} names no server")
            self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_S)
        token = self._state.worker_token.read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise OSError(f"the server answers {response.status}: {data[:200]!r}")
        answer: dict[str, Any] = json.loads(data)
        return answer
