"""Where does it happen: a box server, a hostile user with much in the store, and a second who looks at their jobs?"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from box.machine import SYSTEM_PYTHON, Machine, Person, wait_for
from swell.sockets import UnixConnection

HERE = Path(__file__).parent
JOBS = 2000  # of one name, held: nothing of them runs
DOCUMENTS_PER_REQUEST = 500
ARRAY_TASKS = 1_000_000
RECORDS, RECORD_BYTES = 60, 60_000  # at genai's door
ENVIRONMENT_BYTES = 4 * 1024 * 1024 - 4096


@dataclass(frozen=True, slots=True, order=True)
class Felt:
    """By the second user: how long the request of `swell ps` took."""

    worst_s: float
    middle_s: float
    count: int
    problem: str = ""  #: why there was no answer at all; empty: there was

    def __str__(self) -> str:
        return self.problem or f"{self.worst_s:.2f} s"


@dataclass(frozen=True, slots=True)
class Request:
    """As it travels."""

    method: str
    path: str
    body: Any = None  #: sent as JSON; bytes as they are
    token: str = ""  #: of a job; empty: on the socket the kernel says who asks
    is_over_tcp: bool = False


class Stage:
    """A machine whose first user is hostile; `prepare` makes what the attacks are about."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hostile, self.second, _ = machine.people
        for name in ("attacker.py", "victim.py"):
            shutil.copy(HERE / name, machine.client_folder / name)

    # -- what there is -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        assert self.second.swell("run", "--", "true").code == 0
        self.store = str(self.machine.state.read_json(self.machine.state.server_file)["store"])
        self.training = self._start_training()
        self.token = self._token_of(self.training)
        self.array = self.submit(self.waiting("array", array=f"0-{ARRAY_TASKS - 1}"))[0]
        self.jobs: list[int] = []
        for _ in range(0, JOBS, DOCUMENTS_PER_REQUEST):
            self.jobs += self.submit("---\n".join([self.waiting("same")] * DOCUMENTS_PER_REQUEST))
        for number in range(RECORDS):
            record = {"job_name": f"r{number}", "gpu_req": 1, "gpu_lim": 1, "gpu_assigned": 1}
            self.ask(Request("POST", "/add_job", {**record, "image": "x" * RECORD_BYTES}))

    def _start_training(self) -> int:
        """It runs as long as we are here, and has told its token and made a checkpoint."""
        told = 'umask 077; echo "$SWELL_TOKEN $SWELL_ATTEMPT" > ~/told.new; mkdir -p "$SWELL_CHECKPOINTS/one"'
        return self.hostile.start("--", "sh", "-c", f"{told}; mv ~/told.new ~/told; echo ready; exec sleep 100000")

    def _token_of(self, job: int) -> str:
        self.machine.until(job, "running")
        told = self.hostile.home / "told"
        wait_for(told.exists, "the job's token")
        token, self.attempt = told.read_text().split()
        return token

    def submit(self, manifest: str) -> list[int]:
        answer = self.ask(self.submission(manifest))
        return [job["id"] for job in answer["jobs"]]

    def waiting(self, name: str, **more: Any) -> str:
        """A job that stays in line as long as the training runs, and so costs nothing but its place."""
        spec = {"command": ["true"], "after": [self.training], **more}
        document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return json.dumps(document) + "\n"

    def submission(self, manifest: str, **more: Any) -> Request:
        return Request("POST", "/api/v1/jobs", {"manifest": manifest, "workdir": "/", **more})

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> Any:
        """As the hostile user, once, with the answer."""
        script = "import sys; sys.path.insert(0, sys.argv[1]); import attacker; "
        script += "one = attacker.connect(sys.argv[2]); one.sendall(sys.stdin.buffer.read()); "
        script += "parts = iter(lambda: one.recv(65536), b''); sys.stdout.buffer.write(b''.join(parts))"
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", script, str(self.machine.client_folder), str(self.machine.socket)],
            input=self.rendered(request),
            capture_output=True,
            check=True,
            timeout=120,
            **_as(self.hostile),
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        assert head.split()[1].startswith(b"2"), done.stdout[:1000]
        return json.loads(body)

    def rendered(self, request: Request) -> bytes:
        host = f"127.0.0.1:{self.machine.address[1]}" if request.is_over_tcp else "localhost"
        given = request.body
        body = b"" if given is None else given if isinstance(given, bytes) else json.dumps(given).encode()
        lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"Authorization: Bearer {request.token}"] if request.token else []
        lines += [] if request.body is None else ["Content-Type: application/json"]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body

    @contextlib.contextmanager
    def attacked(
        self, request: Request | None, *, threads: int = 0, holds: int = 0, stops: str = "", raw: bytes = b""
    ) -> Iterator[None]:
        """The hostile user sends this from so many threads again and again, and holds so many more unread."""
        rendered = raw if request is None else self.rendered(request)
        is_over_tcp = request is None or request.is_over_tcp
        address: Any = list(self.machine.address) if is_over_tcp else str(self.machine.socket)
        asked = {"address": address, "request": rendered.decode("latin-1")}
        sent = json.dumps({**asked, "threads": threads, "holds": holds, "stops": stops}).encode()
        attacker = subprocess.Popen(
            ["prlimit", "--nofile=8000", "--", SYSTEM_PYTHON, _path(self, "attacker.py"), str(len(sent))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **_as(self.hostile),
        )
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        try:
            attacker.stdin.write(sent)
            attacker.stdin.flush()
            yield
        finally:
            attacker.stdin.close()
            said = attacker.stdout.read().decode().splitlines()
            attacker.wait(60)
            print(f"attacker: {said}")

    def calm(self) -> None:
        """What an attack has left in the hostile user's own line is worked off, so that the next is felt, too."""

        def is_heard() -> bool:
            try:
                return bool(self.ask(Request("GET", "/api/v1/doors")))
            except subprocess.CalledProcessError:  # hung up on: their connections are not all closed yet
                return False

        wait_for(is_heard, "an answer for the hostile user")

    def feel(self, seconds: float, *, is_new: bool = False) -> Felt:
        """What the second user's requests take meanwhile; a new one's must first be looked up by the server."""
        if not is_new:
            return self._feel(self.second, seconds)
        with self.machine.passer_by() as somebody:
            return self._feel(somebody, seconds)

    def _feel(self, person: Person, seconds: float) -> Felt:
        done = subprocess.run(
            [SYSTEM_PYTHON, _path(self, "victim.py"), str(self.machine.socket), "", str(seconds)],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + 160,
            **_as(person),
        )
        return felt(done)

    def command_s(self) -> float:
        """Of the real `swell ps`, with the start of its interpreter."""
        began = time.monotonic()
        done = self.second.swell("ps")
        assert done.code == 0, done
        return time.monotonic() - began

    def answers(self) -> bool:
        connection = UnixConnection(self.machine.socket, timeout=5)
        try:
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()


def felt(done: subprocess.CompletedProcess[str]) -> Felt:
    if done.returncode:
        return Felt(float("inf"), float("inf"), 0, done.stderr.strip().splitlines()[-1][:120])
    took = json.loads(done.stdout)
    return Felt(max(took), statistics.median(took), len(took))


def _path(stage: Stage, name: str) -> str:
    return str(stage.machine.client_folder / name)


def _as(person: Person) -> dict[str, Any]:
    return {"user": person.uid, "group": person.gid, "extra_groups": [], "cwd": "/", "env": person.environment()}
