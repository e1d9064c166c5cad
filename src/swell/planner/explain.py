"""Why, in words: what was asked, what is true, what to do.

The planner leaves a code and who stands in the way; the words and numbers are worked out here, from the same
snapshot, when somebody asks. Codes of jobs that run or have ended carry their evidence from the store (recorded.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from swell.model.diskuse import MIB, DiskUse
from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, JobView, Snapshot, Standing, Verdict
from swell.model.reason import Code, Evidence, Reason
from swell.planner.allow import counted
from swell.planner.asking import asking
from swell.planner.case import NAMES_SHOWN_MAX, Case, nearest
from swell.planner.clusterquota import advice
from swell.planner.unsuitable import cannot_run_here, find_over_limit, no_suitable_node

NOT_YET_PLANNED = Reason(
    Code.NOT_YET_PLANNED, "it was accepted a moment ago and is looked at next", {}, "nothing to do"
)


def explain(snapshot: Snapshot, job: JobView, verdict: Verdict, kind: str = "", *, on_cluster: bool = False) -> Reason:
    """The reason of a job that waits. `kind`: of the object it was written as; empty: in our own notation.

    `on_cluster`: its nodes are a cluster's, on which no worker of ours runs.
    """
    words = {**WAITING, **ON_CLUSTER} if on_cluster else WAITING
    reason = words[verdict.code](Case(snapshot, job, verdict, asking(kind)))
    if not job.problem:
        return reason
    message = f"{reason.message}; the last time it could not be placed: {job.problem}"
    return replace(reason, message=message, evidence={**reason.evidence, "problem": job.problem})


def is_waiting_code(code: Code, state: JobState) -> bool:
    """Is the reason worked out from the present (a queued job), not from what was recorded?"""
    return state is JobState.QUEUED and code in WAITING


def _no_worker(case: Case) -> Reason:
    return Reason(
        Code.NO_WORKER,
        "no machine has offered itself yet; the worker is probably still starting",
        {"nodes": len(case.snapshot.nodes)},
        "wait a moment; if it lasts, look at worker.log in the state folder",
    )


def _no_node(case: Case) -> Reason:
    return Reason(
        Code.NO_WORKER,
        "the cluster has no node",
        {"nodes": len(case.snapshot.nodes)},
        "add a node (`kubectl get nodes` shows those that are there); an autoscaler that sees the job adds one by "
        "itself, which takes some minutes",
    )


def _waiting_for_room(case: Case) -> Reason:
    known, behind = case.facts, case.verdict.behind
    evidence = case.evidence() | {"held_by": known.holders[:NAMES_SHOWN_MAX], "behind": behind}
    where = "free here is" if case.is_one_machine else "the most that is free on one node is"
    message = f"it wants {case.wants}; {where} {nearest(known.free, case.task).as_far_as(case.task)}"
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


def _waiting_in_line(case: Case) -> Reason:
    behind = case.verdict.behind
    message = (
        f"it wants {case.wants}, which is free, but job {behind} stands before it "
        "and would have to wait longer if this one started first"
    )
    following = "nothing to do: its turn comes"
    if case.job.shape.time_limit_s is None:
        following = f"give it a time limit ({case.asking.more_time}): a job that is sure to end in time may go first"
    return Reason(Code.WAITING_IN_LINE, message, case.evidence() | {"behind": behind}, following)


def _user_limit(case: Case) -> Reason:
    user, standing = case.job.user, case.snapshot.users.get(case.job.user, Standing())
    mine = [job for job in case.snapshot.holding if job.user == user]
    gpus = case.snapshot.gpus_held(user)
    evidence: Evidence = {"user": user, "gpus": gpus, "gpus_max": standing.gpus_max}
    evidence |= {"running": len(mine), "running_max": standing.running_max}
    over = find_over_limit(case)
    if over is not None:
        message = f"{over.problem}; waiting will not help"
        return Reason(Code.USER_LIMIT, message, evidence, f"submit it again with {over.lower}")
    if standing.disk is not None and standing.disk.is_over and not case.job.has_begun:
        return _no_disk_left(user, standing.disk)
    held = [f"{gpus:g} of at most {standing.gpus_max} GPUs"] if standing.gpus_max is not None else []
    held += [f"{len(mine)} of at most {standing.running_max} running jobs"] if standing.running_max is not None else []
    message = f"it wants {case.wants}; {user} holds {' and '.join(held)}"
    has_gpus = standing.gpus_max is None or gpus + case.gpus <= standing.gpus_max
    if has_gpus and (standing.running_max is None or len(mine) < standing.running_max):
        message += ", and the rest is kept for those that wait before it"
    return Reason(Code.USER_LIMIT, message, evidence, "nothing to do: it starts when one of your jobs has ended")


def _no_disk_left(user: str, disk: DiskUse) -> Reason:
    evidence: Evidence = {"user": user, "disk_mib": round(disk.bytes / MIB, 1), "disk_mib_max": disk.bytes_max // MIB}
    evidence |= {"largest": [job for job, _ in disk.largest]}
    message = f"{user} has {disk.in_words}; no further job of theirs starts"
    return Reason(Code.USER_LIMIT, message, evidence, f"{disk.advice}; it starts some seconds later")


def _over_estimate(case: Case) -> Reason:
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


def _fair_share(case: Case) -> Reason:
    behind, user = case.verdict.behind, case.job.user
    ahead = case.snapshot.jobs_by_id.get(behind or 0, case.job)
    used = {one: case.snapshot.users.get(one, Standing()).used_gpu_s / 3600 for one in (user, ahead.user)}
    message = (
        f"it wants {case.wants}; job {behind} of {ahead.user} is served before it: {ahead.user} has used "
        f"{used[ahead.user]:.1f} GPU-hours lately and {user} {used[user]:.1f}, and what stands in line counts, too"
    )
    evidence = case.evidence() | {"behind": behind, "used_gpu_hours": used[user]}
    return Reason(Code.FAIR_SHARE, message, evidence, "nothing to do: its turn comes")


def _unreachable(case: Case) -> Reason:
    lost = sorted(node.id for node in case.snapshot.nodes if not node.is_reachable)
    if not lost:
        return _lost_gpus(case)
    message = f"it wants {case.wants}, which only fits where no worker answers: {', '.join(lost)}"
    following = "bring that worker back; see worker.log"
    return Reason(Code.WORKER_UNREACHABLE, message, {"unreachable_nodes": lost}, following)


def _lost_gpus(case: Case) -> Reason:
    lost = sorted(device.id for node in case.snapshot.nodes for device in node.lost)
    message = f"it wants {case.wants}, which only fits with GPUs that have stopped to answer: {', '.join(lost)}"
    following = "see what is wrong with them (nvidia-smi, dmesg); it starts when they answer again"
    return Reason(Code.WORKER_UNREACHABLE, message, {"lost_gpus": lost}, following)


def _not_ready(case: Case) -> Reason:
    lost = sorted(node.id for node in case.snapshot.nodes if not node.is_reachable)
    message = f"it wants {case.wants}, which only fits on nodes that are not ready: {', '.join(lost)}"
    following = f"see what is wrong there: kubectl describe node {lost[0] if lost else 'NODE'}; or add a node"
    return Reason(Code.WORKER_UNREACHABLE, message, {"unreachable_nodes": lost}, following)


def _waiting_for_job(case: Case) -> Reason:
    waits_for = list(case.job.waits_for)
    following = f"nothing to do: it is looked at when that has ended; see `swell why {case.verdict.behind}`"
    return Reason(Code.WAITING_FOR_JOB, f"it starts after {_jobs(waits_for)}", {"after": waits_for}, following)


def _waiting_to_retry(case: Case) -> Reason:
    in_s = max(0.0, (case.job.not_before or 0.0) - case.snapshot.now)
    if case.job.problem:
        following = advice(case.job.problem) or "nothing to do; if it lasts, look at what the cluster says there"
        return Reason(Code.WAITING_TO_RETRY, f"it is tried again in {in_s:.0f} s", {"in_s": in_s}, following)
    message = f"it failed and is tried again in {in_s:.0f} s"
    return Reason(Code.WAITING_TO_RETRY, message, {"in_s": in_s}, f"see why it failed: swell logs {case.job.id}")


def _jobs(ids: list[JobId]) -> str:
    shown = ", ".join(str(job) for job in ids[:NAMES_SHOWN_MAX])
    more = len(ids) - NAMES_SHOWN_MAX
    return ("job " if len(ids) == 1 else "jobs ") + shown + (f" and {more} more" if more > 0 else "")


WAITING: dict[Code, Callable[[Case], Reason]] = {
    Code.WAITING_FOR_JOB: _waiting_for_job,
    Code.WAITING_TO_RETRY: _waiting_to_retry,
    Code.CANNOT_RUN_HERE: cannot_run_here,
    Code.NO_SUITABLE_NODE: no_suitable_node,
    Code.NO_WORKER: _no_worker,
    Code.WORKER_UNREACHABLE: _unreachable,
    Code.USER_LIMIT: _user_limit,
    Code.OVER_ESTIMATE: _over_estimate,
    Code.FAIR_SHARE: _fair_share,
    Code.WAITING_FOR_ROOM: _waiting_for_room,
    Code.WAITING_IN_LINE: _waiting_in_line,
    Code.NOT_YET_PLANNED: lambda _: NOT_YET_PLANNED,
}

#: What is told in other words where the nodes are a cluster's.
ON_CLUSTER: dict[Code, Callable[[Case], Reason]] = {
    Code.NO_WORKER: _no_node,
    Code.WORKER_UNREACHABLE: _not_ready,
}
