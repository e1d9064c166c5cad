"""How do jobs that were read and found good become somebody's?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from swell.api.caller import Caller
from swell.api.containers import refuse_without_runtime
from swell.api.impossible import refuse_impossible
from swell.api.services import Services
from swell.errors import Denied, Rejected, TooMany
from swell.manifests import Manifest
from swell.model.job import JobSpec
from swell.notices import find_sendmail, rules_for
from swell.store import JobRecord, NewJob


async def accept(
    services: Services,
    caller: Caller,
    manifests: list[Manifest],
    env: Mapping[str, str],
    *,
    key: str | None = None,
    digest: str = "",
    wait_for_nodes: bool = False,
) -> list[JobRecord]:
    """All or none, in the caller's name. Accepted means written to disk.

    `wait_for_nodes`: also what could never run on the machines that are there now.
    """
    if key is None or not services.store.knows_key(key):  # repeated, it is answered with what became of it
        await refuse(services, caller, manifests)
        if not wait_for_nodes:
            await refuse_impossible(services, caller, [one.spec for one in manifests])
    new = [NewJob(one.spec, caller.user, dict(env), caller.uid, _kept(services, one)) for one in manifests]
    accepted = services.controller.submit(
        new,
        key=key,
        digest=digest,
        origin=caller.origin,
        quota=services.config.limits_of(caller.user).quota,
    )
    return await asyncio.wrap_future(accepted)


async def refuse(services: Services, caller: Caller, manifests: list[Manifest]) -> None:
    """What the caller may not submit, or nobody could run. Nothing is accepted, so a dry run asks the same."""
    if services.box is not None and caller.uid is None:
        raise Denied(f"jobs run here as who submits them, and {caller.user!r} is nobody of this machine")
    _refuse_without_disk(services, caller)
    _refuse_priority(services, caller, [one.spec for one in manifests])
    _refuse_notices(services, [one.spec for one in manifests])
    if services.members is not None:  # before the server shows their objects to the API server, in its own name
        await services.members.refuse_creation(caller, manifests)
    await _refuse_what_cannot_be(services, caller, manifests)


async def _refuse_what_cannot_be(services: Services, caller: Caller, manifests: list[Manifest]) -> None:
    """On a cluster its API server is asked; on a machine, whether one can run containers."""
    if services.cluster is not None:
        await services.pools.cluster.run(caller.user, lambda: services.try_out(manifests))
    else:
        await refuse_without_runtime(services, [one.spec for one in manifests])


def _kept(services: Services, manifest: Manifest) -> dict[str, Any] | None:
    """What its object is made from; a machine of our own needs only the spec."""
    return None if services.cluster is None else manifest.document


def _refuse_notices(services: Services, specs: list[JobSpec]) -> None:
    """Who asks to be told hears now that it cannot be, not when the job has run for a week."""
    rules = rules_for(services.config.notices, on_box=services.box is not None, on_cluster=services.cluster is not None)
    for notify in [spec.notify for spec in specs if spec.notify is not None]:
        rules.refuse(notify)
        if notify.is_mail and find_sendmail() is None:
            raise Rejected(
                f"notify asks for an e-mail to {notify.recipient}, but this machine has no sendmail; install a mail "
                "program that brings one (as msmtp-mta or postfix), or name a command or an http(s) address"
            )


def _refuse_without_disk(services: Services, caller: Caller) -> None:
    use = None if services.disk is None else services.disk.use(caller.user)
    if use is not None and use.is_over:
        raise TooMany(f"{caller.user!r} has {use.in_words}, so no more jobs can be taken; {use.advice}")


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
