"""How is one pod's log read to its end?

Round by round: look at the pod, open a stream where the last one ended, keep what it brings, until the pod has ended
and a stream that was opened after that brought nothing new. That a stream ended in order proves little: the API
server also ends one in order when it loses the kubelet. Logs are asked for by name, and the next pod may have the same
one: so the pod is looked at before each stream, and again before anything of it is kept.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.connection import Abort
from swell.engines.kubernetes.client.failures import ServerError
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.logs.file import LogFile
from swell.engines.kubernetes.logs.lines import LineReader
from swell.engines.kubernetes.watch.reflector import Backoff, WatchPace
from swell.errors import NotFound, Rejected, SwellError
from swell.model.job import AttemptId

logger = logging.getLogger(__name__)

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
ENDED_TRIES_MAX = 8  # some twenty seconds for the log of a pod that has ended; its kubelet was there a moment ago
MUTE_AFTER = 3  # failures of a node that has never given a log
MUTE_S = 300.0  # then it is tried again: its kubelet may only have been late
PACE = WatchPace(first_s=0.2, cap_s=15.0)


@dataclass(frozen=True, slots=True)
class PodLog:
    """Whose log, and of which task it is."""

    attempt: AttemptId
    index: int
    namespace: str
    pod: str
    uid: str
    node: str
    container: str | None = None  #: None: the one that `kubectl logs` shows


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """What of a pod's state matters to its log."""

    uid: str
    container: str
    restarts: int  #: of the container
    has_begun: bool
    is_ended: bool  #: the container will not write any more

    @classmethod
    def parse(cls, pod: dict[str, Any], container: str | None) -> ContainerRun:
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        name = container or metadata.get("annotations", {}).get(DEFAULT_CONTAINER) or spec["containers"][0]["name"]
        seen: dict[str, Any] = next((each for each in status.get("containerStatuses", ()) if each["name"] == name), {})
        state, last = seen.get("state", {}), seen.get("lastState", {})
        has_begun = "running" in state or "terminated" in state or "terminated" in last
        is_ended = status.get("phase") in ("Succeeded", "Failed") or ("terminated" in state and _is_final(pod, state))
        return cls(metadata["uid"], name, seen.get("restartCount", 0), has_begun, is_ended)


def _is_final(pod: dict[str, Any], state: dict[str, Any]) -> bool:
    policy = pod["spec"].get("restartPolicy", "Always")
    is_done = policy == "Never" or (policy == "OnFailure" and state["terminated"].get("exitCode") == 0)
    return is_done or "deletionTimestamp" in pod["metadata"]


class Nodes:
    """Which nodes give no logs at all? Simulated ones have no kubelet; asking them for each pod would be noise."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._mute_until: dict[str, float] = {}
        self._speaking: set[str] = set()

    def is_mute(self, node: str) -> bool:
        with self._lock:
            return self._mute_until.get(node, 0.0) > self._monotonic()

    def failed(self, node: str) -> None:
        with self._lock:
            if node in self._speaking:
                return
            self._failures[node] = self._failures.get(node, 0) + 1
            if self._failures[node] >= MUTE_AFTER:
                self._mute_until[node] = self._monotonic() + MUTE_S

    def worked(self, node: str) -> None:
        with self._lock:
            self._speaking.add(node)


class _Outdated(Exception):
    """A stream may be of another pod of that name, or of the container's next life."""


