"""How does the old REST submit of run-scheduler become a job?"""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

from swell.api.accept import accept
from swell.api.box import Caller
from swell.api.doors.wire import need, text, whole
from swell.api.services import Services
from swell.errors import Denied, Rejected
from swell.foreign.run_scheduler import Scheduled, read_switch, render_manifest
from swell.machine.users import user_by_name
from swell.manifests import Context, read_manifests
from swell.manifests.fields import describe
from swell.store import JobRecord

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def submit(services: Services, caller: Caller, body: dict[str, Any]) -> JobRecord:
    """Nobody's shell is behind it, so it has a login's environment and the folder it names."""
    need(body, ("jobName", "scriptPath", "directoryToMount"))
    folder = text(body, "directoryToMount")
    if not folder.startswith("/"):
        raise Rejected(f"directoryToMount {folder!r} is not an absolute path; send it in full")
    user = caller.user
    if body.get("username") not in (None, user):
        raise Denied(
            f"this address acts as the user {user}, not as {str(body['username'])[:100]!r}; leave username out"
        )
    nodes = services.controller.snapshot.nodes
    widest = max((len(node.devices) for node in nodes), default=0)
    library = await asyncio.to_thread(services.library)
    job = read_submission(body)
    python = "python" if job.image else await asyncio.to_thread(_python_of_a_login)
    manifest = render_manifest(job, gpus_per_node=widest, library=library, python=python)
    context = Context(workdir=folder, on_cluster=services.cluster is not None)
    manifests = read_manifests(manifest, context)
    [accepted] = await accept(services, caller, manifests, login_environment(user), via="POST /submit")
    return accepted


def _python_of_a_login() -> str:
    """Debian has no `python` on its own; its `python3` is what a user would type."""
    return "python" if shutil.which("python", path=PATH) else "python3"


def read_submission(body: dict[str, Any]) -> Scheduled:
    return Scheduled(
        name=text(body, "jobName"),
        script_path=text(body, "scriptPath"),
        image=None if body.get("dockerImage") in (None, "") else text(body, "dockerImage"),
        custom_dir=text(body, "directoryToMount"),
        batch_size=_count(body, "batchSize"),
        training_set_size=_count(body, "trainingSetSize"),
        max_epochs=_count(body, "maxEpochs"),
        is_single_gpu=None if body.get("isSingleGPU") is None else _yes(body, "isSingleGPU", default=False),
        disable_gpu_sharing=_yes(body, "disableGPUSharing", default=True),
        estimated_memory_mib=_count(body, "estimatedMemory"),
    )


def _count(body: dict[str, Any], field: str) -> int | None:
    return None if body.get(field) is None else whole(body, field, low=1)


def _yes(body: dict[str, Any], field: str, *, default: bool) -> bool:
    value = default if body.get(field) is None else body[field]
    if isinstance(value, str):
        value = read_switch(value)
    if not isinstance(value, bool):
        raise Rejected(f"{field} must be true or false, but is {describe(body[field])}")
    return value


def login_environment(user: str) -> dict[str, str]:
    found = user_by_name(user)  # a name that this machine does not know: the job finds out by itself
    return {"PATH": PATH, "HOME": "/", "USER": user} if found is None else {**found.variables, "PATH": PATH}
