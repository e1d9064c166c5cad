"""Does somebody submit a job that would wait for ever?

Where machines may come (an autoscaler is called for jobs that wait), nobody can say. Otherwise a job is compared with
all that is there, whatever is free now; where no machine has offered itself yet, it is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.api.caller import Caller
from swell.api.containers import offered
from swell.api.services import Services
from swell.controller.impossible import find_impossible
from swell.errors import Rejected
from swell.model.job import JobSpec

CPUS_MILLI_ANY = 1000  # every machine has one CPU


async def refuse_impossible(services: Services, caller: Caller, specs: Sequence[JobSpec]) -> None:
    for spec, problem in zip(specs, await impossibilities(services, caller, specs), strict=True):
        if problem is not None:
            raise Rejected(
                f"job {spec.name!r} could never run here: {problem}; or queue it all the same, until there is a "
                "machine that can hold it, with --wait-for-nodes"
            )


async def impossibilities(services: Services, caller: Caller, specs: Sequence[JobSpec]) -> list[str | None]:
    """For each of them why it could never run here, and what to do; None: it could, or nobody can say."""
    if services.may_get_nodes:
        return [None for _ in specs]
    if services.cluster is None and not all(_fits_anywhere(spec) for spec in specs):
        await offered(services, lambda nodes: bool(nodes))
    nodes, gpus_max = services.controller.snapshot.nodes, services.config.limits_of(caller.user).gpus
    found = await services.read(caller.user, lambda: find_impossible(nodes, specs, user=caller.user, gpus_max=gpus_max))
    return [None if one is None else f"{one.problem}; submit it with {one.lower}" for one in found]


def _fits_anywhere(spec: JobSpec) -> bool:
    """Then a server that has just started need not wait for its worker before it answers."""
    tasks = 1 if spec.array is not None else spec.tasks_total
    cpus = sum(role.resources.cpus_milli for role in spec.roles) * tasks
    is_plain = all(role.resources.gpus == role.resources.gpu_memory_mib == 0 for role in spec.roles)
    return is_plain and cpus <= CPUS_MILLI_ANY and not any(role.resources.memory_mib for role in spec.roles)
