"""Which pods' logs are being copied, and which are all here?

A pod's log is gone with the pod, so it is copied while it grows, into the same folders that the workers engine has
(`engines/logfolder.py`). Each pod has a thread and a connection; above a number of them pods are not followed but read
when they have ended, before whoever owns them lets them go (`finish`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.logs.file import is_kept
from swell.engines.kubernetes.logs.stream import PACE, LogFollower, Nodes, PodLog
from swell.engines.kubernetes.watch.reflector import WatchPace
from swell.model.job import AttemptId

STREAMS_MAX = 200  # threads and connections of ours, and as many of the API server and the kubelets
FETCHES_MAX = 16  # beside those, for pods that have ended: they are waited for
DONE_MAX = 100_000  # remembered; of others the folder is asked
HANDOVER_S = 30.0  # the next pod of a task waits that long for the end of the last one's log, whose node may be lost
CLOSE_S = 5.0


class LogKeeper:
    """Safe for several threads."""

    def __init__(
        self,
        port: ApiClient,
        root: Path,
        *,
        streams_max: int = STREAMS_MAX,
        pace: WatchPace = PACE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._root = root
        self._streams_max = streams_max
        self._pace = pace
        self._monotonic = monotonic
        self._nodes = Nodes(monotonic)
        self._changed = threading.Condition()
        self._followers: dict[tuple[AttemptId, int], LogFollower] = {}  #: one for each file
        self._threads: dict[LogFollower, threading.Thread] = {}
        self._done: dict[str, None] = {}  #: uids, the oldest first
        self._is_closed = False

    def follow(self, source: PodLog) -> None:
        """Its container has begun. To be called again and again: what has no room now may have it the next time.

        Of two pods of one task the one that is named later is the successor.
        """
        with self._changed:
            if not self._is_done(source) and not self._nodes.is_mute(source.node):
                self._start(source, self._streams_max)

    def finish(self, source: PodLog, timeout_s: float = 0.0) -> bool:
        """Its container has ended: reads the rest now. Is everything kept, or as much as there will ever be?"""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_finished(source), timeout_s)

    def close(self) -> None:
        """What is not read yet is read by the next keeper, as long as its pod is there."""
        with self._changed:
            self._is_closed = True
            threads = list(self._threads.values())
            for follower in self._followers.values():
                follower.stop()
        deadline = self._monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - self._monotonic()))

    # -- under the lock --------------------------------------------------------------------------------------------

    def _is_finished(self, source: PodLog) -> bool:
        if self._is_done(source):
            return True
        if self._nodes.is_mute(source.node):
            self._remember(source.uid)
            return True
        follower = self._start(source, self._streams_max + FETCHES_MAX)
        if follower is not None:
            follower.nudge()
        return False

    def _is_done(self, source: PodLog) -> bool:
        if source.uid in self._done:
            return True
        follower = self._followers.get((source.attempt, source.index))
        is_read = follower is not None and follower.source.uid == source.uid
        if not is_read and is_kept(self._folder(source), source.uid):
            self._remember(source.uid)
            return True
        return False

    def _start(self, source: PodLog, limit: int) -> LogFollower | None:
        """None: there is no room, or another pod of the same task is not read to its end."""
        key = source.attempt, source.index
        follower = self._followers.get(key)
        if follower is not None and follower.source.uid != source.uid:
            self._displace(follower)
            return None
        if follower is not None or self._is_closed or len(self._followers) >= limit:
            return follower
        follower = LogFollower(self._port, self._folder(source), source, self._nodes, self._pace)
        thread = threading.Thread(target=self._run, args=(follower,), name=f"log-{source.pod}", daemon=True)
        self._followers[key] = follower
        self._threads[follower] = thread
        thread.start()
        return follower

    def _displace(self, follower: LogFollower) -> None:
        now = self._monotonic()
        if follower.displaced_at is None:
            follower.displaced_at = now
            follower.nudge()
        elif now - follower.displaced_at >= HANDOVER_S:
            follower.stop()

    def _remember(self, uid: str) -> None:
        self._done[uid] = None
        if len(self._done) > DONE_MAX:
            del self._done[next(iter(self._done))]

    def _folder(self, source: PodLog) -> Path:
        return self._root / str(source.attempt) / str(source.index)

    # -- a thread each ---------------------------------------------------------------------------------------------

    def _run(self, follower: LogFollower) -> None:
        try:
            follower.run()
        finally:
            with self._changed:
                source = follower.source
                del self._followers[source.attempt, source.index], self._threads[follower]
                if follower.is_complete or follower.displaced_at is not None:
                    self._remember(source.uid)
                self._changed.notify_all()
