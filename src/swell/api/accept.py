"""How do jobs that were read and found good become somebody's?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from swell.api.box import Caller
from swell.api.exec import offered, refuse_without_runtime
from swell.api.files import refuse_files
from swell.api.services import Services
from swell.controller.what_if import find_impossible
from swell.errors import TO_QUEUE_IT, Denied, Rejected
from swell.manifests import Manifest, is_in_cluster
from swell.manifests.privileges import find_privilege
from swell.model.identity import ObjectKind
from swell.model.job import JobSpec
from swell.notifications import find_sendmail, rules_for
from swell.store import Acceptance, Changes, JobRecord, NewJob
from swell.store.quotas import refuse_without_disk
from swell.store.records import identity_text

CPUS_MILLI_ANY = 1000  # every machine has one CPU
NODE_RIGHTS_DENIED = (
    'this server gives to no job; leave it out, or allow it to all jobs with "node_rights": true in config.json'
)
NODE_RIGHTS_OF_ADMINS = (
    "Swell creates for administrators only; leave it out, create the object with kubectl, or allow it to all jobs with "
    '"node_rights": true in config.json'
)


async def refuse_impossible(services: Services, caller: Caller, manifests: Sequence[Manifest], via: str = "") -> None:
    """In the words of `via`; only our own commands can have it queued all the same."""
    for one, problem in zip(manifests, await impossibilities(services, caller, manifests, via), strict=True):
        if problem is not None:
            said = f"job {one.spec.name!r} can never run here: {problem}{'' if via else TO_QUEUE_IT}"
            raise Rejected(f"{one.file}: {said}" if one.file else said)


async def impossibilities(
    services: Services, caller: Caller, manifests: Sequence[Manifest], via: str = ""
) -> list[str | None]:
    """For each of them why it could never run here, and what to do; None: it could, or nobody can say."""
    specs, vias = [one.spec for one in manifests], [via or one.via for one in manifests]
    if services.may_get_nodes:
        return [None for _ in specs]
    if services.cluster is None and not all(_fits_anywhere(spec) for spec in specs):
        await offered(services, lambda nodes: bool(nodes))
    nodes = services.controller.snapshot.nodes + services.controller.pools.may_come(_tasks_most(specs))
    gpus_max = services.config.limits_of(caller.user).gpus
    found = await services.read(
        caller.user, lambda: find_impossible(nodes, specs, user=caller.user, gpus_max=gpus_max, vias=vias)
    )
    return [None if one is None else f"{one.problem}; submit it with {one.lower}" for one in found]


def _tasks_most(specs: Sequence[JobSpec]) -> int:
    """Of the largest of them: no job is on more machines than that."""
    return max((1 if spec.array is not None else spec.tasks_total for spec in specs), default=0)


def _fits_anywhere(spec: JobSpec) -> bool:
    """Then a server that has just started need not wait for its worker before it answers."""
    tasks = 1 if spec.array is not None else spec.tasks_total
    cpus = sum(role.resources.cpus_milli for role in spec.roles) * tasks
    is_plain = all(role.resources.gpus == role.resources.gpu_memory_mib == 0 for role in spec.roles)
    return is_plain and cpus <= CPUS_MILLI_ANY and not any(role.resources.memory_mib for role in spec.roles)


async def accept(
    services: Services,
    caller: Caller,
    manifests: list[Manifest],
    env: Mapping[str, str],
    *,
    key: str | None = None,
    digest: str = "",
    wait_for_nodes: bool = False,
    takes_names: bool = False,
    replaces: bool = False,
    via: str = "",
) -> list[JobRecord]:
    """All or none, in the caller's name. Accepted means written to disk.

    `wait_for_nodes`: also what could never run on the machines that are there now. `takes_names`: only if no job of
    theirs that has not ended has the name of one of them; a cluster sees to that itself. `replaces`: what has ended on
    a cluster and has the name of one of them is deleted. `via`: what they came with, where it has words of its own.
    """
    manifests = with_groups(services, caller, manifests)
    if key is None or not services.store.knows_key(key):  # repeated, it is answered with what became of it
        await refuse(services, caller, manifests, replaces=replaces)
        if not wait_for_nodes:
            await refuse_impossible(services, caller, manifests, via)
        if replaces:
            await _remove_ended(services, caller, manifests)
    cluster, submitted = services.cluster, manifests
    if cluster is not None:
        manifests = await services.pools.cluster.run(caller.user, lambda: cluster.with_volumes(submitted))
    shared = dict(env)  # one for all: a thousand jobs with a copy of a megabyte each took seconds, and a gigabyte
    new = [
        NewJob(
            one.spec,
            caller.user,
            shared,
            caller.uid,
            _kept(services, one),
            identity=caller.identity,
            takes_name=takes_names and services.cluster is None,
        )
        for one in manifests
    ]
    how = Acceptance(key, digest, caller.origin, services.config.limits_of(caller.user).quota)
    accepted = await asyncio.wrap_future(services.controller.submit(new, how))
    await _note_folders(services, caller, accepted)
    return accepted


async def _note_folders(services: Services, caller: Caller, jobs: list[JobRecord]) -> None:
    """As long as a job is remembered, the folder that it was sent with is kept."""
    store = services.files
    used = [(job.id, job.spec.files.folder) for job in jobs if job.spec.files is not None and job.spec.files.folder]
    if store is not None and used:
        await services.pools.files.run(caller.user, lambda: store.note_uses(used))


def with_groups(services: Services, caller: Caller, manifests: list[Manifest]) -> list[Manifest]:
    """With the groups that the caller is in now, whose workers they may use."""
    groups = services.config.groups_of(caller.user)
    return [replace(one, spec=one.spec.in_groups(groups)) for one in manifests] if groups else manifests


async def refuse(services: Services, caller: Caller, manifests: list[Manifest], *, replaces: bool = False) -> None:
    """What the caller may not submit, or nobody could run. Nothing is accepted, so a dry run asks the same."""
    if services.box is not None and caller.uid is None:
        raise Denied(f"jobs run here as the user who submits them, and {caller.user!r} is not a user of this machine")
    refuse_without_disk(caller.user, None if services.disk is None else services.disk.use(caller.user))
    _refuse_priority(services, caller, [one.spec for one in manifests])
    _refuse_notices(services, [one.spec for one in manifests])
    if any(one.spec.files is not None for one in manifests):
        await services.pools.files.run(caller.user, lambda: refuse_files(services, [one.spec for one in manifests]))
    # Before the server shows their objects to the API server, in its own name.
    _refuse_privileges(services, caller, manifests)
    if services.members is not None:
        await services.members.refuse_creation(caller, manifests)
    await _refuse_what_cannot_be(services, caller, manifests, replaces)


async def _remove_ended(services: Services, caller: Caller, manifests: list[Manifest]) -> None:
    """All of them may be deleted by the caller, or none is."""
    cluster = services.cluster
    if cluster is None:
        return
    found = await services.pools.cluster.run(caller.user, lambda: cluster.ended_objects(manifests))
    if services.members is not None:
        for one in found:
            what = ObjectKind(one["apiVersion"], one["kind"], one["metadata"]["namespace"])
            await services.members.refuse_deletion(caller, what)
    for one in found:
        await services.pools.cluster.run(caller.user, partial(cluster.delete_object, one))


async def refuse_making_again(services: Services, caller: Caller, job: JobRecord) -> None:
    """Rights may have been taken away since it was submitted. What somebody made with kubectl is there, or is not."""
    members = services.members
    if members is None:
        return
    document = await services.read(caller.user, lambda: services.store.manifest(job.manifest) if job.manifest else {})
    if document and not is_in_cluster(document):
        await members.refuse_creation(caller, [Manifest(job.spec, document)])
        await _note_identity(services, caller, job)


async def _note_identity(services: Services, caller: Caller, job: JobRecord) -> None:
    """The groups of its owner may be others by now, and count for the attempts to come."""
    identity = identity_text(caller.identity)
    if caller.user == job.owner and identity is not None and identity != job.identity:
        changes = Changes()
        changes.set_job(job.id, identity=identity)
        await asyncio.wrap_future(services.store.record(changes))


async def _refuse_what_cannot_be(services: Services, caller: Caller, manifests: list[Manifest], replaces: bool) -> None:
    """On a cluster its API server is asked; on a machine, whether one can run containers."""
    cluster = services.cluster
    if cluster is not None:
        await services.pools.cluster.run(
            caller.user, lambda: cluster.try_out(manifests, identity=caller.identity, replaces=replaces)
        )
    else:
        await refuse_without_runtime(services, [one.spec for one in manifests])


def _refuse_privileges(services: Services, caller: Caller, manifests: list[Manifest]) -> None:
    """What reaches beyond its pod into the node, whatever a namespace or a machine would make of it."""
    is_cluster_admin = services.members is not None and caller.is_admin
    if services.config.node_rights or is_cluster_admin:
        return
    for one in manifests:
        found = find_privilege(one.document)
        if found is not None:
            line = one.lines.get(found.path)
            where = f"{f'{one.file}: ' if one.file else ''}{'' if line is None else f'line {line}: '}"
            raise Denied(
                f"{where}{found.path} asks for {found.what}, which "
                + (NODE_RIGHTS_DENIED if services.members is None else NODE_RIGHTS_OF_ADMINS)
            )


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
                f"notify asks for an e-mail to {notify.recipient}, but this machine has no sendmail; install a "
                "mail program that provides it (such as msmtp-mta or postfix), or name a command or an http(s) address"
            )


def _refuse_priority(services: Services, caller: Caller, specs: list[JobSpec]) -> None:
    """On a machine of many, nobody gets ahead of the others just by saying so."""
    highest = services.config.limits_of(caller.user).priority
    if not services.is_shared or caller.is_admin or highest is None:
        return
    for spec in specs:
        if spec.priority > highest:
            raise Rejected(
                f"priority {spec.priority} is above the limit of {caller.user}, {highest}; leave it out, or ask "
                "an administrator"
            )
