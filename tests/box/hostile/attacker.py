"""What a hostile user runs: `python3 attacker.py '{"address": …, "request": …, …}'`. The standard library only.

It says one line of JSON when it is in place, goes on until its standard input is closed, and then says how it went.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

TIMEOUT_S = 120.0
NUMBER = b"@@@@@@@@"  # in a request that must not be the same twice: as many digits stand there
Address = Any  #: a path, or a host and a port
numbers = itertools.count(1)


def connect(address: Address) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    made.settimeout(TIMEOUT_S)
    made.connect(address if isinstance(address, str) else tuple(address))
    return made


def hold(address: Address, request: bytes, count: int) -> tuple[list[socket.socket], int]:
    """So many connections, each with a request that is never read; and how many were refused."""
    made, refused = [], 0
    for _ in range(count):
        try:
            one = connect(address)
            one.setblocking(False)
            if request:
                one.send(request)
            made.append(one)
        except OSError:
            refused += 1
    return made, refused


def repeat(address: Address, request: bytes, statuses: collections.Counter[str], is_over: threading.Event) -> None:
    """The same request again and again, each answer read to its end."""
    while not is_over.is_set():
        try:
            with connect(address) as one:
                one.sendall(numbered(request))
                statuses[read_answer(one)] += 1
        except OSError as error:
            statuses[type(error).__name__] += 1
            time.sleep(0.01)


def numbered(request: bytes) -> bytes:
    return request.replace(NUMBER, b"%08d" % next(numbers)) if NUMBER in request else request


def read_answer(one: socket.socket) -> str:
    """Its status."""
    first = one.recv(65536)
    while one.recv(65536):
        pass
    return first[9:12].decode("latin-1") if first else "hung up"


def stop_every(name: str, is_over: threading.Event, stopped: set[int]) -> None:
    """SIGSTOP to every process of this name that is our own."""
    while not is_over.is_set():
        for entry in os.listdir("/proc"):  # noqa: PTH208  it looks at thousands a second
            if entry.isdigit() and int(entry) not in stopped and is_own(entry, name):
                try:
                    os.kill(int(entry), signal.SIGSTOP)
                    stopped.add(int(entry))
                except OSError:
                    continue


def is_own(pid: str, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:  # noqa: PTH123  it looks at thousands a second
            return file.read().strip() == name and os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116
    except OSError:
        return False


def main() -> None:
    asked = json.loads(sys.stdin.buffer.read(int(sys.argv[1])))
    address, request = asked["address"], asked["request"].encode("latin-1")
    is_over = threading.Event()
    statuses: collections.Counter[str] = collections.Counter()
    stopped: set[int] = set()
    threads = [
        threading.Thread(target=repeat, args=(address, request, statuses, is_over), daemon=True)
        for _ in range(asked["threads"])
    ]
    if asked["stops"]:
        threads.append(threading.Thread(target=stop_every, args=(asked["stops"], is_over, stopped), daemon=True))
    for thread in threads:
        thread.start()
    made, refused = hold(address, request, asked["holds"])
    print(json.dumps({"held": len(made), "refused": refused}), flush=True)
    sys.stdin.read()
    is_over.set()
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except OSError:
            continue
    print(json.dumps({"statuses": statuses, "stopped": len(stopped)}), flush=True)
    os._exit(0)  # threads may wait for an answer that does not come


if __name__ == "__main__":
    main()
