"""What is a pool on AWS Batch told?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import Flag, FlagKind
from swell.pools.image import (
    IMAGE_FLAG,
    MOUNT_FLAG,
    SHARED_MEMORY_FLAG,
    SharedFolder,
    check_shared_memory,
    read_image,
    read_mounts,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+){1,3}-[0-9]{1,2}")
QUEUE = re.compile(r"[A-Za-z0-9:/_-]{1,512}")  # a name or an ARN
ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,576}")
USER = re.compile(r"[A-Za-z0-9_.-]{1,64}(?::[A-Za-z0-9_.-]{1,64})?")
FILTER_MAX = 200  # characters of a regular expression

FLAGS = (
    IMAGE_FLAG,
    Flag("region", "region", FlagKind.TEXT, "REGION", "AWS region.  [default: us-east-1]"),
    Flag("job-queue", "job_queue", FlagKind.TEXT, "NAME", "Job queue that workers are submitted to."),
    Flag(
        "job-definition-name",
        "job_definition_name",
        FlagKind.TEXT,
        "NAME",
        "Job definition; a revision is registered only when none fits.  [default: swell-worker]",
    ),
    Flag("user", "user", FlagKind.TEXT, "USER", "User in the container.  [default: root]"),
    Flag(
        "job-filter",
        "job_filter",
        FlagKind.TEXT,
        "REGEX",
        "Count the jobs of the queue whose whole name matches.  [default: those of this pool]",
    ),
    Flag(
        "execution-role",
        "execution_role",
        FlagKind.TEXT,
        "ARN",
        "Role with which AWS reads the token from Parameter Store. Without it the token is in the job's environment, "
        "where everybody who may describe jobs can read it.",
    ),
    Flag("job-role", "job_role", FlagKind.TEXT, "ARN", "Role of the jobs, for example to read from S3."),
    MOUNT_FLAG,
    SHARED_MEMORY_FLAG,
)


@dataclass(frozen=True, slots=True)
class AwsBatchOptions:
    image: str
    job_queue: str
    region: str = "us-east-1"
    job_definition_name: str = "swell-worker"
    user: str = "root"
    job_filter: str | None = None  #: None: the names that this pool gives
    execution_role: str | None = None  #: None: the token travels in the job's environment
    job_role: str | None = None  #: None: jobs have the role of the machine
    mounts: tuple[SharedFolder, ...] = ()
    shared_memory_mib: int | None = None  #: None: half of the worker's memory


def read(given: Mapping[str, Any]) -> AwsBatchOptions:
    """`given`: values by field, as `read_flags` returns them."""
    check_shared_memory(given)
    said = {**given, "image": read_image(given.get("image"), os.environ), "mounts": read_mounts(given.get("mounts"))}
    if "job_queue" not in said:
        raise Rejected("a pool on AWS Batch needs --job-queue NAME; `aws batch describe-job-queues` lists them")
    for field, shape, example in (
        ("job_queue", QUEUE, "swell-gpu"),
        ("region", REGION, "us-east-1"),
        ("job_definition_name", NAME, "swell-worker"),
        ("user", USER, "root"),
        ("execution_role", ROLE, "arn:aws:iam::123456789012:role/swell-execution"),
        ("job_role", ROLE, "arn:aws:iam::123456789012:role/swell-jobs"),
    ):
        if field in said and not shape.fullmatch(said[field]):
            raise Rejected(
                f"--{field.replace('_', '-')} {said[field][:100]!r} cannot be right; write it like {example}"
            )
    _refuse_odd_filter(said.get("job_filter"))
    return AwsBatchOptions(**said)


def _refuse_odd_filter(text: str | None) -> None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise Rejected(f"--job-filter {text!r} is not a regular expression: {error}") from error
    if len(text or "") > FILTER_MAX:
        raise Rejected(f"--job-filter has more than {FILTER_MAX} characters; write a shorter one")
