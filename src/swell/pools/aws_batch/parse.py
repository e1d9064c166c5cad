"""What do AWS's answers say about the workers of a pool, and what do its refusals mean?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from swell.errors import Rejected, SwellError, Unavailable
from swell.model.pool import pool_of
from swell.pools.aws_batch.render import FINGERPRINT
from swell.pools.backend import DETAIL_MAX, WORD_MAX, BackendWorker, WorkerState

Document = dict[str, Any]

#: In the order in which a job goes through them: one that moves on between two lists is in the later one.
LIVE = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
STATES = {
    **dict.fromkeys(LIVE[:4], WorkerState.PENDING),
    "RUNNING": WorkerState.RUNNING,
    "SUCCEEDED": WorkerState.ENDED,
    "FAILED": WorkerState.ENDED,
}
LOG_GROUP = "/aws/batch/job"
MACHINE_GONE = re.compile(r"Host EC2 .* terminated")
THROTTLED = re.compile(r"Throttl|TooManyRequests|RequestLimitExceeded|SlowDown|LimitExceededException")
PASSING = re.compile(r"ExpiredToken|RequestExpired|InternalFailure|ServiceUnavailable|ServerException")


def is_ours(name: str, pool: str, job_filter: str | None) -> bool:
    if pool_of(name) == pool:
        return True
    return job_filter is not None and re.fullmatch(job_filter, name) is not None


def parse_ids(pages: Iterable[Document], pool: str, job_filter: str | None) -> tuple[str, ...]:
    """Of the jobs in lists that are workers of the pool; each once."""
    found = {
        job["jobId"]: None
        for page in pages
        for job in page["jobSummaryList"]  # missing: it is no list of jobs, and not an empty one
        if is_ours(job["jobName"], pool, job_filter)
    }
    return tuple(found)


def parse_jobs(jobs: Iterable[Document], region: str) -> tuple[BackendWorker, ...]:
    return tuple(sorted((_parse_job(job, region) for job in jobs), key=lambda worker: (worker.id, worker.backend_id)))


def _parse_job(job: Document, region: str) -> BackendWorker:
    status, container = str(job["status"]), job.get("container") or {}
    state = STATES.get(status, WorkerState.UNKNOWN)
    has_ended = state is WorkerState.ENDED
    detail = ": ".join(str(text) for text in (job.get("statusReason"), container.get("reason")) if text)
    stream = container.get("logStreamName")
    return BackendWorker(
        id=str(job["jobName"]),
        backend_id=str(job["jobId"]),
        state=state,
        word=(f"{status}, terminating" if job.get("isTerminated") and not has_ended else status)[:WORD_MAX],
        detail=detail[:DETAIL_MAX],
        exit_code=int(container["exitCode"]) if has_ended and "exitCode" in container else None,
        log=log_page(region, stream) if stream else job_page(region, str(job["jobId"])),
        is_proof=has_ended and ("exitCode" in container or MACHINE_GONE.search(detail) is not None),
    )


def job_page(region: str, job: str) -> str:
    return f"https://console.aws.amazon.com/batch/home?region={region}#jobs/detail/{quote(job, safe='')}"


def log_page(region: str, stream: str) -> str:
    group, events = (quote(quote(part, safe=""), safe="").replace("%", "$") for part in (LOG_GROUP, stream))
    place = f"#logsV2:log-groups/log-group/{group}/log-events/{events}"
    return f"https://console.aws.amazon.com/cloudwatch/home?region={region}{place}"


def parse_definition(pages: Iterable[Document], wanted: Document) -> str | None:
    """The ARN of the newest that is exactly the wanted one. None: there is none."""
    fitting = [
        found
        for page in pages
        for found in page["jobDefinitions"]
        if (found.get("parameters") or {}).get(FINGERPRINT) == wanted["parameters"][FINGERPRINT]
    ]
    newest = max(fitting, key=lambda found: int(found["revision"]), default=None)
    return None if newest is None else str(newest["jobDefinitionArn"])


def parse_log(page: Document) -> tuple[bytes, ...]:
    return tuple(str(event["message"]).encode() + b"\n" for event in page["events"])


def parse_stream(jobs: Iterable[Document]) -> str | None:
    """None: the job has not started, or is not known."""
    for job in jobs:
        stream = (job.get("container") or {}).get("logStreamName")
        return None if stream is None else str(stream)
    return None


def refusal(doing: str, status: int, code: str, message: str) -> SwellError:
    """Of an answer that is an error."""
    said = f"{doing}: {code}: {message}" if message else f"{doing}: {code or f'HTTP {status}'}"
    if THROTTLED.search(code) or status == 429:
        return Unavailable(f"{said}; AWS is asked too often")
    if PASSING.search(code) or status >= 500 or status < 400:
        return Unavailable(said)
    return Rejected(said)
