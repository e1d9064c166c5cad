"""Whatever the description allows, and a good deal that it does not, is answered: no bug surfaces, nothing opens."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import requests
from hypothesis import given, settings

from api.service import JOB_SECRET, USER, WORKER, Service
from swell.api.box import Box
from swell.controller.reporting import make_token
from swell.machine.state_folder import StateFolder
from swell.model.job import AttemptId

pytestmark = pytest.mark.slow  # two hundred requests of each kind

STREAMS = "/api/v1/events/stream"  # never ends for whoever may read it
WAITS = ("wait_s", "hold_s")  # drawn up to a minute each; how long is not what is tested here
FOREVER = 4_000_000_000.0
IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"  # tools/soak.py description
BOUNDED = settings(max_examples=200 if IS_SOAK else 12, deadline=None, derandomize=not IS_SOAK)


@pytest.fixture(scope="module", params=["private", "box"])
def service(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("description")
    everybody = Box("swell-admin", runtime_folder=StateFolder(folder, folder / "swell.sock").runtime_folder)
    made = Service(folder, box=None if request.param == "private" else everybody)
    yield made
    made.close()


def each(service: Service, check: Callable[[Any], None]) -> set[str]:
    """Every operation with examples of its own, in a soak others each time; which there were."""
    import schemathesis  # 0.4 s of CPU, in each process that collects tests

    url = f"http://{service.host}/api/v1/openapi.json"
    described = schemathesis.openapi.from_url(url, headers={"Authorization": f"Bearer {USER}"})
    done = set()
    for found in described.get_all_operations():
        operation = found.ok()
        BOUNDED(given(operation.as_strategy())(check))()
        done.add(f"{operation.method.upper()} {operation.path}")
    return done


def without_waiting(case: Any) -> Any:
    if case.query:
        case.query = {name: value for name, value in case.query.items() if name not in WAITS}
    if isinstance(case.body, dict):
        case.body = {name: value for name, value in case.body.items() if name not in WAITS}
    return case


def right_token(case: Any) -> str:
    if case.path.startswith("/api/v1/workers/"):
        return WORKER
    return make_token(JOB_SECRET, AttemptId(1, 1), FOREVER) if "/attempts/" in case.path else USER


def begun(case: Any, token: str) -> tuple[int, str]:
    """The status, and the text where it has an end."""
    asked = without_waiting(case).as_transport_kwargs(headers={"Authorization": f"Bearer {token}"})
    with requests.request(**asked, timeout=20, stream=True) as answer:
        return answer.status_code, "" if case.path == STREAMS and answer.ok else answer.text


def test_whoever_may_ask_gets_an_answer_and_never_an_error_of_ours(service):
    def check(case: Any) -> None:
        if case.path_parameters and "attempt" in case.path_parameters:
            case.path_parameters = {"attempt": "1.1"}  # whose the token is; any other is refused before it is read
        status, text = begun(case, right_token(case))
        assert status < 500, text
        assert status not in (401, 403), text

    assert {"POST /api/v1/jobs", f"GET {STREAMS}"} <= each(service, check)


def test_whoever_may_not_ask_gets_nothing(service):
    def check(case: Any) -> None:
        if case.path == "/api/v1/health":
            return
        forged = make_token("another secret", AttemptId(1, 1), FOREVER)
        wrong = USER if right_token(case) != USER else WORKER
        for token in ("", "Bearer ", f"Bearer {forged}", f"Bearer {wrong}"):
            answer = without_waiting(case).call(headers={"Authorization": token}, timeout=20)
            assert answer.status_code in (400, 401, 403), (token, answer.status_code, answer.text)

    assert "POST /api/v1/server/stop" in each(service, check)
