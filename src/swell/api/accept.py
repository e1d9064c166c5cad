"""How do jobs that were read and found good become somebody's?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from swell.api.caller import Caller
from swell.api.containers import refuse_without_runtime
from swell.api.services import Services
from swell.errors import Denied, Rejected
from swell.manifests import Manifest
from swell.model.job import JobSpec
from swell.store import JobRecord, NewJob


async def accept(
    services: Services,
    caller: Caller,
    manifests: list[Manifest],
    env: Mapping[str, str],
    *,
    key: str | None = None,
    digest: str = "",
) -> list[JobRecord]:
    """All or none, in the caller's name. Accepted means written to disk."""
    await refuse(services, caller, manifests)
    new = [NewJob(one.spec, caller.user, dict(env), caller.uid, _kept(services, one)) for one in manifests]
    accepted = services.controller.submit(
        new,
        key=key,
        digest=digest,
        origin=caller.origin,
        queued_max=services.config.limits_of(caller.user).queued,
    )
    return await asyncio.wrap_future(accepted)


async def refuse(services: Services, caller: Caller, manifests: list[Manifest]) -> None:
    """What the caller may not submit, or nobody could run. Nothing is accepted, so a dry run asks the same."""
    if services.box is not None and caller.uid is None:
        raise Denied(f"jobs run here as who submits them, and {caller.user!r} is nobody of this machine")
    _refuse_priority(services, caller, [one.spec for one in manifests])
    if services.members is not None:  # before the server shows their objects to the API server, in its own name
        await services.members.refuse_creation(caller, manifests)
    await _refuse_what_cannot_be(services, manifests)


async def _refuse_what_cannot_be(services: Services, manifests: list[Manifest]) -> None:
    """On a cluster its API server is asked; on a machine, whether one can run containers."""
    if services.cluster is not None:
        await asyncio.to_thread(services.try_out, manifests)
    else:
        await refuse_without_runtime(services, [one.spec for one in manifests])


def _kept(services: Services, manifest: Manifest) -> dict[str, Any] | None:
    """What its object is made from; a machine of our own needs only the spec."""
    return None if services.cluster is None else manifest.document


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
