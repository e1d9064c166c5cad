"""What do we send to AWS to get a worker?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from swell.pools.aws_batch.options import AwsBatchOptions
from swell.pools.backend import WorkerOrder
from swell.pools.image import shared_memory_mib
from swell.pools.worker_command import TOKEN_VARIABLE, words_with_token_variable

Document = dict[str, Any]

FINGERPRINT = "swell-definition"  # a parameter of the definition that nothing refers to: which one is it?
POOL_TAG = "swell-pool"  # what workers cost can be seen by it
SHOWN_TOKEN = "(the token)"  # noqa: S105  in what a person is shown


def parameter_name(pool: str) -> str:
    return f"/swell/pools/{pool}/worker-token"


def render_parameter(order: WorkerOrder) -> Document:
    """The token, encrypted by AWS's own key for this; only the execution role reads it."""
    name = parameter_name(order.pool)
    return {"Name": name, "Value": order.token, "Type": "SecureString", "Overwrite": True}


def render_definition(order: WorkerOrder, options: AwsBatchOptions) -> Document:
    """The same for every worker of a pool: what differs is said when a job is submitted."""
    container: Document = {
        "image": options.image,
        "command": [order.executable, "worker", "--help"],
        "user": options.user,
        "resourceRequirements": _resources(order),
        "linuxParameters": {
            "initProcessEnabled": True,  # ends what jobs leave behind, and passes SIGTERM on
            "sharedMemorySize": shared_memory_mib(options.shared_memory_mib, order.memory_mib),
        },
        "volumes": [
            {"name": f"mount{number}", "host": {"sourcePath": mount.source}}
            for number, mount in enumerate(options.mounts)
        ],
        "mountPoints": [
            {"sourceVolume": f"mount{number}", "containerPath": mount.target, "readOnly": False}
            for number, mount in enumerate(options.mounts)
        ],
    }
    if options.execution_role is not None:
        container["executionRoleArn"] = options.execution_role
        container["secrets"] = [{"name": TOKEN_VARIABLE, "valueFrom": parameter_name(order.pool)}]
    if options.job_role is not None:
        container["jobRoleArn"] = options.job_role
    definition = {
        "jobDefinitionName": options.job_definition_name,
        "type": "container",
        "containerProperties": container,
        "retryStrategy": {"attempts": 1},  # the pool launches another one, where there is still work
        "platformCapabilities": ["EC2"],
        "propagateTags": True,
    }
    return {**definition, "parameters": {FINGERPRINT: _fingerprint(definition)}}


def _fingerprint(definition: Document) -> str:
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:32]


def render_job(order: WorkerOrder, options: AwsBatchOptions, definition: str) -> Document:
    """`definition`: its ARN."""
    # Batch gives a container half a minute after SIGTERM, and EC2 two minutes before a spot machine is gone.
    worker = replace(order.worker, passes_termination=True, spot_notice=True)
    environment = {"AWS_DEFAULT_REGION": options.region}
    if options.execution_role is None:
        environment[TOKEN_VARIABLE] = order.token
    return {
        "jobName": order.id,
        "jobQueue": options.job_queue,
        "jobDefinition": definition,
        "containerOverrides": {
            "command": list(words_with_token_variable(replace(order, worker=worker))),
            "environment": [{"name": name, "value": environment[name]} for name in sorted(environment)],
            "resourceRequirements": _resources(order),
        },
        "tags": {POOL_TAG: order.pool},
    }


def _resources(order: WorkerOrder) -> list[Document]:
    """On EC2 only whole CPUs can be asked for."""
    cpus = max(1, -(-order.cpus_milli // 1000))
    wanted = [("VCPU", cpus), ("MEMORY", order.memory_mib), *([("GPU", order.gpus)] if order.gpus else [])]
    return [{"type": kind, "value": str(count)} for kind, count in wanted]


def render_text(order: WorkerOrder, options: AwsBatchOptions) -> str:
    """Both requests, for a person."""
    shown = replace(order, token=SHOWN_TOKEN)
    definition = render_definition(shown, options)
    job = render_job(shown, options, f"{options.job_definition_name}:(newest that fits)")
    return json.dumps({"RegisterJobDefinition": definition, "SubmitJob": job}, indent=2, ensure_ascii=False)
