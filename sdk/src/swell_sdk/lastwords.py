"""How does the server hear the last report of a job that ended while it was away?

On Kubernetes the kubelet keeps what a container has left in a small file (its termination message) with the end of its
pod, and the server reads it there when it is back. `SWELL_LAST_WORDS` names that file: it is there already, and what a
script has written into it stays.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator

from swell_sdk.news import Report
from swell_sdk.voice import say

BYTES_MAX = 4096  # what a kubelet keeps of it


class LastWords:
    """The file, as the one process that reports sees it."""

    def __init__(self, path: str, attempt_id: str) -> None:
        """`path`: empty, where there is no such file."""
        self._path, self._attempt_id = path, attempt_id
        self._is_ours = False  #: it holds what we have written

    def leave(self, report: Report) -> None:
        """In place of what we left before; a file of which a script has made use is left alone."""
        text = spell(self._attempt_id, report)
        if not self._path or not text:
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY)  # never makes it: then nobody would read it
            try:
                if self._is_ours or os.fstat(descriptor).st_size == 0:
                    self._is_ours = True
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, text)
            finally:
                os.close(descriptor)
        except OSError as error:
            say("last words", f"cannot write the last report to {self._path}: {error}")

    def take_back(self) -> None:
        """The server knows it after all."""
        if not self._is_ours:
            return
        try:
            os.truncate(self._path, 0)
        except OSError:
            return  # said once more it does no harm
        self._is_ours = False


def spell(attempt_id: str, report: Report) -> bytes:
    """As much of it as a kubelet keeps; empty: not even its figures fit, which cannot be."""
    for document in _shorter(report):
        text = json.dumps({"swell_attempt": attempt_id, "report": document}, allow_nan=False).encode()
        if len(text) <= BYTES_MAX:
            return text
    return b""


def _shorter(report: Report) -> Iterator[Dict[str, Any]]:
    """All of it, then without what was measured, then without a checkpoint whose path is too long."""
    yield report.to_document()
    yield Report(report.rank, report.figures, checkpoint=report.checkpoint).to_document()
    yield Report(report.rank, report.figures).to_document()
