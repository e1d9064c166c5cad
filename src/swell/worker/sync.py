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
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from swell.machine.boot_clock import clock
from swell.machine.certificate import read_fingerprint
from swell.machine.server_address import ServerAddress, SocketAddress, UrlAddress, read_url
from swell.machine.worker_folder import WorkerFolder
from swell.machine.worker_options import UNIX, WorkerOptions
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import (
    KEY_HEADER,
    NODE_HEADER,
    Launch,
    RunSeen,
    TaskSeen,
    WorkerTerms,
    node_document,
    run_document,
    task_document,
)
from swell.worker.backend import find_backend
from swell.worker.downloads import FileRefusal
from swell.worker.last_heard import HeardNote

SOON_S = 0.01  # what somebody waits for: a gang's tasks, the end of a run, a lane given back
LATER_S = 0.3  # an array's tasks in between; at 700 a second one request carries two hundred
RETRY_S = 0.3  # between attempts to reach the server
TIMEOUT_S = 40.0
COMPLAINTS_MAX = 100  # different ones in the log
PORTION_BYTES = 1 << 20  # of one report, about; servers take four times that, because the last item may be large
TASK_BYTES, RUN_BYTES, LANE_BYTES = 150, 500, 8  # of each beside its words
CHARACTER_BYTES = 6  # of a character of a quoted text, at most: JSON writes it as \uXXXX

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class NotReached(OSError):
    """The server did not answer, or not to the end."""


class Refused(OSError):
    """The server knows who we are, or does not, and does not take what we say."""


@dataclass(slots=True)
class Outbox:
    """What the server has not been told yet."""

    tasks: dict[tuple[AttemptId, int], TaskSeen] = field(default_factory=dict)  #: the latest word on each
    runs: dict[AttemptId, RunSeen] = field(default_factory=dict)

    is_urgent: bool = False  #: somebody waits for it

    def __bool__(self) -> bool:
        return bool(self.tasks or self.runs or self.is_urgent)

    def split(self) -> tuple[Outbox, Outbox]:
        """What one request carries, and the rest. Runs come after all tasks: "it is finished" ends their story."""
        tasks, left = _take_out(self.tasks, _task_bytes, PORTION_BYTES)
        runs, _ = _take_out(self.runs, _run_bytes, left)
        return Outbox(tasks, runs), Outbox(self.tasks, self.runs, is_urgent=bool(self.tasks or self.runs))

    def put_back(self, unsent: Outbox) -> None:
        """What was not sent, unless something newer has been said since."""
        self.tasks = {**unsent.tasks, **self.tasks}
        self.runs = {**unsent.runs, **self.runs}


def _take_out(gathered: dict[K, V], size: Callable[[V], int], left: int) -> tuple[dict[K, V], int]:
    """The first of them, until so many bytes are used up; and how many are left. A million are not looked at."""
    portion: dict[K, V] = {}
    for key, seen in gathered.items():
        if left <= 0:
            break
        portion[key] = seen
        left -= size(seen)
    for key in portion:
        del gathered[key]
    return portion, left


def _task_bytes(task: TaskSeen) -> int:
    return TASK_BYTES + CHARACTER_BYTES * len(task.problem)


def _run_bytes(run: RunSeen) -> int:
    return RUN_BYTES + CHARACTER_BYTES * len(run.trouble) + len(run.held) + LANE_BYTES * len(run.in_use)


@dataclass(frozen=True, slots=True)
class Desired:
    version: int
    launches: tuple[Launch, ...]


