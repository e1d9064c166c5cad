"""Workers as jobs of AWS Batch: what is sent, and what is read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pools.contract import TOKEN, order
from swell.errors import Rejected, SwellError, Unavailable
from swell.pools.aws_batch.options import AwsBatchOptions
from swell.pools.aws_batch.parse import parse_definition, parse_ids, parse_jobs, refusal
from swell.pools.aws_batch.render import render_definition, render_job, render_parameter, render_text
from swell.pools.backend import BackendWorker, WorkerState
from swell.pools.image import SharedFolder
from swell.pools.kinds import find_kind

IMAGE = "registry.lab/swell-torch:1"
QUEUE = "swell-gpu"
EXECUTION_ROLE = "arn:aws:iam::123456789012:role/swell-execution"
OPTIONS = AwsBatchOptions(image=IMAGE, job_queue=QUEUE, execution_role=EXECUTION_ROLE)

# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_definition_is_the_same_for_every_worker_of_a_pool() -> None:
    options = replace(OPTIONS, job_role=EXECUTION_ROLE, mounts=(SharedFolder("/mnt/efs", "/shared"),))
    wanted = order(gpus=1, cpus_milli=1500)
    definition = render_definition(wanted, options)
    assert definition == render_definition(replace(order(gpus=1, cpus_milli=1500), token="another"), options)
    assert definition.pop("parameters").keys() == {"swell-definition"}
    assert definition == {
        "jobDefinitionName": "swell-worker",
        "type": "container",
        "containerProperties": {
            "image": IMAGE,
            "command": ["swell", "worker", "--help"],
            "user": "root",
            "resourceRequirements": [
                {"type": "VCPU", "value": "2"},
                {"type": "MEMORY", "value": "4096"},
                {"type": "GPU", "value": "1"},
            ],
            "linuxParameters": {"initProcessEnabled": True, "sharedMemorySize": 2048},
            "volumes": [{"name": "mount0", "host": {"sourcePath": "/mnt/efs"}}],
            "mountPoints": [{"sourceVolume": "mount0", "containerPath": "/shared", "readOnly": False}],
            "executionRoleArn": EXECUTION_ROLE,
            "secrets": [{"name": "SWELL_WORKER_TOKEN", "valueFrom": "/swell/pools/lab/worker-token"}],
            "jobRoleArn": EXECUTION_ROLE,
        },
        "retryStrategy": {"attempts": 1},
        "platformCapabilities": ["EC2"],
        "propagateTags": True,
    }


def test_a_job_says_what_is_its_own_and_never_the_token() -> None:
    wanted = order(id="lab-0123abcd")
    job = render_job(wanted, OPTIONS, "arn:of:it:3")
    command = job["containerOverrides"].pop("command")
    assert job == {
        "jobName": "lab-0123abcd",
        "jobQueue": QUEUE,
        "jobDefinition": "arn:of:it:3",
        "containerOverrides": {
            "environment": [{"name": "AWS_DEFAULT_REGION", "value": "us-east-1"}],
            "resourceRequirements": [{"type": "VCPU", "value": "2"}, {"type": "MEMORY", "value": "4096"}],
        },
        "tags": {"swell-pool": "lab"},
    }
    assert {"--pass-down-termination", "--spot-notice"} <= set(command)
    assert render_parameter(wanted) == {
        "Name": "/swell/pools/lab/worker-token",
        "Value": TOKEN,
        "Type": "SecureString",
        "Overwrite": True,
    }


def test_without_an_execution_role_the_token_is_in_the_environment_and_nowhere_else() -> None:
    options = replace(OPTIONS, execution_role=None)
    wanted = order()
    job = render_job(wanted, options, "arn")
    assert {"name": "SWELL_WORKER_TOKEN", "value": TOKEN} in job["containerOverrides"]["environment"]
    assert TOKEN not in json.dumps([job["containerOverrides"]["command"], render_definition(wanted, options)])
    assert TOKEN not in render_text(wanted, options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job_queue": None}, "--job-queue"),
        ({"job_queue": "a b"}, "cannot be right"),
        ({"region": "Virginia"}, "us-east-1"),
        ({"job_definition_name": "-x"}, "cannot be right"),
        ({"user": "root;id"}, "cannot be right"),
        ({"execution_role": "swell"}, "arn:aws:iam"),
        ({"job_filter": "("}, "not a regular expression"),
        ({"job_filter": "a" * 201}, "200 characters"),
        ({"mounts": "data"}, "absolute paths"),
        ({"mounts": "/data:/../etc"}, "absolute paths"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(given: dict[str, Any], said: str) -> None:
    all_ = {"image": IMAGE, "job_queue": QUEUE, **given}
    with pytest.raises(Rejected, match=said):
        find_kind("aws-batch").read({name: value for name, value in all_.items() if value is not None})


def test_defaults_are_those_of_codalab_where_nothing_is_said() -> None:
    options = find_kind("aws-batch").read({"image": IMAGE, "job_queue": QUEUE, "mounts": "/a,/b:/c"})
    assert options == replace(OPTIONS, execution_role=None, mounts=(SharedFolder("/a", "/a"), SharedFolder("/b", "/c")))
    assert (options.region, options.user) == ("us-east-1", "root")
    assert find_kind("aws-batch").legacy.defaults == {
        "job_definition_name": "codalab-worker",
        "job_queue": "codalab-batch-cpu",
    }


# -- what is read ------------------------------------------------------------------------------------------------------


def job(status: str, **more: Any) -> dict[str, Any]:
    return {"jobName": "lab-0123abcd", "jobId": "j-1", "status": status, **more}


JOB_PAGE = "https://console.aws.amazon.com/batch/home?region=us-east-1#jobs/detail/j-1"
LOG_PAGE = (
    "https://console.aws.amazon.com/cloudwatch/home?region=us-east-1"
    "#logsV2:log-groups/log-group/$252Faws$252Fbatch$252Fjob/log-events/swell-worker$252Fdefault$252Fabc"
)
STREAM = {"logStreamName": "swell-worker/default/abc"}
NO_ROOM = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement is higher than that of the CE(s)"


def worker(state: WorkerState, word: str, **more: Any) -> BackendWorker:
    return BackendWorker("lab-0123abcd", "j-1", state, word, **{"log": JOB_PAGE, **more})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *((job(word), worker(WorkerState.PENDING, word)) for word in ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING")),
        (job("RUNNABLE", statusReason=NO_ROOM), worker(WorkerState.PENDING, "RUNNABLE", detail=NO_ROOM)),
        (job("RUNNING", container=STREAM), worker(WorkerState.RUNNING, "RUNNING", log=LOG_PAGE)),
        (job("RUNNING", isTerminated=True), worker(WorkerState.RUNNING, "RUNNING, terminating")),
        (
            job("SUCCEEDED", container={**STREAM, "exitCode": 0}),
            worker(WorkerState.ENDED, "SUCCEEDED", exit_code=0, log=LOG_PAGE, is_proof=True),
        ),
        (
            job(
                "FAILED",
                statusReason="Essential container in task exited",
                container={"exitCode": 137, "reason": "OOM"},
            ),
            worker(
                WorkerState.ENDED,
                "FAILED",
                detail="Essential container in task exited: OOM",
                exit_code=137,
                is_proof=True,
            ),
        ),
        (
            job("FAILED", statusReason="Host EC2 (instance i-0a1) terminated."),
            worker(WorkerState.ENDED, "FAILED", detail="Host EC2 (instance i-0a1) terminated.", is_proof=True),
        ),
        (
            job("FAILED", statusReason="Agent disconnected"),
            worker(WorkerState.ENDED, "FAILED", detail="Agent disconnected"),
        ),
        (job("HIBERNATING"), worker(WorkerState.UNKNOWN, "HIBERNATING")),
    ],
)
def test_what_a_job_says_of_a_worker(given: dict[str, Any], wanted: BackendWorker) -> None:
    assert parse_jobs([given], "us-east-1") == (wanted,)


def test_jobs_of_others_in_the_queue_are_not_workers_unless_the_filter_says_so() -> None:
    names = ("lab-0123abcd", "lab-2-0123abcd", "train", "lab-0123abcd-2", "codalab-7")
    page = {"jobSummaryList": [{"jobName": name, "jobId": name} for name in (*names, "train")]}
    assert parse_ids([page], "lab", None) == ("lab-0123abcd",)
    assert parse_ids([page], "lab", "codalab-[0-9]+|trai") == ("lab-0123abcd", "codalab-7")


def test_the_newest_definition_that_is_the_same_is_used_again() -> None:
    wanted = render_definition(order(), OPTIONS)
    other = render_definition(order(memory_mib=1), OPTIONS)

    def found(revision: int, definition: dict[str, Any]) -> dict[str, Any]:
        return {**definition, "revision": revision, "jobDefinitionArn": f"arn:{revision}"}

    pages = [{"jobDefinitions": [found(2, wanted), found(10, wanted)]}, {"jobDefinitions": [found(11, other)]}]
    assert parse_definition(pages, wanted) == "arn:10"
    assert parse_definition([{"jobDefinitions": [{"revision": 1, "jobDefinitionArn": "by hand"}]}], wanted) is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "ClientException", Rejected),
        (403, "AccessDeniedException", Rejected),
        (403, "UnrecognizedClientException", Rejected),
        (403, "ExpiredTokenException", Unavailable),
        (400, "ThrottlingException", Unavailable),
        (429, "TooManyRequestsException", Unavailable),
        (429, "", Unavailable),
        (500, "ServerException", Unavailable),
        (503, "", Unavailable),
        (200, "", Unavailable),
    ],
)
def test_what_a_refusal_means(status: int, code: str, kind: type[SwellError]) -> None:
    said = refusal("launching worker lab-1", status, code, "why")
    assert type(said) is kind
    assert str(said).startswith(f"launching worker lab-1: {code}: why")
