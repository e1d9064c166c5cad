from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.service import Service
from api.trainee import GO_ON, Trainee


@pytest.fixture(scope="session")
def service(tmp_path_factory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("api"))
    yield made
    made.close()


@pytest.fixture
def trainee(service: Service) -> Iterator[Trainee]:
    made = Trainee(service)
    yield made
    service.ask("POST", f"/jobs/{made.job}/cancel")
    service.worker.end(made.job, 143)


@pytest.fixture
def unharmed(trainee: Trainee) -> Iterator[Trainee]:
    """Whatever is refused: the job is as it was, and the server takes the next report."""
    before = trainee.shown()
    yield trainee
    assert trainee.shown() == before
    assert trainee.report(metrics={"loss": 1.0}).json == GO_ON
