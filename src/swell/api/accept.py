"""How do jobs that were read and found good become somebody's?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from swell.api.caller import Caller
from swell.api.containers import refuse_without_runtime
from swell.api.services import Services
from swell.errors import Denied, Rejected
from swell.model.job import JobSpec
from swell.store import JobRecord, NewJob


async def accept(
    services: Services,
    caller: Caller,
    specs: list[JobSpec],
    env: Mapping[str, str],
    *,
    key: str | None = None,
    digest: str = "",
) -> list[JobRecord]:
    """All or none, in the caller's name. Accepted means written to disk."""
    if services.box is not None and caller.uid is None:
        raise Denied(f"jobs run here as who submits them, and {caller.user!r} is nobody of this machine")
    _refuse_priority(services, caller, specs)
    if services.members is not None:
        await services.members.refuse_creation(caller, specs)
    await refuse_without_runtime(services, specs)
    new = [NewJob(spec, caller.user, dict(env), caller.uid) for spec in specs]
    accepted = services.controller.submit(
        new,
        key=key,
        digest=digest,
        origin=caller.origin,
        queued_max=services.config.limits_of(caller.user).queued,
    )
    return await asyncio.wrap_future(accepted)


def _refuse_priority(services: Services, caller: Caller, specs: list[JobSpec]) -> None:
    """On a machine of many, nobody gets ahead of the others just by saying so."""
    highest = services.config.limits_of(caller.user).priority
    if not services.is_shared or caller.is_admin or highest is None:
        return
    for spec in specs:
        if spec.priority > highest:
            raise Rejected(
                f"priority {spec.priority} is above what {caller.user} may ask for here, {highest}; leave it out, "
                "or ask an administrator"
            )
