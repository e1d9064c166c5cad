"""Send to AWS what `render` made, and hand its answers to `parse`. The only file that knows boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from swell.errors import NotFound, Rejected, SwellError, Unavailable
from swell.pools.aws_batch.options import AwsBatchOptions
from swell.pools.aws_batch.parse import (
    LIVE,
    LOG_GROUP,
    parse_definition,
    parse_ids,
    parse_jobs,
    parse_log,
    parse_stream,
    refusal,
)
from swell.pools.aws_batch.render import render_definition, render_job, render_parameter, render_text
from swell.pools.backend import BackendWorker, WorkerOrder

T = TypeVar("T")
Document = dict[str, Any]

CONNECT_S = 10.0
ANSWER_S = 30.0
READ_TRIES = 3
DESCRIBED_MAX = 100  # jobs in one answer of DescribeJobs
CREDENTIALS = "log in (`aws sso login`), or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


class AwsBatchBackend:
    def __init__(self, pool: str, options: AwsBatchOptions, *, answer_s: float = ANSWER_S) -> None:
        self._pool = pool
        self._options = options
        waits = {"connect_timeout": min(CONNECT_S, answer_s), "read_timeout": answer_s}
        again = Config(**waits, retries={"mode": "standard", "total_max_attempts": READ_TRIES})
        once = Config(**waits, retries={"total_max_attempts": 1})  # SubmitJob twice is two jobs
        session = asked("finding AWS credentials", lambda: boto3.Session(region_name=options.region))
        self._client = partial(session.client, config=again)
        self._batch = self._client("batch")
        self._orders = session.client("batch", config=once)
        self._stored_token = ""  #: the one in Parameter Store, as far as we have put it there

    def observe(self) -> tuple[BackendWorker, ...]:
        doing = f"listing the workers of pool {self._pool} on AWS Batch"
        return asked(doing, lambda: parse_jobs(self._described(self._listed()), self._options.region))

    def launch(self, order: WorkerOrder) -> str:
        doing = f"launching worker {order.id} on AWS Batch"
        if self._options.execution_role is not None and order.token != self._stored_token:
            asked(doing, lambda: self._client("ssm").put_parameter(**render_parameter(order)))
            self._stored_token = order.token
        definition = asked(doing, lambda: self._definition(order))
        job = render_job(order, self._options, definition)
        return asked(doing, lambda: str(self._orders.submit_job(**job)["jobId"]))

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        """Batch knows one way only: SIGTERM, and SIGKILL when its stop time-out is over."""
        reason = "killed by Swell" if is_forced else "not needed any more by Swell"
        doing = f"ending job {backend_id[:100]} on AWS Batch"
        asked(doing, lambda: self._batch.terminate_job(jobId=backend_id, reason=reason))

    def logs(self, backend_id: str) -> Iterator[bytes]:
        doing = f"reading the log of job {backend_id[:100]} on AWS Batch"
        stream = asked(doing, lambda: parse_stream(self._batch.describe_jobs(jobs=[backend_id])["jobs"]))
        if stream is None:
            raise NotFound(f"job {backend_id[:100]} has no log: it has not started, or AWS Batch does not know it")
        place = {"logGroupName": LOG_GROUP, "logStreamName": stream, "startFromHead": True}
        logs = self._client("logs")
        after: Document = {}
        while True:
            page = asked(doing, partial(logs.get_log_events, **place, **after))
            yield from asked(doing, partial(parse_log, page))
            token = page.get("nextForwardToken")
            if token is None or token == after.get("nextToken"):  # the end, as far as it has been written
                return
            after = {"nextToken": token}

    def render(self, order: WorkerOrder) -> str:
        return render_text(order, self._options)

    def _listed(self) -> tuple[str, ...]:
        """Live ones, and the newest that have ended: AWS keeps those for a week."""
        queue = self._options.job_queue
        listing = self._batch.get_paginator("list_jobs")
        pages = [page for status in LIVE for page in listing.paginate(jobQueue=queue, jobStatus=status)]
        named = [{"name": "JOB_NAME", "values": [f"{self._pool}-*"]}]
        pages.append(self._batch.list_jobs(jobQueue=queue, filters=named, maxResults=DESCRIBED_MAX))
        return parse_ids(pages, self._pool, self._options.job_filter)

    def _described(self, ids: tuple[str, ...]) -> Iterator[Document]:
        rest = iter(ids)
        while some := list(islice(rest, DESCRIBED_MAX)):
            yield from self._batch.describe_jobs(jobs=some)["jobs"]

    def _definition(self, order: WorkerOrder) -> str:
        wanted = render_definition(order, self._options)
        listing = self._batch.get_paginator("describe_job_definitions")
        pages = listing.paginate(jobDefinitionName=wanted["jobDefinitionName"], status="ACTIVE")
        found = parse_definition(pages, wanted)
        return found or str(self._orders.register_job_definition(**wanted)["jobDefinitionArn"])


def asked(doing: str, ask: Callable[[], T]) -> T:
    """What it returns, or one of our errors."""
    try:
        return ask()
    except SwellError:
        raise
    except ClientError as error:
        details = error.response.get("Error") or {}
        status = (error.response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
        raise refusal(doing, int(status), str(details.get("Code") or ""), str(details.get("Message") or "")) from error
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise Rejected(f"{doing}: {error}; {CREDENTIALS}") from error
    except ParamValidationError as error:
        raise Rejected(f"{doing}: {error}") from error
    except BotoCoreError as error:
        raise Unavailable(f"{doing}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"{doing}: an answer that cannot be read: {error!r}") from error
