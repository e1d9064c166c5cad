"""Which connection does the next request use?

The one that was used last: those that a burst left over grow old and go. One that the other side has closed meanwhile
is noticed before it is used, because a write that fails on it could not be repeated.
"""

from __future__ import annotations

import threading
import time

from swell.engines.kubernetes.client.connection import Connection, Dialer, shut
from swell.engines.kubernetes.client.credentials import ClientCertificate

CONNECTIONS_MAX = 64  # more in flight made kube-apiserver slower, not faster, on two cores
IDLE_S = 60.0  # load balancers forget silent connections, some after a minute and a half, and tell nobody


class Pool:
    def __init__(self, dialer: Dialer, *, timeout_s: float) -> None:
        self._dialer = dialer
        self._timeout_s = timeout_s
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._is_closed = False

    def take(self, certificate: ClientCertificate | None) -> Connection:
        """Waits for one of the 64; raises `Unreached` where none can be made."""
        if not self._room.acquire(timeout=self._timeout_s):
            raise TimeoutError(f"{CONNECTIONS_MAX} requests are under way, and none ended")
        try:
            connection = self._kept(certificate) or self._dialer.connect(certificate, self._timeout_s)
        except BaseException:
            self._room.release()
            raise
        with self._lock:
            self._busy.add(connection)
            if self._is_closed:
                shut(connection.socket)
        return connection

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            keep = connection.is_reusable and not self._is_closed
            if keep:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
        if not keep:
            connection.close()
        self._room.release()

    def close(self) -> None:
        """Whoever waits for an answer gets `Lost`."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                shut(connection.socket)
        for connection in idle:
            connection.close()

    def _kept(self, certificate: ClientCertificate | None) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            is_old = time.monotonic() - connection.idle_since > IDLE_S
            if not is_old and connection.certificate == certificate and not connection.is_stale():
                return connection
            connection.close()
