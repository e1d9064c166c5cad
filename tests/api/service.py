"""The whole API on loopback, in this process, with a worker that is in the test's hands."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from swell.api import Measured, Services, create_app
from swell.api.audit import Audit
from swell.api.box import Box
from swell.api.connections import ClientConnection
from swell.api.members import Members
from swell.api.services import ClusterCalls
from swell.config import Config
from swell.controller import Controller, Loop
from swell.controller.clock import Clock, SystemClock
from swell.controller.disk_limit import DiskLimit
from swell.controller.diskmeter import DiskMeter
from swell.controller.jobsecrets import JobSecrets
from swell.controller.reporting import Reporting
from swell.engines.workers import WorkersEngine
from swell.files.chunk_store import ChunkStore
from swell.machine.sockets import listen_on
from swell.machine.state_folder import StateFolder
from swell.manifests import Manifest
from swell.metrics import Metrics
from swell.model.cluster import Device, Node, PriorityClass
from swell.model.identity import Identity
from swell.model.job import AttemptId
from swell.model.launch import RunSeen, TaskSeen, node_document, run_document, task_document
from swell.store import open_store

JOB_SECRET = "job-secret"
USER, WORKER = "the-users-token", "the-workers-token"
WAIT_S = 30.0  # for what takes a moment; it measures nothing, and a loaded machine is slow


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, kind and message of a refusal."""
        return self.status, self.json["error"]["kind"], self.json["error"]["message"]


