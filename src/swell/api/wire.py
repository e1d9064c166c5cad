"""The shapes on the wire, for validation of what comes in and for the OpenAPI description of what goes out."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

State = Literal["queued", "held", "starting", "running", "stopping", "succeeded", "failed", "cancelled"]


NUMBER_MAX = 2**63 - 1  # what the store and a file's offset can hold
CANCELLED_MAX = 10_000  # by one request; as many as one user may have in line, and `all` has no list
NAME_MAX = 1000  # characters of a job's name or id


class Json(JSONResponse):
    """ASCII only: a command or a variable may hold bytes that are no UTF-8, which travel as lone surrogates."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Submission(Strict):
    """A manifest and where it was submitted from."""

    manifest: str | dict[str, Any] = Field(description="YAML text, or one parsed document")
    workdir: str = Field(description="absolute path; tasks run there unless the manifest names another")
    umask: int = Field(default=0o022, ge=0, le=0o777)
    env: dict[str, str] = Field(default_factory=dict, description="the caller's environment; never returned")
    dry_run: bool = Field(default=False, description="read and check only")
    resize: Literal["at-checkpoint", "immediate", "either", "never"] = Field(
        default="at-checkpoint", description="how objects of Kubernetes that do not say so may be resized"
    )
    wait_for_nodes: bool = Field(
        default=False, description="also queue what could never run on the machines that are there now"
    )


class Cancellation(Strict):
    grace_s: float | None = Field(default=None, ge=0, le=86400, description="null: as the job says")


class Cancellations(Cancellation):
    jobs: list[Annotated[str, Field(max_length=NAME_MAX)]] = Field(
        default_factory=list, max_length=CANCELLED_MAX, description="ids or names; one that is there twice counts once"
    )
    all: bool = Field(default=False, description="every job of one's own that has not ended, instead of a list")
    user: str | None = Field(default=None, description="with `all`: of this user; administrators only")
    all_users: bool = Field(default=False, description="with `all`: of everybody; administrators only")


class Sync(BaseModel):
    """A worker's report; the answer is the desired set when it is newer than `version`."""

    node: dict[str, Any]
    version: int
    store: str = ""
    server: str = Field(default="", description="the server process that has been told everything before this")
    tasks: list[list[Any]] = Field(default_factory=list)
    runs: list[dict[str, Any]] = Field(default_factory=list)
    gpu_utilization: float | None = Field(
        default=None, ge=0, le=1, description="of its GPUs lately; null: not measured"
    )
    hold_s: float = Field(default=0, ge=0, le=60)


class ReasonOut(BaseModel):
    code: str
    message: str
    evidence: dict[str, Any]
    next: str


class TasksOut(BaseModel):
    total: int
    running: int
    succeeded: int
    failed: int


class ProgressOut(BaseModel):
    epochs_done: float | None
    epochs_total: float | None
    expected_end_at: str | None = Field(description="were nothing to change")


class JobOut(BaseModel):
    id: int
    name: str
    user: str
    state: State
    reason: ReasonOut | None = Field(description="null only while running or succeeded")
    priority: int
    width: int
    width_min: int
    width_max: int
    tasks: TasksOut
    progress: ProgressOut
    metrics: dict[str, float] = Field(description="what it reports of its training, by name; the newest values")
    attempts: int
    resizes: int
    preemptions: int
    failures: int = Field(description="of its own; preemptions do not count")
    lost_gpu_seconds: float = Field(description="work done after the last checkpoint that had to be done again")
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    nodes: list[str]
    version: int = Field(description="goes up with every change; `?after=` waits for it")


class JobsOut(BaseModel):
    jobs: list[JobOut]
    not_shown: int = 0
    states: dict[str, int] = Field(description="how many there are in each state, with those not shown")
    of_others: int = Field(default=0, description="how many `all_users` would add, where one's own were asked for")


class ErrorBody(BaseModel):
    kind: str
    message: str


class ErrorOut(BaseModel):
    error: ErrorBody


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text}
    for status, text in {
        401: "no token, or a stale one",
        403: "a wrong Host, Origin or kind of token; or only administrators may",
        404: "no such job, or not one of yours",
        409: "an ambiguous name, or a job in a state that does not allow it",
        413: "too large",
        422: "the request cannot be carried out as asked",
        429: "over a limit of how many or how often",
        503: "try again later",
    }.items()
}
