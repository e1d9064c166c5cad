"""What can a program ask of Swell?"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from swell.client.connection import Connection, NoServer, NotScaled, path
from swell.errors import NotFound, Rejected
from swell.state import StateFolder

if TYPE_CHECKING:
    from swell.client.remote import Remote

T = TypeVar("T")

POLL_S = 25.0  # how long one long poll stays open
RESTART_S = 5.0  # how long a server may be away before whoever waits for a job gives up, or starts it again
LOG_PATIENCE_S = 20.0  # a log is waited for longer: somebody else may be starting the server
ASK_AGAIN_S = 0.2
ENDED = frozenset({"succeeded", "failed", "cancelled"})


def job_path(ref: str | int, *parts: object, **query: object) -> str:
    if "/" in str(ref):  # it would end up at another address
        raise NotFound(f"there is no job {ref!r}: no name has a '/' in it; `swell ps` lists them")
    return path("jobs", ref, *parts, **query)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is not running."""

    code: str
    message: str
    evidence: Mapping[str, Any]
    next: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" (next: {self.next})" if self.next else "")


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a task's log."""

    start: int  #: offset of its first byte
    next: int  #: offset to read on from
    data: bytes
    is_complete: bool  #: no more can come


class Client:
    """One server. Cheap to make; one per thread."""

    def __init__(self, state: StateFolder | Remote) -> None:
        self.state = state
        self.connection = Connection(state)

    @property
    def is_elsewhere(self) -> bool:
        """Others run it: nothing of this machine, its folders, its environment, is there."""
        return not isinstance(self.state, StateFolder)

    # -- jobs --------------------------------------------------------------------------------------------------

    def submit(
        self,
        command: Sequence[str],
        *,
        name: str | None = None,
        gpus: int | str | None = None,
        gpu_memory: str | None = None,
        exclusive: bool = False,
        on_overrun: str | None = None,
        tasks: int | str | None = None,
        cpus: float | str | None = None,
        memory: str | None = None,
        array: str | None = None,
        priority: int | None = None,
        time: str | float | None = None,
        grace: str | float | None = None,
        epochs: int | None = None,
        hours: float | str | None = None,
        resize: str | None = None,
        retries: int | None = None,
        after: Sequence[str | int] = (),
        notify: str | Sequence[str] | None = None,
        notify_on: str | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        checkpoints: str | os.PathLike[str] | None = None,
        min_gpu_utilization: int | str | None = None,
        utilization_window: str | float | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        image: str | None = None,
        mounts: Sequence[str] = (),
        ports: Sequence[str] = (),
    ) -> Job:
        """Accepted, i.e. on the server's disk, when this returns."""
        if isinstance(command, str):
            raise Rejected(
                f"command must be a list of words, but is text: write ['sh', '-c', {command!r}] to use a shell"
            )
        spec = {
            "command": list(command),
            "gpus": gpus,
            "gpuMemory": gpu_memory,
            "exclusive": exclusive or None,
            "onOverrun": on_overrun,
            "tasks": tasks,
            "cpus": cpus,
            "memory": memory,
            "array": array,
            "priority": priority,
            "time": time,
            "grace": grace,
            "epochs": epochs,
            "hours": hours,
            "resize": resize,
            "retries": retries,
            "after": [str(job) for job in after] or None,
            "notify": notify if notify is None or isinstance(notify, str) else list(notify),
            "notifyOn": notify_on,
            "tensorboard": None if tensorboard is None else os.fspath(tensorboard),
            "checkpoints": None if checkpoints is None else os.fspath(checkpoints),
            "utilizationPolicy": _given({"minGpuUtilization": min_gpu_utilization, "window": utilization_window})
            or None,
            "env": dict(env) if env else None,
            "workdir": os.fspath(workdir) if workdir is not None else None,
            "image": image,
            "mounts": list(mounts) or None,
            "ports": list(ports) or None,
        }
        manifest = {
            "apiVersion": "swell/v1",
            "kind": "Job",
            "metadata": {"name": name} if name else {},
            "spec": _given(spec),
        }
        [job] = self._accepted(manifest)
        return job

    def submit_manifest(self, manifest: str | dict[str, Any]) -> list[Job]:
        """Every job of a YAML file, all or none; or of one document."""
        return self._accepted(manifest)

    def check_manifest(self, text: str) -> list[dict[str, Any]]:
        """What a file asks for after defaults; nothing is submitted."""
        specs: list[dict[str, Any]] = self._submit(text, dry_run=True)["specs"]
        return specs

    def _accepted(self, manifest: object) -> list[Job]:
        return [Job(self, document) for document in self._submit(manifest)["jobs"]]

    def _submit(self, manifest: object, *, dry_run: bool = False) -> dict[str, Any]:
        body = {"manifest": manifest, "dry_run": dry_run, **self._surroundings()}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        answer: dict[str, Any] = self.connection.json("POST", path("jobs"), body, headers=key)
        return answer

    def _surroundings(self) -> dict[str, Any]:
        """Where it is submitted from. The secrets in a laptop's environment have no place in a cluster."""
        if self.is_elsewhere:
            return {"workdir": "/"}
        umask = os.umask(0)
        os.umask(umask)
        return {"workdir": str(Path.cwd()), "umask": umask, "env": dict(os.environ)}

    def job(self, ref: str | int) -> Job:
        """By id or name; of several with one name the newest."""
        return Job(self, self.connection.json("GET", job_path(ref)))

    def jobs(
        self,
        *,
        all: bool = False,  # noqa: A002
        user: str | None = None,
        all_users: bool = False,
        limit: int | None = None,
    ) -> list[Job]:
        """One's own; another user's or everybody's on a box server, of which less is told."""
        answer = self.connection.json("GET", path("jobs", all=all, user=user, all_users=all_users, limit=limit))
        return [Job(self, document) for document in answer["jobs"]]

    def show(self, ref: str | int) -> dict[str, Any]:
        """Everything, with spec, attempts and events."""
        document: dict[str, Any] = self.connection.json("GET", job_path(ref, "show"))
        return document

    def cancel(self, ref: str | int, *, grace_s: float | None = None) -> Job:
        return Job(self, self.connection.json("POST", job_path(ref, "cancel"), {"grace_s": grace_s}))

    def cancel_several(self, refs: Sequence[str | int], *, grace_s: float | None = None) -> list[Job]:
        """All in one step, so that none starts in the room another gives back."""
        body = {"jobs": [str(ref) for ref in refs], "grace_s": grace_s}
        return [Job(self, found) for found in self.connection.json("POST", path("jobs", "cancel"), body)["jobs"]]

    def cancel_all(
        self, *, user: str | None = None, all_users: bool = False, grace_s: float | None = None
    ) -> list[Job]:
        """Every job of one's own that has not ended; an administrator says whose."""
        body = {"all": True, "user": user, "all_users": all_users, "grace_s": grace_s}
        return [Job(self, found) for found in self.connection.json("POST", path("jobs", "cancel"), body)["jobs"]]

    def hold(self, ref: str | int) -> Job:
        """It waits until it is released; a running one gives its room back at its next checkpoint."""
        return Job(self, self.connection.json("POST", job_path(ref, "hold"), {}))

    def release(self, ref: str | int) -> Job:
        return Job(self, self.connection.json("POST", job_path(ref, "release"), {}))

    def requeue(self, ref: str | int, *, now: bool = False) -> Job:
        """Start it again, from its last checkpoint when it has one."""
        return Job(self, self.connection.json("POST", job_path(ref, "requeue"), {"now": now}))

    def scale(self, ref: str | int, width: int | None, *, now: bool = False) -> Job:
        """Give it this width as soon as there is room; None: what the planner thinks best."""
        return Job(self, self.connection.json("POST", job_path(ref, "scale"), {"width": width, "now": now}))

    def scale_best(self, ref: str | None = None) -> bool:
        """At once, to all that a job could use now; None: the one that loses least. False: nobody gains by it."""
        try:
            self.connection.json("POST", "/scale" if ref is None else f"/scale/{quote(ref, safe='')}")
        except NotScaled:
            return False
        return True

    def server(self) -> dict[str, Any]:
        """Which server it is, how many jobs it knows by state, and how much work was lost so far."""
        found: dict[str, Any] = self.connection.json("GET", path("server"))
        return found

    def delete(self, ref: str | int) -> None:
        self.connection.json("DELETE", job_path(ref))

    def why(self, ref: str | int) -> Reason | None:
        return self.job(ref).why()

    def wait(self, ref: str | int, *, timeout_s: float | None = None) -> Job:
        return self.job(ref).wait(timeout_s=timeout_s)

    def patiently(self, ask: Callable[[], T], patience_s: float) -> T:
        """For those who wait: a job does not end because its server did, and a server is soon started again."""
        until = time.monotonic() + max(patience_s, self.connection.place.patience_s)
        while True:
            try:
                return ask()
            except NoServer:
                if time.monotonic() > until:
                    raise
                time.sleep(ASK_AGAIN_S)

    # -- logs, events, nodes -----------------------------------------------------------------------------------

    def logs(
        self,
        ref: str | int,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        offset: int = 0,
        since: float | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """A task's output so far, in pieces; with `follow` until it has ended."""
        while True:
            wait_s = POLL_S if follow else 0.0
            ask = partial(self.read_log, ref, rank=rank, attempt=attempt, offset=offset, since=since, wait_s=wait_s)
            piece = self.patiently(ask, LOG_PATIENCE_S) if follow else ask()
            offset, since = piece.next, None
            if piece.data:
                yield piece.data
            elif not follow or piece.is_complete:
                return

    def read_log(
        self,
        ref: str | int,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        offset: int = 0,
        since: float | None = None,
        wait_s: float = 0.0,
    ) -> LogPiece:
        """What stands at an offset (negative: so far from the end), at most a mebibyte; waits for more if told so."""
        query = {"rank": rank, "attempt": attempt, "offset": offset, "since": since, "wait_s": wait_s}
        answer = self.connection.raw("GET", job_path(ref, "logs", **query))
        start, following = int(answer.headers["Swell-Offset"]), int(answer.headers["Swell-Next-Offset"])
        return LogPiece(start, following, answer.data, answer.headers["Swell-Complete"] == "true")

    def events(self, *, job: str | int | None = None, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        answer = self.connection.json("GET", path("events", job=job, after=after, limit=limit))
        events: list[dict[str, Any]] = answer["events"]
        return events

    def follow_events(self, *, job: str | int | None = None, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Events as they happen, without end."""
        for line in self.connection.lines(path("events", "stream", job=job, after=after)):
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def place(self, ref: str | int, *, rank: int | None = None) -> dict[str, Any]:
        """Where a running task is: `node`, `pid` of its keeper, `container` (None: a plain process), `runtime`."""
        found: dict[str, Any] = self.connection.json("GET", job_path(ref, "exec", rank=rank))
        return found

    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self.connection.json("GET", path("nodes"))["nodes"]
        return nodes

    def usage(
        self,
        *,
        days: int | None = None,
        since: str | None = None,
        by: str = "user",
        user: str | None = None,
        all_users: bool = False,
    ) -> dict[str, Any]:
        """GPU-hours and CPU-hours by user and day; docs/json.md has the fields."""
        query = {"days": days, "since": since, "by": by, "user": user, "all_users": all_users}
        found: dict[str, Any] = self.connection.json("GET", path("usage", **query))
        return found

    # -- doors for the clients of other systems ----------------------------------------------------------------

    def doors(self) -> list[dict[str, Any]]:
        """Ports that are open without a token."""
        doors: list[dict[str, Any]] = self.connection.json("GET", path("doors"))["doors"]
        return doors

    def open_door(self, name: str, port: int, *, user: str | None = None) -> dict[str, Any]:
        """In the name of that user; None: one's own."""
        asked = {"name": name, "port": port, "user": user}
        door: dict[str, Any] = self.connection.json("POST", path("doors"), asked)
        return door

    def close_door(self, port: int) -> None:
        self.connection.json("DELETE", path("doors", port))

    def door_address(self, name: str, *, lasts_s: float) -> str:
        """One that needs no header, until it expires."""
        return str(
            self.connection.json("POST", path("doors", "address"), {"name": name, "lasts_s": lasts_s})["address"]
        )


class Job:
    """A job as it was when last looked at; `refresh` and `wait` look again."""

    def __init__(self, client: Client, document: dict[str, Any]) -> None:
        self._client = client
        self.document = document

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name} {self.state}>"

    @property
    def id(self) -> int:
        return int(self.document["id"])

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def state(self) -> str:
        return str(self.document["state"])

    @property
    def exit_code(self) -> int | None:
        code: int | None = self.document["exit_code"]
        return code

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def refresh(self, *, wait_s: float = 0.0) -> Job:
        """Look again; with `wait_s` as soon as something has changed, or after so long."""
        query = {"after": self.document["version"], "wait_s": wait_s} if wait_s else {}
        ask = partial(self._client.connection.json, "GET", job_path(self.id, **query))
        self.document = self._client.patiently(ask, RESTART_S) if wait_s else ask()
        return self

    def wait(self, *, timeout_s: float | None = None) -> Job:
        """Until it has ended, or so long; look at `has_ended`."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.has_ended:
            left = POLL_S if until is None else min(POLL_S, until - time.monotonic())
            if left <= 0:
                break
            self.refresh(wait_s=left)
        return self

    def why(self) -> Reason | None:
        """Why it is not running; None while it runs, or when it has succeeded."""
        reason = self.refresh().document["reason"]
        return None if reason is None else Reason(**reason)

    def logs(self, *, rank: int | None = None, follow: bool = False) -> Iterator[bytes]:
        return self._client.logs(self.id, rank=rank, follow=follow)

    def cancel(self, *, grace_s: float | None = None) -> Job:
        self.document = self._client.cancel(self.id, grace_s=grace_s).document
        return self
