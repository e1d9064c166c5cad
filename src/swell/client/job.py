"""What does a program see of a job?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from swell.client.connection import path
from swell.errors import NotFound

if TYPE_CHECKING:
    from swell.client.client import Client

POLL_S = 25.0  # how long one long poll stays open
RESTART_S = 5.0  # how long a server may be away before whoever waits for a job gives up, or starts it again
ENDED = frozenset({"succeeded", "failed", "cancelled"})


def job_path(ref: str | int, *parts: object, **query: object) -> str:
    if "/" in str(ref):  # it would end up at another address
        raise NotFound(f"there is no job {ref!r}: a job name has no '/'; `swell ps` lists jobs")
    return path("jobs", ref, *parts, **query)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is not running."""

    code: str
    message: str
    evidence: Mapping[str, Any]
    next: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" (next: {self.next})" if self.next else "")


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