class LogFollower:
    """One pod's log, read in one thread (`run`); everything else may be called from others."""

    def __init__(self, port: ApiClient, folder: Path, source: PodLog, nodes: Nodes, pace: WatchPace) -> None:
        self.source = source
        self.is_complete = False  #: all of it is kept, or as much as there will ever be
        self.displaced_at: float | None = None  #: when another pod first asked for its place; None: none has
        self._port = port
        self._folder = folder
        self._nodes = nodes
        self._backoff = Backoff(pace, random.Random())  # noqa: S311  spreads load, hides nothing
        self._abort = Abort()
        self._awake = threading.Event()
        self._file: LogFile | None = None
        self._failures = 0  #: in a row, of streams
        self._has_news = False

    def stop(self) -> None:
        self._abort.set()
        self._awake.set()

    def nudge(self) -> None:
        """Do not wait any longer before you look again."""
        self._awake.set()

    def run(self) -> None:
        while not (self._abort.is_set or self.is_complete or self._nodes.is_mute(self.source.node)):
            self._has_news = False
            try:
                self._round()
            except Exception as error:  # noqa: BLE001  a thread that ends would lose the log
                self._failed(error)
            if self._has_news:
                self._backoff.reset()
            if not self.is_complete:
                self._awake.wait(self._backoff.next_s())
                self._awake.clear()
        self._close()

    # -- one round -------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        run = self._look()
        if run is None or run.uid != self.source.uid:
            self._complete()
        elif run.has_begun:
            with contextlib.suppress(_Outdated):
                self._read(run)
        elif run.is_ended:  # it never ran: no node would have it, or no image
            self._complete()

    def _look(self) -> ContainerRun | None:
        """None: there is no pod of that name."""
        try:
            pod = self._port.get(PODS, self.source.pod, self.source.namespace)
        except NotFound:
            return None
        return ContainerRun.parse(pod, self.source.container)

    def _read(self, run: ContainerRun) -> None:
        try:
            self._catch_up(run)
            self._stream(run, follow=not run.is_ended)
        except SwellError as error:
            if self._abort.is_set:
                return
            self._failures = 0 if self._has_news else self._failures + 1
            if isinstance(error, ServerError):  # it asked the node; one that is away itself says nothing of nodes
                self._nodes.failed(self.source.node)
            if not (run.is_ended and self._failures >= ENDED_TRIES_MAX):
                raise
            logger.info("the end of the log of %s is not to be had: %s", self.source, error)
            self._complete()
        else:
            self._failures = 0
            if run.is_ended and not self._has_news:
                self._complete()

    def _catch_up(self, run: ContainerRun) -> None:
        """A container that began anew while nobody read has left the log of its last life; only of that one."""
        file = self._opened()
        if run.restarts > file.restarts + 1:
            file.restarted(run.restarts - 1)
        if run.restarts > file.restarts:
            with contextlib.suppress(Rejected):  # which the node may have cleaned up
                self._stream(run, is_previous=True)
            file.restarted(run.restarts)

    def _stream(self, run: ContainerRun, *, follow: bool = False, is_previous: bool = False) -> None:
        file = self._opened()
        reader = LineReader(file.had)
        is_ours = False
        with self._port.log(
            self.source.pod,
            self.source.namespace,
            run.container,
            follow=follow,
            since=file.had.since,
            has_timestamps=True,
            is_previous=is_previous,
            abort=self._abort,
        ) as stream:
            self._nodes.worked(self.source.node)
            for piece in stream:
                parts = reader.feed(piece)
                if parts:
                    is_ours = is_ours or self._is_still(run)
                    file.append(parts, reader.had)
                    self._has_news = True

    def _is_still(self, run: ContainerRun) -> bool:
        """Is what has come of the pod, and the life of its container, that it was asked for?"""
        now = self._look()
        if now is not None and (now.uid, now.restarts) != (run.uid, run.restarts):
            raise _Outdated
        return True

    # -- the file --------------------------------------------------------------------------------------------------

    def _opened(self) -> LogFile:
        if self._file is None:
            self._file = LogFile(self._folder, self.source.uid)
        return self._file

    def _complete(self) -> None:
        if self._file is not None:
            self._file.completed()
        self.is_complete = True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _failed(self, error: Exception) -> None:
        if self._abort.is_set:
            return
        if isinstance(error, OSError):  # a full disk: what was written in part is cut off when it is opened again
            self._close()
            logger.warning("keeping the log of %s: %s; trying again", self.source, error)
        elif isinstance(error, SwellError):
            logger.info("reading the log of %s: %s; trying again", self.source, error)
        else:
            self._close()
            logger.exception("reading the log of %s failed in a way we did not think of", self.source)
