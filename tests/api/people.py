"""Users of this machine, asking a box server as if over its socket: the kernel's word stands in the ASGI scope."""

from __future__ import annotations

import asyncio
import json
import pwd
from dataclasses import dataclass
from typing import Any

from api.service import WAIT_S, Service, submission
from swell.api.connections import PEER, Peer

OTHERS = [entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534)]
AT_ROOT = ("/healthz", "/readyz", "/metrics")  #: where others look for them; the description does not list them
OWNER, OTHER, ADMIN, NOBODY = OTHERS[0], OTHERS[1], 0, 4_000_000_000


def name_of(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


@dataclass(frozen=True)
class Told:
    status: int
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> tuple[int, str, str]:
        return self.status, self.json["error"]["kind"], self.json["error"]["message"]


def ask(service: Service, uid: int, method: str, path: str, body: object = None, **headers: str) -> Told:
    """One request of that user; whoever streams without end is hung up on."""
    asked = _ask(service, Peer(4711, uid), method, path if path in AT_ROOT else f"/api/v1{path}", body, headers)
    return asyncio.run_coroutine_threadsafe(asked, service.loop).result(WAIT_S)


async def _ask(service: Service, peer: Peer, method: str, path: str, body: object, headers: dict[str, str]) -> Told:
    plain, _, query = path.partition("?")
    given = {"host": "localhost", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": plain,
        "raw_path": plain.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in given.items()],
        "client": None,
        "server": None,
        "state": {PEER: peer},
    }
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await service.app(scope, receive, send)
    return Told(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]))


def submit(service: Service, uid: int, name: str = "job", **spec: Any) -> int:
    """One that waits for ever: no machine has so many GPUs."""
    answer = ask(service, uid, "POST", "/jobs", submission(name, **{"gpus": 99, **spec}))
    assert answer.status == 201, answer.data
    return int(answer.json["jobs"][0]["id"])
