"""Nothing is read from the store on the event loop, where everybody's requests wait for it.

Every endpoint that a user may call is asked as the suite of the hostile user asks it (`box/hostile/worst.py`), of a
server on which that user has many jobs of one name, and it is noted in which thread the store is read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from api.service import Service, submission
from box.hostile.worst import WORST

JOBS = 60


class Stage:
    """As `box.hostile.stage.Stage`, but for the machine."""

    def __init__(self, service: Service) -> None:
        self.jobs = [service.submit(name="same", gpus=99) for _ in range(JOBS)]
        self.array = service.submit(name="array", gpus=99, array="0-99")
        self.training = service.submit(name="training", gpus=1)
        service.worker.begin(self.training)
        self.attempt, self.token, self.store = f"{self.training}.1", "none", service.store.id

    def waiting(self, name: str, **more: Any) -> str:
        return (
            f"{{apiVersion: swell/v1, kind: Job, metadata: {{name: {name}}}, spec: {{command: ['true'], gpus: 99}}}}\n"
        )

    def submission(self, manifest: str, **more: Any) -> Any:
        raise NotImplementedError


class Readings:
    """Statements that were run on event loops."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._lock = threading.Lock()

    def note(self, *words: Any) -> None:
        """As SQLAlchemy tells it: the connection, the cursor, the statement, and more."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        with self._lock:
            self.found.append(words[2])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("loop"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def stage(service: Service) -> Stage:
    return Stage(service)


@pytest.fixture
def readings(service: Service) -> Iterator[Readings]:
    made, engine = Readings(), service.store._reading
    event.listen(engine, "before_cursor_execute", made.note)
    yield made
    event.remove(engine, "before_cursor_execute", made.note)


#: What makes many jobs has a body of its own, the stop of the server would end the others, and a stream has no end. The
#: secret of jobs is an administrator's.
OTHERS = (
    "POST /api/v1/jobs",
    "POST /deploy",
    "POST /api/v1/server/stop",
    "GET /api/v1/events/stream",
    "POST /api/v1/job-secret/rotate",
)


@pytest.mark.parametrize("endpoint", [one for one in WORST if one not in OTHERS])
def test_an_endpoint_reads_nothing_on_the_event_loop(
    service: Service, stage: Any, readings: Readings, endpoint: str
) -> None:
    """`POST /scale` read all of its user's jobs there, when none of them could be scaled: everybody waited 13 s.

    To count jobs of one name is one row, and took 2 s in a flood of `DELETE /delete_job`.
    """
    request = WORST[endpoint](stage)
    service.ask(request.method, request.path, request.body, prefix="")
    assert readings.found == []


def test_neither_does_a_submission(service: Service, stage: Any, readings: Readings) -> None:
    assert service.ask("POST", "/jobs", submission("one", gpus=99)).status == 201
    assert readings.found == []


def test_the_measure_finds_what_is_read_on_an_event_loop(service: Service, stage: Any, readings: Readings) -> None:
    async def read() -> None:
        service.store.active(owner=None)

    asyncio.run(read())
    assert any(text.startswith("SELECT") for text in readings.found)
