"""What a kubelet has of one pod's log, and how it shows it: a file for each life of the container."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .storage import Key, Refusal, Storage
from .wire import Cut, Request, Wire, chunk

NANO = 1_000_000_000
Break = tuple[int, bool]  # after how many bytes a stream breaks, and whether it then ends as if in order


@dataclass(frozen=True)
class Entry:
    """A line of the runtime's own file: stamped; partial where the program's line goes on, or never ended."""

    at: int
    data: bytes
    is_partial: bool = False


@dataclass
class Life:
    entries: list[Entry] = field(default_factory=list)
    is_over: bool = False

    @property
    def text(self) -> bytes:
        return b"".join(entry.data + (b"" if entry.is_partial else b"\n") for entry in self.entries)


class PodLogs:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.live_attempts = [Life()]
        self.has_kubelet = True
        self.streams = 0  # how many were asked for
        self.breaks: Callable[[bool], Break | None] = lambda follow: None

    def write(self, at: int, data: bytes, *, is_partial: bool = False) -> None:
        with self.changed:
            self.live_attempts[-1].entries.append(Entry(at, data, is_partial))
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.live_attempts[-1].is_over = True
            self.changed.notify_all()

    def restart(self) -> None:
        self.end()
        with self.changed:
            self.live_attempts.append(Life())

    @property
    def text(self) -> bytes:
        """As it should be kept: no line is of two lives."""
        whole = b""
        for live in self.live_attempts:
            glue = b"\n" if whole and not whole.endswith(b"\n") and live.text else b""
            whole += glue + live.text
        return whole

    def serve(self, request: Request, wire: Wire, stopping: threading.Event) -> None:
        with self.changed:
            self.streams += 1
            if not self.has_kubelet:
                raise Refusal(500, "InternalError", 'Get "https://10.0.0.9:10250/containerLogs": connection refused')
            if "previous" in request.query and len(self.live_attempts) < 2:
                raise Refusal(400, "BadRequest", 'previous terminated container "main" in pod "p" not found')
            live = self.live_attempts[-2 if "previous" in request.query else -1]
        assert request.query["timestamps"] == "true"
        follow = "follow" in request.query
        wire.begin("text/plain")
        try:
            sender = _Sender(wire, self.breaks(follow))
            for line in self._lines(live, _since(request), follow, wire, stopping):
                sender.send(line)
        except _EndedEarly:
            pass
        wire.end()

    def _lines(self, live: Life, since: int, follow: bool, wire: Wire, stopping: threading.Event) -> Iterator[bytes]:
        """As cri-client's ReadLogs does: what goes on an unfinished line carries no timestamp."""
        position, is_new_line = 0, True
        while not stopping.is_set():
            with self.changed:
                fresh, is_over = live.entries[position:], live.is_over
                if not fresh and follow and not is_over:
                    self.changed.wait(0.02)
            position += len(fresh)
            for entry in fresh:
                if entry.at >= since:
                    stamp = stamped(entry.at) + b" " if is_new_line else b""
                    yield stamp + entry.data + (b"" if entry.is_partial else b"\n")
                is_new_line = not entry.is_partial
            if not fresh and (is_over or not follow):
                return
            if not fresh and wire.has_gone():
                raise Cut


class _EndedEarly(Exception):
    pass


class _Sender:
    def __init__(self, wire: Wire, broken: Break | None) -> None:
        self._wire = wire
        self._left, self._is_orderly = broken or (None, False)

    def send(self, data: bytes) -> None:
        if self._left is None:
            return self._wire.raw(chunk(data))
        if len(data) <= self._left:
            self._left -= len(data)
            return self._wire.raw(chunk(data))
        if self._left:
            self._wire.raw(chunk(data[: self._left]))
        raise _EndedEarly if self._is_orderly else Cut


def stamped(at: int) -> bytes:
    moment = datetime.datetime.fromtimestamp(at // NANO, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % NANO:09}Z".encode()


def _since(request: Request) -> int:
    text = request.query.get("sinceTime")
    return int(datetime.datetime.fromisoformat(text).timestamp()) * NANO if text else 0


class RunningPod:
    """A pod of the fake API server whose container begins, speaks, begins anew and ends."""

    def __init__(self, server: Any, name: str = "p", *, policy: str = "Never", status: bool = True) -> None:
        self._server = server
        self.key: Key = ("ml", name)
        self.logs = PodLogs()
        server.pod_logs[self.key] = self.logs
        made = self._storage.create("pods", self.key, self._document(policy, {}))
        self.uid: str = made["metadata"]["uid"]
        self._policy = policy
        if status:
            self.show({"running": {}})

    @property
    def _storage(self) -> Storage:
        storage: Storage = self._server.storage
        return storage

    def show(self, state: dict[str, Any], phase: str = "Running") -> None:
        restarts = len(self.logs.live_attempts) - 1
        container = {"name": "main", "restartCount": restarts, "state": state}
        self._storage.update("pods", self.key, self._document(self._policy, {"phase": phase}, container))

    def end(self, phase: str = "Succeeded") -> None:
        self.logs.end()
        self.show({"terminated": {"exitCode": 0}}, phase)

    def restart(self) -> None:
        self.logs.restart()
        self.show({"running": {}})

    def delete(self) -> None:
        self._storage.delete("pods", self.key, {})

    def _document(self, policy: str, status: dict[str, Any], *containers: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.key[1], "namespace": self.key[0]},
            "spec": {"restartPolicy": policy, "containers": [{"name": "main"}, {"name": "side"}]},
            "status": {**status, "containerStatuses": list(containers)},
        }
