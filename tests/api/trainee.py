"""A job that runs and reports."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from api.service import JOB_SECRET, Answer, Service
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

GO_ON = {"stop_after_epoch": None, "yield_now": False}


class Trainee:
    """A job that runs, and the token it was given."""

    def __init__(self, service: Service, **spec: Any) -> None:
        self.service = service
        self.job = service.submit(**spec)
        service.worker.begin(self.job)
        self.token = make_token(JOB_SECRET, AttemptId(self.job, 1), time.time() + 3600)
        self.folder = Path(service.state.checkpoints) / str(self.job)
        self.folder.mkdir(parents=True)

    def ask(self, method: str, path: str, body: object = None, *, token: str | None = None) -> Answer:
        return self.service.ask(method, f"/attempts/{self.job}.1{path}", body, token=token or self.token)

    def report(self, body: object = None, **fields: Any) -> Answer:
        """With rank 0, unless a whole body is given."""
        return self.ask("POST", "/report", {"rank": 0, **fields} if body is None else body)

    def kubeflow(self, **status: Any) -> Answer:
        return self.ask("POST", "/trainer-status", {"trainerStatus": status})

    def shown(self) -> dict[str, Any]:
        return dict(self.service.ask("GET", f"/jobs/{self.job}/show").json)

    def progress(self) -> tuple[float | None, float | None]:
        found = self.shown()["progress"]
        return found["epochs_done"], found["epochs_total"]
