"""Which priorities does the cluster give names to?"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PRIORITY_CLASSES
from swell.engines.kubernetes.watch.unreadable import readable
from swell.errors import SwellError
from swell.model.cluster import PriorityClass

log = logging.getLogger(__name__)
FRESH_S = 1.0  # a burst of submissions asks once; one right after a class was made must find it


class PriorityClasses:
    """Listed when somebody wants to know: they are few, and change a few times a year."""

    def __init__(self, port: ApiClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._port = port
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: Mapping[str, PriorityClass] = {}
        self._listed_at: float | None = None  #: None: never

    def table(self) -> Mapping[str, PriorityClass]:
        """Name → value. Where the cluster does not answer, what was known counts: a name is no reason to refuse."""
        with self._lock:
            if self._listed_at is None or self._monotonic() - self._listed_at >= FRESH_S:
                self._listed_at = self._monotonic()
                self._known = self._list()
            return self._known

    def _list(self) -> Mapping[str, PriorityClass]:
        try:
            items = self._port.list(Selection(PRIORITY_CLASSES)).items
        except SwellError as error:
            log.warning("priority classes may have no effect, or an old one: %s", error)
            return self._known
        return dict(readable(items, _parse))


def _parse(item: Document) -> tuple[str, PriorityClass]:
    return item["metadata"]["name"], PriorityClass(int(item["value"]), item.get("preemptionPolicy") != "Never")
