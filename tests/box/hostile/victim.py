"""What the second user runs: the request of `swell ps`, again and again. `python3 victim.py ADDRESS TOKEN SECONDS`.

It says how long each took, as JSON: from the connection to the last byte, so that the machine's own load (the start of
an interpreter) is not in it.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

TIMEOUT_S = 150.0


def ask(address: str, token: str) -> float:
    began = time.monotonic()
    is_path = address.startswith("/")
    host, _, port = address.partition(":")
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as one:
        # As the command line connects (`connect_patiently`): it waits where the queue of the listener is full.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(TIMEOUT_S), 0))
        one.connect(address if is_path else (host, int(port)))
        one.settimeout(TIMEOUT_S)
        said = f"Host: {'localhost' if is_path else address}\r\nConnection: close\r\n"
        said += f"Authorization: Bearer {token}\r\n" if token else ""
        one.sendall(f"GET /api/v1/jobs?limit=50 HTTP/1.1\r\n{said}\r\n".encode())
        answer = b""
        while piece := one.recv(65536):
            answer += piece
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the second user is not answered: {answer[:200]!r}")
    return time.monotonic() - began


def main() -> None:
    address, token, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    until = time.monotonic() + seconds
    took = []
    while time.monotonic() < until:
        try:
            took.append(ask(address, token))
        except ConnectionError as error:
            raise SystemExit(f"the second user is hung up on: {error}") from error
        time.sleep(0.05)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
