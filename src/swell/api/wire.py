"""The shapes on the wire, for validation of what comes in and for the OpenAPI description of what goes out."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

State = Literal["queued", "held", "starting", "running", "stopping", "succeeded", "failed", "cancelled"]


NUMBER_MAX = 2**63 - 1  # what the store and a file's offset can hold
CANCELLED_MAX = 10_000  # by one request; as many as one user may have in line, and `all` has no list
FILES_MAX = 1000  # that one command submits
NAME_MAX = 1000  # characters of a job's name or id


class Json(JSONResponse):
    """ASCII only: a command or a variable may hold bytes that are no UTF-8, which travel as lone surrogates."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FileIn(Strict):
    name: Annotated[str, Field(max_length=NAME_MAX)] = Field(description="name of the document in error messages")
    text: str = Field(description="the document, as YAML text, or a batch script of Slurm")
    arguments: list[str] = Field(
        default_factory=list, max_length=10_000, description="words that a batch script is started with"
    )
    options: str = Field(
        default="", max_length=10_000, description="options of sbatch that override those in a batch script"
    )


class CommitIn(Strict):
    sha: str = Field(pattern=r"^[0-9a-f]{40,64}$")
    message: str = Field(default="", max_length=4096)


class Submission(Strict):
    """A manifest, or several files of them, and where they were submitted from."""

    manifest: str | dict[str, Any] | None = Field(default=None, description="YAML text, or one parsed document")
    files: list[FileIn] = Field(
        default_factory=list,
        max_length=FILES_MAX,
        description="documents instead of `manifest`: accepted together, all or none",
    )
    workdir: str = Field(description="absolute path of the folder in which tasks run unless the manifest names another")
    umask: int = Field(default=0o022, ge=0, le=0o777)
    env: dict[str, str] = Field(default_factory=dict, description="the caller's environment; never returned")
    commit: CommitIn | None = Field(
        default=None, description="the commit in the folder of the documents; tasks of AIchor manifests read VCS_SHA"
    )
    uploaded: str = Field(
        default="",
        max_length=64,
        description="id of a folder that was sent (/files/folders); tasks run in a copy of it",
    )
    dry_run: bool = Field(default=False, description="only read and check the documents")
    what_if: bool = Field(
        default=False, description="do not submit; answer whether, when and where each job would start"
    )
    render: Literal["", "kubernetes", "jobset", "sbatch", "native"] = Field(
        default="", description="do not submit; answer with each job in this notation, and with what it cannot express"
    )
    resize: Literal["at-checkpoint", "immediate", "either", "never"] = Field(
        default="at-checkpoint", description="default resize mode of Kubernetes objects that do not name one"
    )
    wait_for_nodes: bool = Field(
        default=False, description="also queue jobs that could never run on the present machines"
    )
    in_images: bool = Field(
        default=False, description="run AIchor manifests in the image that they name, which is on this machine"
    )
    suffix: str = Field(
        default="", max_length=62, pattern=r"^[a-z0-9.-]*$", description="suffix for the name of every manifest"
    )
    replaces: bool = Field(default=False, description="on a cluster: delete finished objects that have the same names")
    takes_names: bool = Field(
        default=False, description="fail if an active job of the caller has the same name as one of these"
    )
    via: Literal["", "run-scheduler"] = Field(
        default="", description="command whose options are named in error messages"
    )


class OutputFolder(Strict):
    """What a worker sends back of an attempt."""

    attempt: Annotated[str, Field(max_length=NAME_MAX, pattern=r"^[0-9]{1,18}\.[0-9]{1,9}$")]
    node: str = Field(
        default="",
        max_length=NAME_MAX,
        description="node of the server's own worker, whose requests have no header for it",
    )
    chunks: list[Annotated[str, Field(max_length=64)]] = Field(
        max_length=100, description="SHA-256 of the chunks of the listing of its files"
    )


class Cancellation(Strict):
    grace_s: float | None = Field(default=None, ge=0, le=86400, description="null: the job's own grace period")


