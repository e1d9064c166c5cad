"""How does a file that somebody sends to genai's manager become jobs, and what do they get?"""

from __future__ import annotations

import asyncio

from swell.api.accept import accept
from swell.api.doors.submission import login_environment
from swell.api.doors.visitor import Visitor
from swell.api.services import Services
from swell.errors import Rejected
from swell.manifests import Context, Manifest, read_manifests
from swell.model.job import JobState, ResizeMode
from swell.model.reason import Code
from swell.store import JobRecord

PLANNED_S = 5.0  # a plan follows at once; who asks is told what it gave


async def deploy_manifest(services: Services, visitor: Visitor, body: bytes) -> list[JobRecord]:
    """All or none. Nobody's shell is behind it, so a process has a login's environment and folder."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"the body is not UTF-8 text (byte {error.start}); send a manifest, as YAML or JSON") from None
    user, is_cluster = visitor.caller.user, services.cluster is not None
    classes = await services.pools.cluster.run(user, services.priority_classes) if is_cluster else {}

    def read() -> tuple[dict[str, str], list[Manifest]]:
        env = {} if is_cluster else login_environment(user)
        context = Context(
            workdir=env.get("HOME", "/"),
            find_job=lambda ref: visitor.find_one(services.store, ref).id,
            priority_classes=classes,
            variables=env.keys(),
            resize=ResizeMode.EITHER,
            on_cluster=is_cluster,
        )
        return env, read_manifests(text, context)

    env, manifests = await services.read(user, read)
    accepted = await accept(services, visitor.caller, manifests, env)
    return [await _planned(services, job) for job in accepted]


async def _planned(services: Services, job: JobRecord) -> JobRecord:
    """As soon as it is known what it gets."""
    clock = asyncio.get_running_loop().time
    until = clock() + PLANNED_S
    while job.state is JobState.QUEUED and job.reason_code is Code.NOT_YET_PLANNED and clock() < until:
        await services.committed.wait(until - clock())
        job = services.store.job(job.id)
    return job
