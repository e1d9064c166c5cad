"""What does a pool ask of its server, and what do people ask of pools?"""

from __future__ import annotations

from typing import Any

from swell.client.connection import ServerConnection, path
from swell.errors import Unavailable
from swell.model.codec import from_document, to_document
from swell.model.pool import PoolDemand, PoolReport

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)


class PoolsClient:
    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def sync(self, report: PoolReport) -> PoolDemand:
        answer = self._connection.json("POST", path("pools", "sync"), to_document(report))
        try:
            return from_document(PoolDemand, answer)
        except UNREADABLE as error:
            raise Unavailable(
                f"the answer of the server cannot be read ({error!r}); is it of the same version?"
            ) from error

    def worker_token(self, group: str) -> tuple[str, float]:
        made = self._connection.json("POST", path("pools", "worker-token"), {"group": group} if group else {})
        return str(made["token"]), float(made["expires_at"])

    def listing(self) -> list[dict[str, Any]]:
        return list(self._connection.json("GET", path("pools"))["pools"])

    def stop(self, name: str, *, ends_workers: bool) -> bool:
        """False: nobody had heard of it for long, and it is forgotten."""
        return bool(self._connection.json("POST", path("pools", name, "stop"), {"workers": ends_workers})["told"])

    def kill(self, worker: str, *, is_forced: bool) -> dict[str, Any]:
        asked = {"worker": worker, "force": is_forced}
        found: dict[str, Any] = self._connection.json("POST", path("pools", "kill"), asked)
        return found
