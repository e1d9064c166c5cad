"""How many submissions per second does the API take? The load: `python -m bench.submitter STATE COUNT CPUS`.

A process of its own, and a lean one: every thread keeps one connection and sends the bytes of what our client would
send, so that the client's CPU is not what is measured. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator

from swell.machine.sockets import HOST
from swell.machine.state_folder import StateFolder

IN_FLIGHT = 32
TIMEOUT_S = 90.0


def main() -> None:
    state, count, cpus = StateFolder.locate(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    numbers = iter(range(count))
    took: list[float] = []
    threads = [threading.Thread(target=_submit, args=(state, numbers, cpus, took)) for _ in range(IN_FLIGHT)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    took.sort()
    answer = {
        "accepted": len(took),
        "wall_s": wall_s,
        "client_cpu_s": usage.ru_utime + usage.ru_stime,
        "median_ms": 1000 * took[len(took) // 2],
    }
    print(json.dumps(answer))


def _submit(state: StateFolder, numbers: Iterator[int], cpus: str, took: list[float]) -> None:
    head, body = _request(HOST, state.token.read_text().strip(), cpus)
    asked = state.connection(timeout=TIMEOUT_S)
    asked.connect()
    with asked.sock as connection:
        for _ in numbers:
            began = time.perf_counter()
            connection.sendall(b"%sIdempotency-Key: %s\r\n\r\n%s" % (head, uuid.uuid4().hex.encode(), body))
            _read_answer(connection)
            took.append(time.perf_counter() - began)


def _request(host: str, token: str, cpus: str) -> tuple[bytes, bytes]:
    """As swell.client sends it, with this process's environment."""
    spec = {"command": ["/bin/true"], "cpus": cpus}
    manifest = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {}, "spec": spec}
    document = {"manifest": manifest, "workdir": "/tmp", "umask": 0o022, "env": dict(os.environ), "dry_run": False}
    body = json.dumps(document).encode()
    lines = [
        "POST /api/v1/jobs HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "".join(f"{line}\r\n" for line in lines).encode(), body


def _read_answer(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 201"):
        raise ConnectionError(f"the server answers {data[:300]!r}")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(fields[b"content-length"]) - len(body)
    while missing > 0:
        missing -= len(_receive(connection))


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


if __name__ == "__main__":
    main()
