"""Where does it happen: a box server, a hostile user with much in the store, and a second who looks at their jobs?

Beside it stands a server that nobody attacks. It is asked for the same at the same moments, so that what the machine
itself makes slow, the attacker's own work included, is known of every measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from box.machine import SYSTEM_PYTHON, Machine, Person, wait_for
from server import Server
from swell.machine.sockets import UnixConnection

HERE = Path(__file__).parent
JOBS = 2000  # of one name, held: nothing of them runs
DOCUMENTS_PER_REQUEST = 500
ARRAY_TASKS = 1_000_000
RECORDS, RECORD_BYTES = 60, 60_000  # at genai's door
CANCELLED_AT_ONCE = 5000
CALM_S = 120.0  # what 16 threads have left in line is worked off before the hostile user is heard again


@dataclass(frozen=True, slots=True, order=True)
class Felt:
    """By the second user: how long the request of `swell ps` took."""

    worst_s: float
    middle_s: float
    count: int
    problem: str = ""  #: why there was no answer at all; empty: there was
    beside_s: float = 0.0  #: the slowest of the same requests, meanwhile, to a server that nobody attacks

    def __str__(self) -> str:
        return self.problem or f"{self.worst_s:.2f} s (beside it {self.beside_s:.2f} s)"


@dataclass(frozen=True, slots=True)
class Request:
    """As it travels."""

    method: str
    path: str
    body: Any = None  #: sent as JSON; bytes as they are
    token: str = ""  #: of a job; empty: on the socket the kernel says who asks
    is_over_tcp: bool = False


NOTHING = Request("", "")  # a connection that sends nothing


class Stage:
    """A machine whose first user is hostile; `prepare` makes what the attacks are about."""

    def __init__(self, machine: Machine, bystander: Server) -> None:
        self.machine = machine
        self.bystander = bystander
        self.hostile, self.second, _ = machine.people
        for name in ("attacker.py", "victim.py"):
            shutil.copy(HERE / name, machine.client_folder / name)

    # -- what there is -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        assert self.second.swell("run", "--", "true").code == 0
        assert self.bystander.swell("run", "--", "true").code == 0
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
        self.last = self.jobs[-1]

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
        address: Any = list(self.machine.address) if request.is_over_tcp else str(self.machine.socket)
        script = "import sys; sys.path.insert(0, sys.argv[1]); import attacker; "
        script += "import json; one = attacker.connect(json.loads(sys.argv[2])); "
        script += "one.sendall(attacker.numbered(sys.stdin.buffer.read())); "
        script += "parts = iter(lambda: one.recv(65536), b''); "
        script += "sys.stdout.buffer.write(b''.join(parts))"
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", script, str(self.machine.client_folder), json.dumps(address)],
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
        if not request.method:
            return b""
        host = f"127.0.0.1:{self.machine.address[1]}" if request.is_over_tcp else "localhost"
        given = request.body
        body = b"" if given is None else given if isinstance(given, bytes) else json.dumps(given).encode()
        lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"Authorization: Bearer {request.token}"] if request.token else []
        lines += [] if request.body is None else ["Content-Type: application/json"]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body

    @contextlib.contextmanager
    def attacked(self, request: Request, *, threads: int = 0, holds: int = 0, stops: str = "") -> Iterator[None]:
        """The hostile user sends this from so many threads again and again, and holds so many more unread."""
        address: Any = list(self.machine.address) if request.is_over_tcp else str(self.machine.socket)
        asked = {"address": address, "request": self.rendered(request).decode("latin-1")}
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

        wait_for(is_heard, "an answer for the hostile user", CALM_S)
        self._cancel_what_was_made()

    def _cancel_what_was_made(self) -> None:
        """So that a limit that one attack has reached does not end the next before its time."""
        client = self.machine.client()
        made = [job.id for job in client.jobs(all_users=True) if job.id > self.last and not job.has_ended]
        for start in range(0, len(made), CANCELLED_AT_ONCE):
            client.cancel_several(made[start : start + CANCELLED_AT_ONCE], grace_s=0)

    def hostile_runs(self, argv: tuple[str, ...]) -> int:
        """How many processes of the hostile user are exactly this."""
        words = b"".join(os.fsencode(word) + b"\0" for word in argv)
        return [_words_of(pid) for pid in self.machine.processes_of(self.hostile)].count(words)

    def feel(self, seconds: float, *, is_new: bool = False) -> Felt:
        """What the second user's requests take meanwhile; a new one's must first be looked up by the server."""
        if not is_new:
            return self._feel(self.second, seconds)
        with self.machine.passer_by() as somebody:
            return self._feel(somebody, seconds)

    def _feel(self, person: Person, seconds: float) -> Felt:
        words = [SYSTEM_PYTHON, _path(self, "victim.py"), str(self.machine.socket), "", str(seconds)]
        return feel_beside(words, self.bystander, seconds, **_as(person))

    def command_s(self, *words: str) -> float:
        """Of a real command of the second user's, with the start of its interpreter."""
        began = time.monotonic()
        done = self.second.swell(*words)
        assert done.code == 0, done
        return time.monotonic() - began

    def slowest_runs_s(self, seconds: float) -> tuple[float, float]:
        """Of the second user's jobs, one after the other, from the command to its end; and of the bystander's jobs
        between them."""
        until, slowest_s, beside_s = time.monotonic() + seconds, 0.0, 0.0
        while time.monotonic() < until:
            slowest_s = max(slowest_s, self.command_s("run", "--", "true"))
            began = time.monotonic()
            assert self.bystander.swell("run", "--", "true").code == 0
            beside_s = max(beside_s, time.monotonic() - began)
        return slowest_s, beside_s

    def answers(self) -> bool:
        connection = UnixConnection(self.machine.socket, timeout=5)
        try:
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()


