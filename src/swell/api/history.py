"""Endpoint for what jobs did, as a workload that `swell sim` reads: when they came, what they took, how fast they were.

A job that told how long its epochs take at several widths keeps that curve, and the epochs it did. Of any other it is
only known how long its last attempt ran, at its width. The simulator gives each GPU a task of its own, so jobs that
share a GPU, arrays and jobs without GPUs have no line; they are counted instead.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from swell.api.box import Caller, caller_of
from swell.api.services import Services
from swell.api.usage import DAYS_MAX, first_day, whose
from swell.api.wire import ERRORS
from swell.controller.accounting import day_of
from swell.controller.curves import script_of
from swell.model.job import JobId
from swell.model.width import gpus_at, tasks_at
from swell.store import AttemptRecord, JobRecord
from swell.throughput import predict

JOBS_MAX = 100_000  # in one answer: some 30 MB; name a later day where there were more
DURATION_S_MIN = 0.001  # what ended at once took a moment all the same


class HistoryLine(BaseModel):
    submit_time: float = Field(description="seconds after the first of these jobs was submitted")
    gpus: str = Field(description="GPUs that it may use, such as 2 or 1..8")
    requested: int = Field(description="GPUs of its last attempt")
    duration: float = Field(description="seconds of training on so many GPUs")
    speedup: str = Field(
        description="speed at each number of GPUs relative to one GPU, such as 1:1 2:1.9; empty if unknown"
    )
    memory: str = Field(description="memory for each GPU")
    cpus: float = Field(description="CPUs for each GPU")
    priority: int
    user: str
    name: str
    epochs: int
    script: str = Field(description="same for a user's jobs that share measured speeds; empty: it shares none")
    resumes: str = Field(
        description="whether it resumes from a checkpoint (yes), or begins again when it is stopped (no)"
    )


class HistoryOut(BaseModel):
    since: str = Field(description="first day on which they ended, UTC")
    jobs: list[HistoryLine]
    left_out: dict[str, int] = Field(description="number of jobs without a line, by reason")


def history_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["usage"], responses=ERRORS)

    @router.get("/history", response_model=HistoryOut)
    async def history(
        caller: Annotated[Caller, Depends(caller_of)],
        since: str | None = Query(None, description="first day, UTC, as in 2026-11-16", max_length=20),
        days: int | None = Query(None, ge=1, le=DAYS_MAX, description="number of days, including today"),
        user: str | None = None,
        all_users: bool = False,
    ) -> Response:
        """Jobs that have ended since, in the order of their submission."""
        wanted = whose(caller, user, all_users=all_users)
        caller.reads_of(wanted)
        first = first_day(since, days, date.fromisoformat(day_of(services.now())))

        def render() -> Response:
            moment = datetime.fromisoformat(f"{first}T00:00:00+00:00").timestamp()
            pages = services.store.pages(ended_since=moment, owner=wanted)
            lines, left_out = history_lines((job for page in pages for job in page), services.store.attempts)
            return Response(_written(first, lines, left_out), media_type="application/json")

        return await services.read(caller.user, render)

    return router


def _written(since: str, lines: Iterable[dict[str, Any]], left_out: Mapping[str, int]) -> str:
    """Line by line: in one call, `json` keeps every other thread waiting, for 0.7 s with 100,000 lines."""
    jobs = ",".join(json.dumps(line, allow_nan=False) for line in lines)
    return f'{{"since":{json.dumps(since)},"left_out":{json.dumps(left_out)},"jobs":[{jobs}]}}'


def history_lines(
    jobs: Iterable[JobRecord], attempts: Callable[[JobId], Sequence[AttemptRecord]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """One for each, and how many have none, by why."""
    found: list[tuple[float, JobId, dict[str, Any]]] = []
    left_out: Counter[str] = Counter()
    for job in jobs:
        line = _line(job, attempts) if len(found) < JOBS_MAX else f"more than {JOBS_MAX} jobs"
        if isinstance(line, str):
            left_out[line] += 1
        else:
            found.append((job.submitted_at, job.id, line))
    found.sort(key=lambda one: one[:2])
    begin = found[0][0] if found else 0.0
    return [{"submit_time": round(at - begin, 3), **line} for at, _, line in found], dict(sorted(left_out.items()))


def _line(job: JobRecord, attempts: Callable[[JobId], Sequence[AttemptRecord]]) -> dict[str, Any] | str:
    """Or why it has none."""
    if job.ended_at is None:
        return "not ended"
    if job.is_array:
        return "arrays"
    spec = job.spec
    if not gpus_at(spec, job.width_min):
        return "without whole GPUs"
    ran = [one for one in attempts(job.id) if one.started_at is not None and one.ended_at is not None]
    if not ran:
        return "never ran"
    low, high, last = gpus_at(spec, job.width_min), gpus_at(spec, job.width_max), ran[-1]
    training = job.training
    epochs = 0 if training is None else round(training.epochs_done)
    timings = () if training is None or not epochs else training.epoch_s()
    of_last = (last.ended_at or 0.0) - (last.started_at or 0.0)
    duration = epochs * predict(timings, last.width) if timings else of_last
    per_gpu = _per_gpu(job)
    return {
        "gpus": str(low) if low == high else f"{low}..{high}",
        "requested": gpus_at(spec, last.width),
        "duration": round(max(DURATION_S_MIN, duration), 3),
        "speedup": _speedup(job, timings, last.width),
        "memory": f"{per_gpu[1]}MiB",
        "cpus": per_gpu[0] / 1000,
        "priority": job.priority,
        "user": job.owner,
        "name": job.name,
        "epochs": max(1, epochs),
        "script": _script(job),
        "resumes": "yes" if training is not None and training.checkpoint is not None else "no",
    }


def _script(job: JobRecord) -> str:
    key = script_of(job.spec, job.owner)
    return "" if key is None else f"{key.digest[:8]}-{key.name}"


def _per_gpu(job: JobRecord) -> tuple[int, int]:
    """Thousandths of CPUs, and MiB."""
    groups, gpus = tasks_at(job.spec, job.width_min), gpus_at(job.spec, job.width_min)
    cpus_milli = sum(task.cpus_milli * count for task, count in groups)
    return cpus_milli // gpus, sum(task.memory_mib * count for task, count in groups) // gpus


def _speedup(job: JobRecord, timings: Sequence[tuple[int, int, float]], last: int) -> str:
    """By GPUs, where it was measured and where it could be."""
    if not timings:
        return ""
    spec, measured = job.spec, {width for width, _, _ in timings}
    widths = sorted({job.width_min, job.width_max, last, *measured} & set(range(job.width_min, job.width_max + 1)))
    one_gpu_s = gpus_at(spec, 1) * predict(timings, 1)
    return " ".join(f"{gpus_at(spec, width)}:{one_gpu_s / predict(timings, width):.6g}" for width in widths)