class ServerLink:
    """The worker's two threads, and what they hand over."""

    def __init__(
        self,
        options: WorkerOptions,
        folder: WorkerFolder,
        server: ServerAddress,
        node: Node,
        *,
        boot_id: str,
        wake: Callable[[], None],
    ) -> None:
        self._options = options
        self._folder = folder
        self._address = server
        self._key = folder.secret_key() if options.is_remote else ""
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
        self._backend = find_backend(os.environ) if options.is_remote else None  #: None: none that we know
        self._note = HeardNote(folder, boot_id) if options.is_remote else None  #: None: it holds no lease
        self.heard_at = clock() if self._note is None else self._note.noted()
        self.gpu_utilization: float | None = None  #: told with whatever is sent next; None: not measured
        self.is_leaving = False  #: told with whatever is sent next: nothing new may come here
        self._leaves_for_good = False
        self._is_sending = False  #: what was in the outbox is on its way
        self.left_at_version: int | None = None  #: of the desired set when the server knew that; None: it does not yet
        self._is_gone = False  #: it was told that we have left
        self._is_away = False  #: it did not answer the last time, and the log says so
        self.refusal = ""  #: what the server said last when it refused us; empty: it took what we sent

    def start(self) -> None:
        for target, name in ((self._watch, "watcher"), (self._report, "reporter")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def connection(self) -> WorkerConnection:
        """A connection of its own, for one thread."""
        return WorkerConnection(self._address, self._headers)

    def _headers(self) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self._options.token_file.read_text().strip()}"}
        return {**shown, NODE_HEADER: self._node.id, KEY_HEADER: self._key} if self._options.is_remote else shown

    # -- the agent's side --------------------------------------------------------------------------------------

    def tell(self, tasks: list[TaskSeen], runs: list[RunSeen], *, is_urgent: bool = True) -> None:
        with self._mutex:
            self._outbox.is_urgent |= is_urgent
            self._outbox.tasks.update({(task.attempt, task.index): task.bounded() for task in tasks})
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
            self._node = replace(node, address=node.address or self._node.address)
            self._outbox.is_urgent = True
            self._mutex.notify_all()

    def set_leaving(self, *, is_leaving: bool, for_good: bool) -> None:
        """Nothing new may come here: for a while, or for good."""
        with self._mutex:
            if self.is_leaving == is_leaving and self._leaves_for_good == for_good:
                return
            self.is_leaving, self._leaves_for_good = is_leaving, for_good
            self._outbox.is_urgent = True
            self._mutex.notify_all()

    @property
    def has_told_all(self) -> bool:
        with self._mutex:
            return not self._outbox and not self._is_sending

    def leave(self) -> bool:
        """True: the server knows that we are gone, or never will. Whatever else we said after it would be a return."""
        line = self.connection()
        with self._mutex:
            if self._is_sending:
                return False
            self._is_gone = True
        try:
            line.leave()
        except Refused:
            return True
        except Exception as error:  # noqa: BLE001  it is tried again
            log.debug("not heard: %s", error)
            with self._mutex:
                self._is_gone = False
                self._mutex.notify_all()
            return False
        finally:
            line.close()
        return True

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
        line = self.connection()
        while True:
            if self._is_gone:
                time.sleep(RETRY_S)
                continue
            try:
                asked_at = clock()
                self._take_answer(line, line.post(self._document(Outbox(), hold_s=self._options.check_in_s)), asked_at)
                self._note_address(line.local_address)
            except Exception as error:  # noqa: BLE001  no answer ends a thread; HTTPException and OSError are the usual ones
                line.close()
                log.debug("no server: %s", error)
                self._note_failure(error)
                time.sleep(RETRY_S)

    def _note_leaving(self, *, was_leaving: bool) -> None:
        """From the answer on to a request that said so, no new launch comes."""
        if was_leaving and self.left_at_version is None:
            with self._mutex:
                self.left_at_version = self._version
            self._wake()

    def _note_failure(self, error: Exception) -> None:
        """Said once: a token that was revoked stays so, and a server that is away is away for a while."""
        if isinstance(error, Refused):
            if str(error) != self.refusal:
                self.refusal = str(error)
                log.warning("the server refuses this worker: %s", error)
        elif isinstance(error, NotReached):
            if self._options.is_remote and not self._is_away:
                self._is_away = True
                log.warning("the server %s cannot be reached, and is tried again: %s", self._options.server, error)
        else:
            self._complain(f"the exchange with the server failed, and is tried again: {error!r}", error)

    def _complain(self, text: str, error: Exception) -> None:
        """Once."""
        if text not in self._said and len(self._said) < COMPLAINTS_MAX:
            self._said.add(text)
            log.error("%s", text, exc_info=error)

    def _report(self) -> None:
        line = self.connection()
        while True:
            with self._mutex:
                self._mutex.wait_for(lambda: bool(self._outbox) and not self._is_gone)
                self._mutex.wait_for(lambda: self._outbox.is_urgent, timeout=LATER_S)
                if self._is_gone:
                    continue
                sending, self._outbox = self._outbox.split()
                self._is_sending = True
            try:
                asked_at, was_leaving = clock(), self._leaves_for_good
                self._take_answer(line, line.post(self._document(sending, hold_s=0)), asked_at)
                self._is_sending = False
                self._note_leaving(was_leaving=was_leaving)
                time.sleep(SOON_S)
            except Exception as error:  # noqa: BLE001  no answer ends a thread; HTTPException and OSError are the usual ones
                line.close()
                log.debug("the report could not be sent yet: %s", error)
                self._note_failure(error)
                with self._mutex:
                    self._outbox.put_back(sending)
                    self._is_sending = False
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
            **self._terms(),
        }

    def _terms(self) -> dict[str, Any]:
        """On which this machine is offered, and its clock; the worker of the server's own machine has the server's."""
        options = self._options
        if not options.is_remote:
            return {}
        terms = WorkerTerms(options.lease_s, options.tag or "", options.tag_exclusive, options.preemptible)
        told = asdict(replace(terms, is_leaving=self.is_leaving, group=options.group or "", backend=self._backend))
        newer = [name for name in ("group", "backend") if not told[name]]  # a server of before refuses them
        return {"now": time.time(), "terms": {name: value for name, value in told.items() if name not in newer}}

    def _note_address(self, address: str) -> None:
        """Tasks elsewhere reach this machine where the server does, unless somebody has said otherwise."""
        if not self._node.address and address:
            self.offer(replace(self._node, address=address))

    def _take_answer(self, line: WorkerConnection, answer: dict[str, Any], asked_at: float | None = None) -> None:
        """`asked_at`: when the request was sent, from which the server counts our lease at the earliest."""
        with self._mutex:
            if self.store and answer["store"] != self.store:
                raise ValueError(
                    f"this server keeps store {answer['store']}, this worker has {self.store}; its answer is ignored"
                )
            self.store = answer["store"]
            self.heard_at = max(self.heard_at, clock() if asked_at is None else asked_at)
            self.refusal = ""
            self._is_away = False
            self._met = answer["server"]
            is_other = self._met != self._server
        if self._note is not None:
            self._note.write(self.heard_at)
        launches = answer["launches"]
        if launches is not None:
            parsed = tuple([launch for document in launches if (launch := self._parse(document)) is not None])
            for digest in {launch.environment for launch in parsed}:
                keep_environment(self._folder, digest, line)
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
            self._complain(f"a launch of the server's cannot be read and is skipped: {error!r}", error)
            return None