class QuietCluster:
    """A Kubernetes cluster that refuses nothing and has no names for anything."""

    def __init__(self, quotas: Mapping[str, tuple[str, str]] | None = None) -> None:
        self.quotas = quotas or {}
        self.said: str | None = None  #: why Swell cannot act there
        self.odd: list[str] = []  #: what cannot be read
        self.deleted: list[Any] = []  #: objects that came by kubectl
        self.ended: list[dict[str, Any]] = []  #: objects that have the name of whatever is submitted

    def try_out(
        self, manifests: Sequence[Manifest], *, identity: Identity | None = None, replaces: bool = False
    ) -> None:
        """It would create all of them."""

    def ended_objects(self, manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
        return self.ended

    def with_volumes(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """None of them has any."""
        return list(manifests)

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        self.deleted.append(reference)

    def priority_classes(self) -> Mapping[str, PriorityClass]:
        return {}

    def gpu_quota(self, namespace: str) -> tuple[str, str] | None:
        return self.quotas.get(namespace)

    def intake(self) -> str:
        return "nobody applies anything"

    def trouble(self) -> str | None:
        return self.said

    def unreadable(self) -> list[str]:
        return self.odd

    def pod_of(self, attempt: AttemptId, index: int) -> tuple[str, str] | None:
        return None


class Service:
    """Store, controller, engine and HTTP as the server puts them together, without its process."""

    def __init__(
        self,
        folder: Path,
        *,
        box: Box | None = None,
        members: Members | None = None,
        config: Config | None = None,
        cluster: ClusterCalls | None = None,
        clock: Clock | None = None,
        audit: Audit | None = None,
        files: ChunkStore | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.state = StateFolder(folder)
        self.state.prepare()
        self.store = open_store(self.state.database, clock.now)
        self.job_secrets = JobSecrets(JOB_SECRET, began=self.store.attempt_made_at)
        engine = WorkersEngine(self.state.tasks, wake=lambda: self.controller.look())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        reporting = Reporting(f"http://{self.host}", self.job_secrets.of, str(self.state.checkpoints))
        metrics = Metrics()
        self.store.on_commit = metrics.committed
        limits_of = (config or Config()).limits_of
        self.disk = DiskMeter(
            self.state.checkpoints,
            self.state.tasks,
            self.store.owners,
            lambda user: limits_of(user).disk_bytes,
            lambda: self.controller.look(),
        )
        self.controller = Controller(
            self.store,
            engine,
            clock,
            keep_s=None,
            limits=limits_of,
            disk=DiskLimit(self.disk.use, self.disk.sizes),
            forgotten=self.disk.forget,
            reporting=reporting,
            watch=metrics.cycled,
        )
        self.stopped = threading.Event()
        self.is_ready = True
        self.services = Services(
            store=self.store,
            controller=self.controller,
            engine=engine,
            workers=engine,
            cluster=cluster,
            owner="ann",
            token=USER,
            worker_token=WORKER,
            job_secrets=self.job_secrets,
            checkpoints=self.controller.checkpoint_folder,
            url=f"http://{self.host}",
            hosts=frozenset({self.host, f"localhost:{self.port}"}),
            server_id="one",
            stop=self.stopped.set,
            metrics=metrics,
            config=config or Config(),
            disk=self.disk,
            box=box,
            members=members,
            is_ready=lambda: self.is_ready,
            now=clock.now,
            audit=audit or Audit(),
            files=files,
        )
        self.store.listen(self.services.committed.ring)
        engine.on_desired = self.services.desired.ring
        self.controller.on_control = self.services.control.ring
        self.app = create_app(self.services)
        self._http = _http_server(Measured(self.app, metrics))
        engine.open(self.controller.load())
        self._cycles = Loop(self.controller, clock)
        self._cycles.start()
        self.loop = asyncio.new_event_loop()
        serving = self._http.serve(sockets=[self._listener, listen_on(self.state.server_socket, mode=0o600)])
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(serving,), daemon=True)
        self._thread.start()
        self.worker = FakeWorker(self)

    def close(self) -> None:
        self.services.committed.close()
        self.services.desired.close()
        self.services.control.close()
        self.services.doorkeeper.close_all()
        self._http.should_exit = True
        self._thread.join(WAIT_S)
        self._cycles.close()
        self.store.close()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = USER,
        host: str | None = None,
        headers: dict[str, str] | None = None,
        prefix: str = "/api/v1",
    ) -> Answer:
        """One request on a connection of its own. A body that is bytes is sent as it is."""
        connection = self.connect()
        try:
            connection.putrequest(method, f"{prefix}{path}", skip_host=True)
            connection.putheader("Host", self.host if host is None else host)
            if token is not None:
                connection.putheader("Authorization", f"Bearer {token}")
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            if data is not None:
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def submit(self, name: str = "job", **spec: Any) -> int:
        answer = self.ask("POST", "/jobs", submission(name, **spec))
        assert answer.status == 201, answer.data
        return int(answer.json["jobs"][0]["id"])

    def until(self, job: int, *states: str) -> dict[str, Any]:
        """The job as soon as it is in one of these states."""
        return self.until_true(job, lambda found: found["state"] in states)

    def until_true(self, job: int, is_true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The job as soon as it is so; long polls, bounded."""
        end = time.monotonic() + WAIT_S
        found = self.ask("GET", f"/jobs/{job}").json
        while not is_true(found):
            assert time.monotonic() < end, f"job {job} is still {found}"
            found = self.ask("GET", f"/jobs/{job}?after={found['version']}&wait_s=2").json
        return dict(found)

    def until_planned_without(self, job: int) -> None:
        """Until a plan was made in which it holds nothing any more: that is a moment after its end is recorded."""
        end = time.monotonic() + WAIT_S
        while job in self.services.controller.snapshot.jobs_by_id:
            assert time.monotonic() < end, f"job {job} is still planned for"
            os.sched_yield()

    def until_waiting(self) -> None:
        """Until somebody waits for the next commit."""
        end = time.monotonic() + WAIT_S
        while not self.services.committed._waiting:
            assert time.monotonic() < end, "nobody waits"
            os.sched_yield()


def _http_server(app: Any) -> uvicorn.Server:
    quiet: dict[str, Any] = {"lifespan": "off", "log_config": None, "access_log": False}
    return uvicorn.Server(uvicorn.Config(app, http=ClientConnection, ws="none", proxy_headers=False, **quiet))


def submission(name: str = "job", *, env: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Also of a job that waits for ever."""
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": name}}
    manifest = {**document, "spec": {"command": ["true"], **spec}}
    return {"manifest": manifest, "workdir": "/work", "env": env or {}, "wait_for_nodes": True}


class FakeWorker:
    """Reports what a test tells it to; runs nothing."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.node = Node("box", 64_000, 64_000, tuple(Device(f"sim-{n}", 16, "sim", simulated=True) for n in range(4)))
        self.version = 0

    def sync(self, tasks: tuple[TaskSeen, ...] = (), runs: tuple[RunSeen, ...] = (), hold_s: float = 0) -> Any:
        body = {
            "node": node_document(self.node),
            "server": self._service.services.server_id,
            "version": self.version,
            "tasks": [task_document(task) for task in tasks],
            "runs": [run_document(run) for run in runs],
            "hold_s": hold_s,
        }
        answer = self._service.ask("POST", "/workers/sync", body, token=WORKER)
        assert answer.status == 200, answer.data
        return answer.json

    def until_asked(self, job: int, attempt: int = 1, *, is_stopping: bool = False) -> dict[str, Any]:
        """The launch of a job, as soon as the server wants it so."""
        end = time.monotonic() + WAIT_S
        while True:
            answer = self.sync(hold_s=2)
            for launch in answer["launches"] or ():
                if (launch["attempt"], launch["is_stopping"]) == (f"{job}.{attempt}", is_stopping):
                    return dict(launch)
            assert time.monotonic() < end, f"the server never asked for job {job}"
            self.version = answer["version"] if answer["launches"] is not None else self.version

    def begin(self, job: int, log: bytes = b"", *, attempt: int = 1) -> None:
        """As if it ran: its first task is seen, its log is there."""
        launch = self.until_asked(job, attempt)
        for lane in launch["lanes"]:
            folder = self._service.state.tasks / launch["attempt"] / str(lane["number"])
            folder.mkdir(parents=True)
            (folder / "log").write_bytes(log)
        lives, now = AttemptId(job, attempt), self._service.services.now()
        self.sync(tuple(TaskSeen(lives, n, "box", n, now) for n in range(len(launch["lanes"]))))
        self._service.until(job, "running")

    def write(self, job: int, data: bytes, rank: int = 0) -> None:
        with (self._service.state.tasks / f"{job}.1" / str(rank) / "log").open("ab") as file:
            file.write(data)

    def end(self, job: int, code: int = 0, *, attempt: int = 1) -> None:
        self.gone(job, code, attempt=attempt)
        self._service.until(job, "succeeded", "failed", "cancelled")
        self._service.until_planned_without(job)

    def gone(self, job: int, code: int, *, attempt: int = 1, cause: str = "") -> None:
        """Its one task has ended; whether the job has is the server's to say."""
        lived, now = AttemptId(job, attempt), self._service.services.now()
        task = TaskSeen(lived, 0, "box", 0, now, now, code, cause)
        self.sync((task,), (RunSeen(lived, "box", 1, (), 0, True),))
