"""Why, in words: what was asked, what is true, what to do.

The planner leaves a code and who stands in the way; the words and numbers are worked out here, from the same
snapshot, when somebody asks. Codes of jobs that run or have ended carry their evidence from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from swell.model.cluster import GPU_MEMORY_LABEL
from swell.model.job import JobId, JobState
from swell.model.placement import Company
from swell.model.plan import ENDLESS, JobView, Snapshot, Standing, Verdict
from swell.model.reason import Code, Evidence, Reason
from swell.model.resources import NOTHING, Resources
from swell.planner.allow import counted
from swell.planner.asking import Asking, asking
from swell.planner.facts import Facts, facts, forbidden_nodes, offered
from swell.planner.fit import Groups
from swell.planner.rank import gpus_of
from swell.planner.room import Room, size
from swell.planner.size import least

NAMES_SHOWN_MAX = 5  # a sentence with more ids is not read


def explain(snapshot: Snapshot, job: JobView, verdict: Verdict, kind: str = "") -> Reason:
    """The reason of a job that waits. `kind`: of the object it was written as; empty: in our own notation."""
    reason = _WAITING[verdict.code](_Case(snapshot, job, verdict, asking(kind)))
    if not job.problem:
        return reason
    message = f"{reason.message}; the last time it could not be placed: {job.problem}"
    return replace(reason, message=message, evidence={**reason.evidence, "problem": job.problem})


def explain_record(code: Code, evidence: Evidence, kind: str = "") -> Reason:
    """The reason of a job that holds room or has ended, from what was recorded then. `kind`: as above."""
    message, following = _RECORDED[code](evidence, asking(kind))
    return Reason(code, message, evidence, following)


def is_waiting_code(code: Code, state: JobState) -> bool:
    """Is the reason worked out from the present (a queued job), not from what was recorded?"""
    return state is JobState.QUEUED and code in _WAITING


# -- jobs that wait ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """One job that waits, and everything that can be said about it."""

    snapshot: Snapshot
    job: JobView
    verdict: Verdict
    asking: Asking

    @property
    def groups(self) -> Groups:
        return least(self.job.shape)

    @property
    def task(self) -> Resources:
        """The most demanding of its tasks."""
        return max((resources for resources, _ in self.groups), key=size)

    @property
    def wants(self) -> str:
        shape = self.job.shape
        if shape.is_array:
            return f"{self.task} for each task"
        at_least = "at least " if shape.width_min < shape.width_max else ""
        if sum(count for _, count in self.groups) == 1:
            return f"{at_least}{self.task}"
        roles = " and ".join(f"{_tasks(count)} of {resources}" for resources, count in self.groups)
        return f"{at_least}{roles}, all at once"

    @property
    def is_one_machine(self) -> bool:
        return len(self.snapshot.nodes) == 1

    @property
    def facts(self) -> Facts:
        return facts(self.snapshot, self.job.shape.rules)

    def evidence(self) -> Evidence:
        task, free = self.task, _nearest(self.facts.free, self.task)
        memory: Evidence = {}
        if task.gpu_memory_mib:
            memory = {"wants_gpu_memory_mib": task.gpu_memory_mib, "largest_free_gpu_memory_mib": free.gpu_memory_mib}
        return memory | {
            "wants_tasks": sum(count for _, count in self.groups),
            "wants_cpus": task.cpus_milli / 1000,
            "wants_memory_mib": task.memory_mib,
            "wants_gpus": task.gpus,
            "largest_free_cpus": free.cpus_milli / 1000,
            "largest_free_memory_mib": free.memory_mib,
            "largest_free_gpus": free.gpus,
            "nodes": len(self.snapshot.nodes),
        }


def _nearest(rooms: Iterable[Resources], wanted: Resources) -> Resources:
    """What there is on the one node that comes nearest to holding a task."""
    return max(rooms, key=lambda room: (_share(wanted, room), *size(room)), default=NOTHING)


def _share(wanted: Resources, free: Resources) -> float:
    """How much of the demand is there, by the resource that is shortest."""
    wants, there = size(wanted), size(free)
    if wanted.is_share:
        wants, there = (wanted.gpu_memory_mib, *wants[1:]), (free.gpu_memory_mib, *there[1:])
    pairs = zip(wants, there, strict=True)
    return min((min(1.0, has / want) for want, has in pairs if want), default=1.0)


def _cannot_run_here(case: _Case) -> Reason:
    room = Room.of(case.snapshot.nodes)
    largest = _nearest((offered(room, node) for node in room.nodes), case.task)
    evidence = case.evidence()
    evidence |= {"largest_node_cpus": largest.cpus_milli / 1000, "largest_node_gpus": largest.gpus}
    evidence |= {"largest_node_memory_mib": largest.memory_mib}
    if unknown := _of_unknown_memory(case):
        return _memory_not_known(case, unknown, evidence)
    problem, lower = _too_large(case, largest) or _too_many(case)
    message = f"it wants {case.wants}, but {problem}; waiting will not help"
    following = f"cancel it and submit it again with {lower}, or add a machine"
    return Reason(Code.CANNOT_RUN_HERE, message, evidence, following)


def _of_unknown_memory(case: _Case) -> list[str]:
    """Nodes that would do, if only somebody said how much memory their GPUs have."""
    task = case.task
    if not task.gpu_memory_mib:
        return []
    otherwise = replace(task, gpus=max(1, task.gpus), gpu_memory_mib=0)
    return sorted(
        node.id
        for node in case.snapshot.nodes
        if any(device.memory_mib == 0 for device in node.devices) and otherwise.fits_in(node.capacity)
    )


def _memory_not_known(case: _Case, nodes: list[str], evidence: Evidence) -> Reason:
    named = ", ".join(nodes[:NAMES_SHOWN_MAX]) + (" …" if len(nodes) > NAMES_SHOWN_MAX else "")
    message = (
        f"it wants {case.wants}, but how much memory the GPUs of {named} have is not known: "
        f"the label {GPU_MEMORY_LABEL} is missing there"
    )
    following = (
        f"label the nodes (`kubectl label node {nodes[0]} {GPU_MEMORY_LABEL}=MIB`; NVIDIA's GPU feature discovery "
        "does it by itself), or cancel it and submit it again with whole GPUs"
    )
    return Reason(Code.CANNOT_RUN_HERE, message, evidence | {"gpu_memory_unknown": ", ".join(nodes)}, following)


def _too_large(case: _Case, largest: Resources) -> tuple[str, str] | None:
    """One task alone does not fit; None when it does."""
    less = case.asking.less(case.task, largest)
    where = "this machine has" if case.is_one_machine else "the node that comes nearest has"
    return (f"{where} {largest.as_far_as(case.task)}", less) if less else None


def _too_many(case: _Case) -> tuple[str, str]:
    """Each task fits, all together do not."""
    where = "on this machine" if case.is_one_machine else "on all nodes together"
    if len(case.groups) > 1:
        return f"they do not all fit {where}", "fewer or smaller tasks"
    room = Room.of(case.snapshot.nodes)
    fitting = sum(room.copies(node, case.task) for node in room.nodes)
    return f"only {_tasks(fitting)} fit{'s' if fitting == 1 else ''} {where}", case.asking.fewer(fitting)


def _tasks(count: int) -> str:
    return f"{count} task" + ("" if count == 1 else "s")


def _no_suitable_node(case: _Case) -> Reason:
    snapshot, rules = case.snapshot, case.job.shape.rules
    forbidden = forbidden_nodes(snapshot, rules)
    problems = counted(forbidden.values())
    total, allowed = len(snapshot.nodes), len(snapshot.nodes) - len(forbidden)
    if not allowed:
        message = f"it wants {case.wants}, but its rules allow none of the {total} nodes"
    else:
        message = f"it wants {case.wants}{_company(case)}, and the {allowed} of {total} nodes that its rules allow "
        message += "could not hold that if they were empty"
    message = "; ".join((message, *problems[:NAMES_SHOWN_MAX]))
    evidence = case.evidence() | {"nodes_allowed": allowed, "objections": problems}
    following = "change its node selector, affinity or tolerations, or label, untaint or uncordon a node"
    return Reason(Code.NO_SUITABLE_NODE, message, evidence, f"{following}; it starts as soon as nodes allow it")


def _company(case: _Case) -> str:
    wanted = {one.company for one in case.job.shape.rules if one is not None}
    words = {Company.APART: "on as many different nodes", Company.TOGETHER: "all on one node"}
    found = " and ".join(words[one] for one in words if one in wanted)
    return f" {found}" if found else ""


def _no_worker(case: _Case) -> Reason:
    return Reason(
        Code.NO_WORKER,
        "no machine has offered itself yet; the worker is probably still starting",
        {"nodes": len(case.snapshot.nodes)},
        "wait a moment; if it lasts, look at worker.log in the state folder",
    )


def _waiting_for_room(case: _Case) -> Reason:
    known, behind = case.facts, case.verdict.behind
    evidence = case.evidence() | {"held_by": known.holders[:NAMES_SHOWN_MAX], "behind": behind}
    where = "free here is" if case.is_one_machine else "the most that is free on one node is"
    message = f"it wants {case.wants}; {where} {_nearest(known.free, case.task).as_far_as(case.task)}"
    if known.holders:
        message += f"; the rest is held by {_jobs(known.holders)}"
    if known.foreign and (case.task.gpus or case.task.is_share):
        message += f"; processes outside Swell use {known.foreign} GPU" + ("" if known.foreign == 1 else "s")
    if known.full:
        message += f"; {known.full} node{' holds' if known.full == 1 else 's hold'} as many tasks as may be there"
    if known.draining:
        message += f"; {_jobs(known.draining)} will give room back when tasks end"
    if known.yielding:
        message += f"; {_jobs(known.yielding)} will give room back at the next checkpoint"
    if behind is not None:
        message += f"; job {behind} is served before it"
    if known.forbidden:
        message += f"; its rules keep it off {'; '.join(counted(known.forbidden)[:NAMES_SHOWN_MAX])}"
    return Reason(Code.WAITING_FOR_ROOM, message, evidence, _when(known.ends_at, case.snapshot.now))


def _when(latest: float | None, now: float) -> str:
    if latest is None:
        return "nothing to do: it starts when its turn comes"
    if latest == ENDLESS:
        return "nothing to do: it starts when enough room is given back (nobody can say when: a time limit is missing)"
    return f"nothing to do: by the time limits all room is given back in {max(0.0, latest - now):.0f} s"


def _waiting_in_line(case: _Case) -> Reason:
    behind = case.verdict.behind
    message = (
        f"it wants {case.wants}, which is free, but job {behind} stands before it "
        "and would have to wait longer if this one started first"
    )
    following = "nothing to do: its turn comes"
    if case.job.shape.time_limit_s is None:
        following = f"give it a time limit ({case.asking.more_time}): a job that is sure to end in time may go first"
    return Reason(Code.WAITING_IN_LINE, message, case.evidence() | {"behind": behind}, following)


def _user_limit(case: _Case) -> Reason:
    user, standing = case.job.user, case.snapshot.users.get(case.job.user, Standing())
    mine = [job for job in case.snapshot.holding if job.user == user]
    card_mib = case.snapshot.card_mib
    gpus = sum(gpus_of(slot.resources, card_mib) for job in mine for slot in job.slots)
    wants = sum(count * gpus_of(resources, card_mib) for resources, count in case.groups)
    evidence: Evidence = {"user": user, "gpus": gpus, "gpus_max": standing.gpus_max}
    evidence |= {"running": len(mine), "running_max": standing.running_max}
    if standing.gpus_max is not None and wants > standing.gpus_max:
        message = f"it wants {case.wants}, but {user} may hold at most {standing.gpus_max} GPUs; waiting will not help"
        following = f"submit it again with {case.asking.fewer_gpus(standing.gpus_max)}"
        return Reason(Code.USER_LIMIT, message, evidence, following)
    held = [f"{gpus:g} of at most {standing.gpus_max} GPUs"] if standing.gpus_max is not None else []
    held += [f"{len(mine)} of at most {standing.running_max} running jobs"] if standing.running_max is not None else []
    message = f"it wants {case.wants}; {user} holds {' and '.join(held)}"
    has_gpus = standing.gpus_max is None or gpus + wants <= standing.gpus_max
    if has_gpus and (standing.running_max is None or len(mine) < standing.running_max):
        message += ", and the rest is kept for those that wait before it"
    return Reason(Code.USER_LIMIT, message, evidence, "nothing to do: it starts when one of your jobs has ended")


def _over_estimate(case: _Case) -> Reason:
    used_s, estimate_s = case.job.used_s, case.job.estimate_s or 0.0
    room = _waiting_for_room(case)
    message = (
        f"it has run for {used_s / 3600:.1f} h, longer than its estimate of {estimate_s / 3600:.1f} h, "
        f"so others of its priority go first; {room.message}"
    )
    evidence = room.evidence | {"ran_s": used_s, "estimate_s": estimate_s}
    return Reason(
        Code.OVER_ESTIMATE, message, evidence, "nothing to do: its turn comes; give a better --hours next time"
    )


def _fair_share(case: _Case) -> Reason:
    behind, user = case.verdict.behind, case.job.user
    ahead = case.snapshot.jobs_by_id.get(behind or 0, case.job)
    used = {one: case.snapshot.users.get(one, Standing()).used_gpu_s / 3600 for one in (user, ahead.user)}
    message = (
        f"it wants {case.wants}; job {behind} of {ahead.user} is served before it: {ahead.user} has used "
        f"{used[ahead.user]:.1f} GPU-hours lately and {user} {used[user]:.1f}, and what stands in line counts, too"
    )
    evidence = case.evidence() | {"behind": behind, "used_gpu_hours": used[user]}
    return Reason(Code.FAIR_SHARE, message, evidence, "nothing to do: its turn comes")


def _not_yet_planned(_: _Case) -> Reason:
    message = "it was accepted a moment ago and is looked at next"
    return Reason(Code.NOT_YET_PLANNED, message, {}, "nothing to do")


def _unreachable(case: _Case) -> Reason:
    lost = sorted(node.id for node in case.snapshot.nodes if not node.is_reachable)
    message = f"it wants {case.wants}, which only fits where no worker answers: {', '.join(lost)}"
    following = "bring that worker back; see worker.log"
    return Reason(Code.WORKER_UNREACHABLE, message, {"unreachable_nodes": lost}, following)


def _waiting_for_job(case: _Case) -> Reason:
    waits_for = list(case.job.waits_for)
    following = f"nothing to do: it is looked at when that has ended; see `swell why {case.verdict.behind}`"
    return Reason(Code.WAITING_FOR_JOB, f"it starts after {_jobs(waits_for)}", {"after": waits_for}, following)


def _waiting_to_retry(case: _Case) -> Reason:
    in_s = max(0.0, (case.job.not_before or 0.0) - case.snapshot.now)
    if case.job.problem:
        following = "nothing to do; if it lasts, look at what the cluster says there"
        return Reason(Code.WAITING_TO_RETRY, f"it is tried again in {in_s:.0f} s", {"in_s": in_s}, following)
    message = f"it failed and is tried again in {in_s:.0f} s"
    return Reason(Code.WAITING_TO_RETRY, message, {"in_s": in_s}, f"see why it failed: swell logs {case.job.id}")


def _jobs(ids: list[JobId]) -> str:
    shown = ", ".join(str(job) for job in ids[:NAMES_SHOWN_MAX])
    more = len(ids) - NAMES_SHOWN_MAX
    return ("job " if len(ids) == 1 else "jobs ") + shown + (f" and {more} more" if more > 0 else "")


_WAITING: dict[Code, Callable[[_Case], Reason]] = {
    Code.WAITING_FOR_JOB: _waiting_for_job,
    Code.WAITING_TO_RETRY: _waiting_to_retry,
    Code.CANNOT_RUN_HERE: _cannot_run_here,
    Code.NO_SUITABLE_NODE: _no_suitable_node,
    Code.NO_WORKER: _no_worker,
    Code.WORKER_UNREACHABLE: _unreachable,
    Code.USER_LIMIT: _user_limit,
    Code.OVER_ESTIMATE: _over_estimate,
    Code.FAIR_SHARE: _fair_share,
    Code.WAITING_FOR_ROOM: _waiting_for_room,
    Code.WAITING_IN_LINE: _waiting_in_line,
    Code.NOT_YET_PLANNED: _not_yet_planned,
}


# -- jobs that hold room, or have ended ----------------------------------------------------------------------


def _cancelled(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return f"cancelled by {evidence.get('by') or 'its owner'}", "nothing to do; submit it again to run it"


def _object_deleted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"its {evidence.get('object') or 'object'} was deleted by somebody with kubectl"
    return message, "nothing to do; submit it again to run it"


def _time_limit(evidence: Evidence, words: Asking) -> tuple[str, str]:
    message = f"it ran longer than its time limit of {_number(evidence, 'limit_s')} s and was stopped"
    return message, f"give it more time ({words.more_time})"


def _gpu_memory_overrun(evidence: Evidence, _: Asking) -> tuple[str, str]:
    used, reserved = _number(evidence, "used_mib"), _number(evidence, "reserved_mib")
    message = f"it used {used} MiB of the GPU it shared and had reserved {reserved} MiB, and was stopped for that"
    return message, f"reserve more (--gpu-memory {_number(evidence, 'needs_mib')}MiB), or let it go on with a warning"


def _gpu_idle(evidence: Evidence, _: Asking) -> tuple[str, str]:
    below, window = _number(evidence, "min_gpu_utilization"), _number(evidence, "window_s")
    message = f"none of its GPUs reached {below} % utilisation within {window} s, and it was stopped for that"
    return message, f"see what it waited for: swell logs {evidence.get('job')}; or give it a longer window"


def _machine_restarted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return f"the machine {evidence.get('node')} was restarted while it ran", "submit it again"


def _start_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"task {evidence.get('rank')} could not be started: {evidence.get('problem')}",
        "correct that and submit it again",
    )


def _image_unavailable(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"the image of task {evidence.get('rank')} cannot be used: {evidence.get('problem')}",
        "correct the image's name, or what it needs to be pulled with, and submit it again",
    )


def _out_of_memory(evidence: Evidence, words: Asking) -> tuple[str, str]:
    limit = "it may" if evidence.get("memory_mib") is None else f"its limit of {_number(evidence, 'memory_mib')} MiB"
    message = f"task {evidence.get('rank')} was killed because it used more memory than {limit}"
    where = f"swell logs --rank {evidence.get('rank')} {evidence.get('job')}"
    return message, f"give it more memory ({words.more_memory}), or see what it did: {where}"


def _keeper_lost(evidence: Evidence, _: Asking) -> tuple[str, str]:
    who = f"task {evidence.get('rank')}"
    return (
        f"{who} ended, but the process that records its exit code was killed from outside",
        "see what killed it (dmesg shows the kernel's out-of-memory killer), then submit it again",
    )


def _task_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    code, failed, rank = evidence.get("exit_code"), evidence.get("failed"), evidence.get("rank")
    which = f"task {rank}" if failed == 1 else f"{failed} tasks, first task {rank},"
    return (
        f"{which} ended with exit code {code}{_signal(code)}",
        f"swell logs --rank {rank} {evidence.get('job')}",
    )


def _signal(code: object) -> str:
    names = {130: "SIGINT", 137: "SIGKILL", 139: "SIGSEGV: a crash", 134: "SIGABRT", 143: "SIGTERM"}
    notes = {127: "the command was not found", 126: "the command may not be executed"}
    if not isinstance(code, int):
        return ""
    return f" ({names[code]})" if code in names else f" ({notes[code]})" if code in notes else ""


def _dependency_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"it was to start after job {evidence.get('after')} had succeeded, but that one {evidence.get('state')}"
    return message, "see why that one did not succeed; submit this one again, or with --after JOB:end"


def _held(evidence: Evidence, _: Asking) -> tuple[str, str]:
    following = f"swell release {evidence.get('job')}"
    if evidence.get("object"):
        return f"its {evidence['object']} was suspended by somebody else, with kubectl", following
    return f"{evidence.get('by') or 'somebody'} asked that it wait", following


def _stopping(evidence: Evidence, _: Asking) -> tuple[str, str]:
    cause, grace_s = evidence.get("cause"), _number(evidence, "grace_s")
    return f"it is being stopped ({cause}); its processes have {grace_s} s to end by themselves", "wait"


def _starting(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"room is given on {evidence.get('nodes')}; its processes are being started"
    if evidence.get("trouble"):
        return f"{message}; {evidence['trouble']}", "wait a moment; if it lasts, correct that, or cancel it"
    return message, "wait a moment"


def _task_trouble(evidence: Evidence, _: Asking) -> tuple[str, str]:
    following = f"see what it did: swell logs {evidence.get('job')}; correct that and submit it again, or wait"
    return f"it runs, but not all of it: {evidence.get('trouble')}", following


def _lost_contact(evidence: Evidence, _: Asking) -> tuple[str, str]:
    node, silent_s = evidence.get("node"), _number(evidence, "silent_s")
    return (
        f"its machine {node} has not been heard of for {silent_s} s; it may still run",
        "start the worker there again; it takes up what runs",
    )


def _number(evidence: Evidence, key: str) -> str:
    value = evidence.get(key)
    return f"{value:.10g}" if isinstance(value, int | float) else "?"


_RECORDED: dict[Code, Callable[[Evidence, Asking], tuple[str, str]]] = {
    Code.CANCELLED: _cancelled,
    Code.OBJECT_DELETED: _object_deleted,
    Code.TIME_LIMIT: _time_limit,
    Code.GPU_MEMORY_OVERRUN: _gpu_memory_overrun,
    Code.GPU_IDLE: _gpu_idle,
    Code.MACHINE_RESTARTED: _machine_restarted,
    Code.START_FAILED: _start_failed,
    Code.IMAGE_UNAVAILABLE: _image_unavailable,
    Code.OUT_OF_MEMORY: _out_of_memory,
    Code.KEEPER_LOST: _keeper_lost,
    Code.TASK_FAILED: _task_failed,
    Code.DEPENDENCY_FAILED: _dependency_failed,
    Code.HELD: _held,
    Code.STOPPING: _stopping,
    Code.TASK_TROUBLE: _task_trouble,
    Code.STARTING: _starting,
    Code.WORKER_UNREACHABLE: _lost_contact,
}
