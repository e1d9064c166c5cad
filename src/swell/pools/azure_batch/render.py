"""What do we send to Azure to get a worker?"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from swell.pools.azure_batch.options import AzureBatchOptions
from swell.pools.backend import WorkerOrder
from swell.pools.image import shared_memory_mib
from swell.pools.worker_command import TOKEN_VARIABLE, words_with_token_variable

Document = dict[str, Any]

SHOWN_TOKEN = "(the token)"  # noqa: S105  in what a person is shown
SHOWN_SIGNATURE = "?(the signature)"
LOGS = "../std*.txt"  # beside the folder that a task works in


def render_task(order: WorkerOrder, options: AzureBatchOptions) -> Document:
    """As the REST interface has it. A task has no secrets: whoever has the account's key reads its environment."""
    worker = replace(order.worker, passes_termination=True)
    task: Document = {
        "id": order.id,
        "displayName": f"Swell worker of pool {order.pool}",
        "commandLine": shlex.join(words_with_token_variable(replace(order, worker=worker), comes_again=True)),
        "containerSettings": {"imageName": options.image, "containerRunOptions": run_options(order, options)},
        "environmentSettings": [{"name": TOKEN_VARIABLE, "value": order.token}],
        "outputFiles": [_upload(order, options)],
        "constraints": {"maxTaskRetryCount": 0},  # the pool launches another one, where there is still work
    }
    if options.user == "root":
        task["userIdentity"] = {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}
    return task


def run_options(order: WorkerOrder, options: AzureBatchOptions) -> str:
    """Of docker: Batch itself counts task slots, and neither CPUs nor memory."""
    memory = f"{order.memory_mib}m"
    words = [
        "--rm",
        "--init",
        f"--user={options.user}",
        f"--cpus={order.cpus_milli / 1000:g}",
        f"--memory={memory}",
        f"--shm-size={shared_memory_mib(options.shared_memory_mib, order.memory_mib)}m",
        *(["--gpus=all"] if order.gpus else []),
        *(f"--volume={shared.source}:{shared.target}" for shared in options.mounts),
    ]
    return shlex.join(words)


def _upload(order: WorkerOrder, options: AzureBatchOptions) -> Document:
    container = {"containerUrl": options.log_container_url, "path": order.id}
    return {
        "filePattern": LOGS,
        "destination": {"container": container},
        "uploadOptions": {"uploadCondition": "taskcompletion"},
    }


def log_address(options: AzureBatchOptions, task: str, file: str) -> str:
    """Where an uploaded log is; with the signature."""
    container, _, signature = options.log_container_url.partition("?")
    place = f"{container.rstrip('/')}/{task}/{file}"
    return f"{place}?{signature}" if signature else place


def render_text(order: WorkerOrder, options: AzureBatchOptions) -> str:
    """The request, for a person."""
    container = options.log_container_url.partition("?")[0] + SHOWN_SIGNATURE
    shown = render_task(replace(order, token=SHOWN_TOKEN), replace(options, log_container_url=container))
    return json.dumps({"job": options.job_id, "task": shown}, indent=2, ensure_ascii=False)
