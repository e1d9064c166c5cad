"""A client that knows an address and another system's words, and nothing of Swell."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from api.service import JOB_SECRET, USER, Service
from swell.api.box import Caller
from swell.api.credentials import ADDRESS, make_credential
from swell.controller.reporting import make_token
from swell.model.job import AttemptId


@dataclass(frozen=True)
class Foreign:
    """One request on a connection of its own, as curl or requests would send it."""

    address: str  #: http://host:port, and perhaps a path before theirs
    headers: tuple[tuple[str, str], ...] = ()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status, and the answer: JSON where it is JSON, otherwise its text."""
        status, data = self.raw(method, path, body)
        try:
            return status, json.loads(data)
        except ValueError:
            return status, data.decode()

    def raw(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = dict(self.headers) | ({"Content-Type": "application/json"} if data is not None else {})
        with contextlib.closing(connection):
            connection.request(method, parts.path + path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()


def with_token(service: Service) -> Foreign:
    """The main port, for who can send a header."""
    return Foreign(f"http://{service.host}", (("Authorization", f"Bearer {USER}"),))


def of_user(service: Service, door: str, user: str = "ann", lasts_s: float = 3600) -> Foreign:
    """An address that needs no header, of anybody: a private server would make its owner's only."""
    caller, now = Caller(user, is_admin=False), service.services.now()
    made = make_credential(ADDRESS, caller, scope=f"door:{door}", now=now, expires_at=now + lasts_s)
    service.store.tokens.create(made.record, caller.did("DoorAddressMade")).result()
    return Foreign(f"http://{service.host}/d/{made.text}")


def of_job(service: Service, job: int, attempt: int = 1, lasts_s: float = 3600) -> Foreign:
    """What a job has in SWELL_DOOR."""
    token = make_token(JOB_SECRET, AttemptId(job, attempt), time.time() + lasts_s)
    return Foreign(f"http://{service.host}/d/{token}")


@contextlib.contextmanager
def running(service: Service, name: str, **spec: Any) -> Iterator[int]:
    """A job that runs for as long as this lasts, in whichever attempt."""
    job = service.submit(name, **spec)
    service.worker.begin(job)
    try:
        yield job
    finally:
        cancel(service, job)


def cancel(service: Service, job: int) -> None:
    """Whatever it is at, it holds nothing afterwards; one that was deleted is fine, too."""
    if service.ask("POST", f"/jobs/{job}/cancel").status == 404:
        return
    found = service.until(job, "stopping", "succeeded", "failed", "cancelled")
    if found["state"] == "stopping":
        service.worker.end(job, 143, attempt=found["attempts"])
