"""A keeper of logs as an engine uses it; as a program of its own it can be killed for real."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from swell.engines.kubernetes import Access, ApiClient
from swell.engines.kubernetes.client.credentials import Files
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.kubernetes.logs.stream import PodLog
from swell.engines.kubernetes.watch.reflector import WatchPace
from swell.model.job import AttemptId

from .podlogs import RunningPod

QUICK = WatchPace(first_s=0.005, cap_s=0.05)
PATIENCE_S = 20.0
ATTEMPT = AttemptId(7, 1)


def source_of(pod: RunningPod, *, index: int = 0, node: str = "n1", container: str | None = None) -> PodLog:
    return PodLog(ATTEMPT, index, pod.key[0], pod.key[1], pod.uid, node, container)


def file_of(root: Path, index: int = 0) -> Path:
    return root / str(ATTEMPT) / str(index) / "log"


def text_of(root: Path, index: int = 0) -> bytes:
    path = file_of(root, index)
    return path.read_bytes() if path.exists() else b""


def until(is_so: Callable[[], bool], what: object = "") -> None:
    """Looks at files, which tell nobody that they change."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"it never came to that: {what}"
        threading.Event().wait(0.002)


def keep(url: str, token_file: Path, root: Path, name: str, uid: str) -> None:
    """Until it is killed, or everything is kept."""
    us = "the test"
    keeper = LogKeeper(ApiClient(Access(url, "default", Files(us, token=token_file), us)), root, pace=QUICK)
    source = PodLog(ATTEMPT, 0, "ml", name, uid, "n1")
    keeper.follow(source)
    while not keeper.finish(source, timeout_s=0.05):
        pass


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])