class TokenStage(Stage):
    """The same, but both users come over TCP from one address, each with a token: as on a cluster, where no kernel says
    who asks."""

    def __init__(self, stage: Stage) -> None:
        vars(self).update(vars(stage))
        self._hostile_token, self._second_token = (self._make_token(one) for one in (self.hostile, self.second))

    def _make_token(self, person: Person) -> str:
        file = person.home / "token-over-tcp"
        made = person.swell("token", "create", "over-tcp", "--scope", "submit", "--token-file", str(file))
        assert made.code == 0, made
        return file.read_text().strip()

    def ask(self, request: Request) -> Any:
        return super().ask(self._over_tcp(request))

    @contextlib.contextmanager
    def attacked(self, request: Request, *, threads: int = 0, holds: int = 0, stops: str = "") -> Iterator[None]:
        with super().attacked(self._over_tcp(request), threads=threads, holds=holds, stops=stops):
            yield

    def feel(self, seconds: float, *, is_new: bool = False) -> Felt:
        """Whoever has a token has been looked up when it was made."""
        port = self.machine.address[1]
        words = [SYSTEM_PYTHON, _path(self, "victim.py"), f"127.0.0.1:{port}", self._second_token, str(seconds)]
        return feel_beside(words, self.bystander, seconds, **_as(self.second))

    def _over_tcp(self, request: Request) -> Request:
        """A job's own token stays; who sends nothing shows none."""
        return replace(request, is_over_tcp=True, token=request.token or self._hostile_token)


def feel_beside(words: list[str], bystander: Server, seconds: float, **how: Any) -> Felt:
    """What the victim that these words start feels, and what another feels of the bystander at the same time."""
    reading: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(words, **reading, **how) as victim,
        subprocess.Popen(asking(bystander, seconds), **reading) as beside,
    ):
        outputs = [one.communicate(timeout=seconds + 160) for one in (victim, beside)]
    assert beside.returncode == 0, outputs[1]
    if victim.returncode:
        return Felt(float("inf"), float("inf"), 0, outputs[0][1].strip().splitlines()[-1][:120])
    took = json.loads(outputs[0][0])
    return Felt(max(took), statistics.median(took), len(took), beside_s=max(json.loads(outputs[1][0])))


def asking(server: Server, seconds: float) -> list[str]:
    """The words of a victim who is a private server's owner."""
    token = server.state.token.read_text().strip()
    return [SYSTEM_PYTHON, str(HERE / "victim.py"), address_of(server), token, str(seconds)]


def address_of(server: Server) -> str:
    return str(server.state.read_json(server.state.server_file)["url"]).removeprefix("http://")


def _words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def _path(stage: Stage, name: str) -> str:
    return str(stage.machine.client_folder / name)


def _as(person: Person) -> dict[str, Any]:
    return {"user": person.uid, "group": person.gid, "extra_groups": [], "cwd": "/", "env": person.environment()}