class Cancellations(Cancellation):
    jobs: list[Annotated[str, Field(max_length=NAME_MAX)]] = Field(
        default_factory=list, max_length=CANCELLED_MAX, description="ids or names of jobs; duplicates count once"
    )
    all: bool = Field(default=False, description="cancel every active job of the caller, instead of a list")
    user: str | None = Field(default=None, description="with `all`: jobs of this user; administrators only")
    all_users: bool = Field(default=False, description="with `all`: jobs of all users; administrators only")


class Sync(BaseModel):
    """A worker's report; the answer is the desired set when it is newer than `version`.

    What is in its lists is checked one by one until something is wrong: pydantic would describe every fault.
    """

    node: dict[str, Any]
    version: int
    store: str = ""
    server: str = Field(default="", description="ID of the server process that received all earlier reports")
    tasks: list[Any] = Field(default_factory=list, description="observed tasks, as lists")
    runs: list[Any] = Field(default_factory=list, description="progress of each launch, as objects")
    gpu_utilization: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="utilization of the node's GPUs over the last half minute; null: not measured",
    )
    hold_s: float = Field(default=0, ge=0, le=60)
    now: float | None = Field(
        default=None, ge=0, le=1e11, description="clock of the worker; null: the same as the server's"
    )
    terms: dict[str, Any] | None = Field(default=None, description="lease and tag of a remote worker")


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
    stopped: int = Field(description="tasks that Swell stopped: cancelled, or in a gang of which another task failed")


class ProgressOut(BaseModel):
    epochs_done: float | None
    epochs_total: float | None
    expected_end_at: str | None = Field(description="expected end if nothing changes")


class ExpectedStartOut(BaseModel):
    earliest: str
    latest: str | None = Field(description="null: unknown, because a job ahead of it has no time limit")


class JobOut(BaseModel):
    id: int
    name: str
    user: str
    state: State
    reason: ReasonOut | None = Field(description="why the job is in its state; null only while running or succeeded")
    priority: int
    width: int
    width_min: int
    width_max: int
    width_unit: Literal["gpus", "tasks"] = Field(description="unit of the width: GPUs of each task, or tasks")
    tasks_beside: int = Field(description="tasks of roles that the width does not count")
    is_array: bool = Field(description="true: independent tasks; false: a gang, whose tasks start together")
    tasks: TasksOut
    progress: ProgressOut
    metrics: dict[str, float] = Field(description="latest metrics that the job reported, by name")
    attempts: int
    resizes: int
    preemptions: int
    failures: int = Field(description="failures of the job; preemptions do not count")
    lost_gpu_seconds: float = Field(description="GPU-seconds of work after the last checkpoint that had to be repeated")
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    expected_start: ExpectedStartOut | None = Field(
        description="estimated start of a queued job; null: not queued, or unknown"
    )
    ran_s: float = Field(description="run time of all attempts that have ended, without the waits between them")
    running_since: str | None = Field(description="when the present attempt began; null: none runs")
    exit_code: int | None
    nodes: list[str]
    version: int = Field(description="increases with every change; `?after=` waits for that")


class JobsOut(BaseModel):
    jobs: list[JobOut]
    not_shown: int = 0
    states: dict[str, int] = Field(description="number of jobs in each state, including those not shown")
    of_others: int = Field(default=0, description="number of jobs that `all_users` would add to the caller's own")
    specs: list[dict[str, Any]] = Field(
        default_factory=list,
        description="with `file`: the jobs of the YAML as they were understood",
    )
    notes: list[str] = Field(
        default_factory=list,
        description="notes on the job of one document: fields without effect, and what its user may not expect",
    )


class ErrorBody(BaseModel):
    kind: str
    message: str


class ErrorOut(BaseModel):
    error: ErrorBody


SCHEMAS = "#/components/schemas/{model}"
ERROR_CONTENT = {"application/json": {"schema": {"$ref": SCHEMAS.format(model="ErrorOut")}}}
#: Named by reference: with `"model": ErrorOut`, FastAPI would build 400 validators for each application, and use none.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"content": ERROR_CONTENT, "description": text}
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


def error_schemas() -> dict[str, Any]:
    """What `ERROR_CONTENT` refers to, by name."""
    whole = ErrorOut.model_json_schema(ref_template=SCHEMAS)
    inner: dict[str, Any] = whole.pop("$defs")
    return {**inner, "ErrorOut": whole}
