"""Who keeps a mirror true?

A thread that lists, then watches from there, and lists again whenever the mirror asks for it (`mirror.py` has the
rules) and every half hour, because nobody is perfect. A watch that ends is resumed from the last version; one that is
silent counts as dead. Faults wait ever longer, with a lot drawn so that many reflectors do not come back at once.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.connection import Abort
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import Expired, Silent
from swell.engines.kubernetes.watch.mirror import Key, Mirror, Relist, WatchChange
from swell.engines.kubernetes.watch.unreadable import Unreadable
from swell.errors import SwellError, Unavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEHIND_MAX = 5  # lists older than what we know that are asked again; then the server was set back, and is right
LINE_BYTES_MAX = 64 * 1024 * 1024  # etcd takes no object above a few megabytes


@dataclass(frozen=True, slots=True)
class WatchPace:
    """How long things take."""

    first_s: float = 0.2  #: after the first fault in a row; doubled with each
    cap_s: float = 30.0
    watch_s: int = 270  #: the API server ends a watch after that: below the five minutes of many a load balancer
    silence_s: float = 100.0  #: bookmarks come about once a minute
    resync_s: float = 1800.0


class Backoff:
    def __init__(self, pace: WatchPace, lots: random.Random) -> None:
        self._pace = pace
        self._lots = lots
        self._faults = 0

    def reset(self) -> None:
        self._faults = 0

    def next_s(self) -> float:
        whole = min(self._pace.cap_s, self._pace.first_s * float(2 ** min(self._faults, 20)))
        self._faults += 1
        return whole * self._lots.uniform(0.5, 1.0)


class Reflector(Generic[T]):
    """The objects of a selection as the cluster has them. `changed` is called from its thread, after the fact."""

    def __init__(
        self,
        port: ApiClient,
        selection: Selection,
        read: Callable[[Document], T],
        changed: Callable[[tuple[WatchChange[T], ...]], None],
        *,
        pace: WatchPace | None = None,
        lots: random.Random | None = None,
    ) -> None:
        self._port = port
        self._selection = selection
        self._changed = changed
        self._pace = pace or WatchPace()
        self._lots = lots or random.Random()  # noqa: S311  spreads load, hides nothing
        self._backoff = Backoff(self._pace, self._lots)
        self._mirror = Mirror(read)
        self._lock = threading.Lock()  # of the mirror's state: this thread writes, others take snapshots
        self._abort = Abort()
        self._logged: Mapping[Key, Unreadable] = {}
        self._synced = threading.Event()
        self._listed_at = 0.0
        self._behind = 0
        self._thread = threading.Thread(target=self._run, name=f"watch-{selection.resource}", daemon=True)
        #: Why it may not be up to date just now; None: it is.
        self.trouble: str | None = "not listed yet"

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Ends reading at once, whatever is being waited for. Has it ended?"""
        self._abort.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wait_until_synced(self, timeout_s: float) -> bool:
        """Was there a first list?"""
        return self._synced.wait(timeout_s)

    def snapshot(self) -> Mapping[Key, T]:
        """Never changes again; what has not changed is the same object in the next one."""
        with self._lock:
            return self._mirror.snapshot()

    def unreadable(self) -> Mapping[Key, Unreadable]:
        """Objects that are left out, or stay as they were, until they change. Never changes again."""
        with self._lock:
            return self._mirror.unreadable

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._abort.is_set:
            try:
                self._list_if_needed()
                pause_s = 0.0 if self._watch() else self._backoff.next_s()
            except Exception as error:  # noqa: BLE001  a reflector that ends shows the past for ever
                pause_s = self._failed(error)
            self._abort.wait(pause_s)

    def _failed(self, error: Exception) -> float:
        """In how many seconds to go on."""
        pause_s = self._backoff.next_s()
        if self._abort.is_set:
            return 0.0
        self.trouble = str(error)
        if not isinstance(error, SwellError | Relist):
            logger.exception("following %s failed in a way we did not think of; listing again", self._selection)
            self._mirror.needs_list = True
        elif isinstance(error, Expired):
            self._mirror.needs_list = True
        logger.info("following %s: %s; going on in %.1f s", self._selection.resource, error, pause_s)
        return pause_s

    def _list_if_needed(self) -> None:
        is_due = time.monotonic() - self._listed_at >= self._pace.resync_s
        if not (self._mirror.needs_list or is_due):
            return
        pages = self._port.pages(self._selection, abort=self._abort)
        first = next(pages)
        if self._mirror.is_ahead_of(first.resource_version) and self._behind < BEHIND_MAX:
            self._behind += 1
            raise Unavailable(f"the API server listed version {first.resource_version}, which is before what we know")
        rest = itertools.chain([first], pages)
        listing = self._mirror.gather(first.resource_version, (page.items for page in rest))
        with self._lock:
            changes = self._mirror.replace(listing)
        self._behind = 0
        self._listed_at = time.monotonic()
        self._good()
        self._tell(changes)
        self._synced.set()  # last: whoever waits for it asks those who were told

    def _watch(self) -> bool:
        """Until it ends. Did anything come?"""
        with self._port.watch(
            self._selection,
            self._mirror.version,
            timeout_s=self._timeout_s(),
            silence_s=self._pace.silence_s,
            abort=self._abort,
        ) as stream:
            self._good()
            has_come = False
            try:
                for lines in _whole_lines(stream):
                    self._apply(lines)
                    self._backoff.reset()
                    has_come = True
            except Silent:
                # Not even a bookmark: so does an API server whose etcd was restored answer to a version of its future.
                self._mirror.needs_list |= not has_come
                raise
        return has_come

    def _apply(self, lines: list[bytes]) -> None:
        changes: list[WatchChange[T]] = []
        try:
            with self._lock:
                for line in lines:
                    change = self._mirror.apply(line)
                    if change is not None:
                        changes.append(change)
        finally:
            self._tell(tuple(changes))

    def _tell(self, changes: tuple[WatchChange[T], ...]) -> None:
        self._log_unreadable()
        if changes and not self._abort.is_set:
            self._changed(changes)

    def _log_unreadable(self) -> None:
        """Each once: somebody may change such an object all day long."""
        now, before = self._mirror.unreadable, self._logged
        if now is before:
            return
        known = {one.uid for one in before.values()}
        for one in now.values():
            if one.uid not in known:
                logger.warning("%s", one)
        self._logged = now

    def _good(self) -> None:
        self.trouble = None

    def _timeout_s(self) -> int:
        until_resync_s = self._listed_at + self._pace.resync_s - time.monotonic()
        return max(1, int(min(self._pace.watch_s * self._lots.uniform(0.9, 1.0), until_resync_s)))


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """What has come, by lines; the beginning of one at the very end is dropped."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise Relist(f"a line of the watch is longer than {LINE_BYTES_MAX} bytes")
        whole = [line for line in lines if line.strip()]
        if whole:
            yield whole