def keep_environment(folder: WorkerFolder, digest: str, line: WorkerConnection) -> None:
    """Fetched once, kept beside the tasks (mode 0600), so that an array goes on while the server is away."""
    path = folder.environments / digest
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        folder.write_json(path, line.get(f"/api/v1/workers/environments/{digest}"))


def address_of(options: WorkerOptions) -> ServerAddress:
    if not options.is_remote:
        return SocketAddress(Path(options.server.removeprefix(UNIX)))
    url = read_url(options.server, insecure_http=options.insecure_http)
    fingerprint = None if options.fingerprint is None else read_fingerprint(options.fingerprint)
    return UrlAddress(url, options.ca, fingerprint)


def _local_address(connected: socket.socket) -> str:
    name = connected.getsockname()
    return str(name[0]) if isinstance(name, tuple) else ""


class WorkerConnection:
    """One connection to the server, opened again when it was lost."""

    def __init__(self, server: ServerAddress, headers: Callable[[], dict[str, str]]) -> None:
        self._server = server
        self._headers = headers  #: who asks; read for each request, because a token may be replaced
        self._connection: http.client.HTTPConnection | None = None
        self.local_address = ""  #: of this machine, on the way to the server; empty: not known yet

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def post(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", "/api/v1/workers/sync", json.dumps(document).encode())

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path, None)

    def send_logs(self, body: bytes) -> list[int | None]:
        sizes: list[int | None] = self._ask("POST", "/api/v1/workers/logs", body)["sizes"]
        return sizes

    def get_bytes(self, path: str) -> bytes:
        return self._for_files("GET", path, None)

    def post_bytes(self, path: str, body: bytes) -> bytes:
        return self._for_files("POST", path, body)

    def _for_files(self, method: str, path: str, body: bytes | None) -> bytes:
        """Raises `FileRefusal` where asking again would not help."""
        status, data = self._exchange(method, path, body)
        if status in (403, 404, 409, 413, 422, 429):
            raise FileRefusal(_words(data))
        if status != 200:
            raise OSError(f"the server answered {status}: {data[:200]!r}")
        return data

    def leave(self) -> None:
        """The server forgets this worker, which has nothing left to do."""
        self._ask("POST", "/api/v1/workers/leave", b"{}")

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", **self._headers()}
        try:
            if self._connection is None:
                self._connection = self._server.connect(timeout=TIMEOUT_S)
            self._connection.request(method, path, body, headers)
            if self.local_address == "" and self._connection.sock is not None:
                self.local_address = _local_address(self._connection.sock)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReached(str(error) or type(error).__name__) from error

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        status, data = self._exchange(method, path, body)
        if status in (401, 403, 409, 422):
            raise Refused(f"{status}: {data[:500].decode(errors='replace')}")
        if status != 200:
            raise OSError(f"the server answered {status}: {data[:200]!r}")
        answer: dict[str, Any] = json.loads(data)
        return answer


def _words(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return data[:500].decode(errors="replace")
