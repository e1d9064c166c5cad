"""What does a server look like from inside a job? `docs/reports.md` over real HTTP on loopback, and nothing behind it.

It is strict: a report that the real server would refuse is refused here, so a test cannot pass with one.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOUND_S = 20.0  # every wait in these tests ends here at the latest
FIELDS = {
    "rank",
    "begun",
    "epochs_done",
    "epochs_total",
    "epochs",
    "steps",
    "steps_per_epoch",
    "memory_mib",
    "checkpoint",
    "metrics",
    "yielding",
    "ready_to_stop",
}


class Server:
    """What it was told, and what it answers."""

    def __init__(self, folder: Path, *, attempt: str = "12.3", token: str = "secret") -> None:
        self.folder, self.attempt, self.token = folder, attempt, token
        self.stop_after: int | None = None
        self.yield_now = False
        self.stop_at: tuple[int, int] | None = None
        self.tell_step = False
        self.mode: int | str = 200  #: a status, or one of: garbage, close, hang
        self.is_slow = False  #: true: what it answers to reports is on its way, and arrives when this is false again
        self.dislikes = ""  #: a field that makes it refuse a report
        self.reports: list[dict[str, Any]] = []  #: those that were taken
        self.refused: list[str] = []
        self.polls: list[dict[str, str]] = []
        self.requests = 0
        self.changed = threading.Condition()
        self._port = 0
        self._http: _Http | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Again on the same address, when it was stopped."""
        self._http = _Http(("127.0.0.1", self._port), self)
        self._port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._http is not None:
            http, self._http = self._http, None
            http.shutdown()
            http.server_close()
            http.end_connections()

    def environ(self, **more: str) -> dict[str, str]:
        """What a task of this attempt is given."""
        return {
            "SWELL_URL": self.url,
            "SWELL_TOKEN": self.token,
            "SWELL_ATTEMPT": self.attempt,
            "SWELL_JOB_ID": self.attempt.partition(".")[0],
            "SWELL_CHECKPOINTS": str(self.folder),
            **more,
        }

    def order(self, stop_after: int | None = None, *, yield_now: bool = False) -> None:
        with self.changed:
            self.stop_after, self.yield_now = stop_after, yield_now
            self.changed.notify_all()

    def order_step(self, stop_at: tuple[int, int] | None = None, *, tell: bool = False) -> None:
        """Stop at this step; or `tell`: say where you are."""
        with self.changed:
            self.stop_at, self.tell_step = stop_at, tell
            self.changed.notify_all()

    @property
    def spelled(self) -> str:
        """What is asked, as somebody who knows it says so."""
        text = ("" if self.stop_after is None else str(self.stop_after)) + ("?" if self.tell_step else "")
        return text if self.stop_at is None else f"{text}@{self.stop_at[0]}.{self.stop_at[1]}"

    def order_yield(self) -> None:
        """At once, and wait until rank 0 knows: it was listening, is answered, and asks again."""
        self.wait(lambda: self.polls, "it to listen")
        polls = len(self.polls)
        self.order(yield_now=True)
        self.wait(lambda: len(self.polls) > polls, "it to hear of it")

    def set_slow(self, is_slow: bool) -> None:
        with self.changed:
            self.is_slow = is_slow
            self.changed.notify_all()

    def set_mode(self, mode: int | str) -> None:
        with self.changed:
            self.mode = mode
            self.changed.notify_all()

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Until it is so; an error that says what was waited for when it never is."""
        with self.changed:
            if not self.changed.wait_for(condition, BOUND_S):
                said = f"reports: {str(self.reports[-3:])[-1500:]}, polls: {self.polls[-3:]}"
                raise AssertionError(f"waited for {what}; {said}")
            return condition()

    def wait_report(self, matches: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        found: dict[str, Any] = self.wait(lambda: next((one for one in self.reports if matches(one)), None), what)
        return found

    def wait_heard(self, stop_after: int | None, rank: int = 0) -> None:
        """Until that rank knows: it asks again, and says what it knows."""
        known = "" if stop_after is None else str(stop_after)
        self.wait(
            lambda: any(poll["known"] == known and poll["rank"] == str(rank) for poll in self.polls),
            f"rank {rank} to hear {stop_after}",
        )

    def checkpoints(self) -> list[tuple[int, str | None]]:
        """Reported, in order."""
        found = [report["checkpoint"] for report in self.reports if "checkpoint" in report]
        return [(one["epochs_done"], one["path"]) for one in found]

    def steps(self) -> int:
        return sum(report["steps"][0] for report in self.reports if "steps" in report)

    def epochs(self) -> list[int]:
        return [number for report in self.reports for number, _ in report.get("epochs", [])]

    def objection(self, report: dict[str, Any]) -> str:
        """Why the real one would refuse it; empty: it would not."""
        if self.dislikes in report:
            return self.dislikes
        if set(report) - FIELDS or "rank" not in report:
            return f"fields {sorted(report)}"
        if report["rank"] != 0 and set(report) - {"rank", "begun"}:
            return "figures of another rank"
        done = [one["epochs_done"] for one in self.reports if "epochs_done" in one]
        if done and report.get("epochs_done", done[-1]) < done[-1]:
            return "epochs go backwards"
        if len(report.get("epochs", [])) > 200 or len(report.get("metrics", {})) > 50:
            return "too many"
        if not all(math.isfinite(value) for value in report.get("metrics", {}).values()):
            return "not finite"
        return self._checkpoint_objection(report.get("checkpoint"))

    def _checkpoint_objection(self, checkpoint: dict[str, Any] | None) -> str:
        if checkpoint is None or checkpoint["path"] is None:
            return ""
        path = (self.folder / checkpoint["path"]).resolve()
        if not path.is_relative_to(self.folder.resolve()) or not path.exists():
            return f"no checkpoint {checkpoint['path']}"
        return ""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], server: Server) -> None:
        self.swell = server
        self.connections: set[Any] = set()
        super().__init__(address, _Handler)

    def end_connections(self) -> None:
        for connection in list(self.connections):
            try:
                connection.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        swell = self.server.swell
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_admitted("/report"):
            return
        if len(body) > 65536:
            self._answer(413, {"detail": "too large"})
            return
        report = json.loads(body, parse_constant=lambda _: math.nan)
        with swell.changed:
            objection = swell.objection(report)
            if objection:
                swell.refused.append(objection)
            else:
                swell.reports.append(report)
            orders = self._orders()
            swell.changed.notify_all()
            swell.changed.wait_for(lambda: not swell.is_slow, BOUND_S)
        if objection:
            self._answer(422, {"detail": objection})
        else:
            self._answer(200, orders)

    def do_GET(self) -> None:
        swell = self.server.swell
        if not self._is_admitted("/control"):
            return
        query = {
            name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()
        }
        with swell.changed:
            swell.polls.append(query)
            swell.changed.notify_all()
            swell.changed.wait_for(
                lambda: swell.spelled != query["known"] or swell.yield_now or swell.mode != 200,
                float(query["hold_s"]),
            )
        self._answer(200, self._orders())

    def _is_admitted(self, end: str) -> bool:
        swell = self.server.swell
        with swell.changed:
            swell.requests += 1
            mode = swell.mode
            swell.changed.notify_all()
        if mode == "hang":
            with swell.changed:
                swell.changed.wait_for(lambda: swell.mode != "hang", BOUND_S)
            self.close_connection = True
        elif mode == "close":
            self.close_connection = True
        elif mode == "garbage":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{[<oops>]")
        elif mode != 200:
            self._answer(int(mode), {"detail": f"the test said {mode}"})
        elif self.headers["Authorization"] != f"Bearer {swell.token}":
            self._answer(401, {"detail": "token"})
        elif urlsplit(self.path).path != f"/api/v1/attempts/{swell.attempt}{end}":
            self._answer(409, {"detail": "attempt"})
        else:
            return True
        return False

    def _orders(self) -> dict[str, Any]:
        swell = self.server.swell
        asked = {"stop_after_epoch": swell.stop_after, "yield_now": swell.yield_now}
        return {
            **asked,
            "tell_step": swell.tell_step,
            "stop_at_step": None if swell.stop_at is None else [*swell.stop_at],
        }

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silent."""


@contextmanager
def serving(folder: Path, **options: str) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, **options)
    try:
        yield server
    finally:
        server.set_mode(500)
        server.stop()


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """For what no server sees: a file that goes away, a thread that ends."""
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        threading.Event().wait(0.005)
