"""Why, in words: what was asked, what is true, what to do.

The planner leaves a code and who stands in the way; the words and numbers are worked out here, from the same
snapshot, when somebody asks. Codes of jobs that run or have ended carry their evidence from the store (recorded.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, JobView, Snapshot, Standing, Verdict
from swell.model.quantity import number_of
from swell.model.quota import MIB, DiskUse
from swell.model.reason import Code, Evidence, Reason
from swell.planner.nodes import counted
from swell.planner.place import patience_s
from swell.planner.rank import rank
from swell.planner.size import WAIT_S_MAX
from swell.planner.why.asking import asking
from swell.planner.why.exclusive import no_domain
from swell.planner.why.recorded import advice
from swell.planner.why.unsuitable import cannot_run_here, find_over_limit, no_suitable_node
from swell.planner.why.waiting import NAMES_SHOWN_MAX, WaitingJob, nearest

WaitingWords = Mapping[Code, Callable[[WaitingJob], Reason]]

NOT_YET_PLANNED = Reason(
    Code.NOT_YET_PLANNED, "it was just accepted; the next planning cycle looks at it", {}, "nothing to do"
)


EVICTS_NOBODY = (
    ", or if a PriorityClass whose preemptionPolicy is not Never is given to the job that waits: the cluster's "
    "administrator decides who may use which (`kubectl get priorityclasses`)"
)
EVICTS = ", or is evicted, which would not make enough room either: not for this job's whole gang"


def explain(
    snapshot: Snapshot, job: JobView, verdict: Verdict, kind: str = "", *, words: WaitingWords | None = None
) -> Reason:
    """The reason of a job that waits. `kind`: of the object it was written as; empty: in our own notation.

    `words`: see wording.py; None: of workers on machines.
    """
    if job.shape.domains and verdict.code in (Code.NO_SUITABLE_NODE, Code.CANNOT_RUN_HERE):
        reason = no_domain(WaitingJob(snapshot, job, verdict, asking(kind)))
    else:
        reason = (words or WAITING)[verdict.code](WaitingJob(snapshot, job, verdict, asking(kind)))
    if not job.problem:
        return reason
    message = f"{reason.message}; it could not be placed the last time: {job.problem}"
    return replace(reason, message=message, evidence={**reason.evidence, "problem": job.problem})


def is_waiting_code(code: Code, state: JobState) -> bool:
    """Is the reason worked out from the present (a queued job), not from what was recorded?"""
    return state is JobState.QUEUED and code in WAITING


def _no_worker(waiting: WaitingJob) -> Reason:
    return Reason(
        Code.NO_WORKER,
        "no nodes yet; the worker is probably still starting",
        {"nodes": len(waiting.snapshot.nodes)},
        "wait a moment; if this lasts, see worker.log in the state folder",
    )


def _no_node(waiting: WaitingJob) -> Reason:
    return Reason(
        Code.NO_WORKER,
        "the cluster has no nodes",
        {"nodes": len(waiting.snapshot.nodes)},
        "add a node (`kubectl get nodes` lists the nodes); a cluster autoscaler adds one by itself, which takes "
        "some minutes",
    )


def _waiting_for_room(waiting: WaitingJob) -> Reason:
    known, behind = waiting.facts, waiting.verdict.behind
    evidence = waiting.evidence() | {"held_by": known.holders[:NAMES_SHOWN_MAX], "behind": behind}
    where = "free here is" if waiting.is_one_machine else "the most that is free on one node is"
    message = f"it wants {waiting.wants}; {where} {nearest(known.free, waiting.task).as_far_as(waiting.task)}"
    if known.holders:
        message += f"; the rest is used by {_jobs(known.holders)}"
    if known.foreign and (waiting.task.gpus or waiting.task.is_share):
        message += f"; processes outside Swell use {number_of(known.foreign, 'GPU')}"
    if known.full:
        message += f"; {known.full} node{' holds' if known.full == 1 else 's hold'} the maximum number of pods"
    if known.draining:
        message += f"; {_jobs(known.draining)} will free resources when tasks end"
    if known.stopping:
        message += f"; {_jobs(known.stopping)} will free resources when stopped, which is being done now"
    if known.yielding:
        message += f"; {_jobs(known.yielding)} will free resources at the next checkpoint"
    if known.later:
        message += f"; {_jobs([job for _, job in known.later])} can shrink, but started only a moment ago"
    if lower := [
        job.id for job in known.stiff if rank(job, waiting.snapshot.now) < rank(waiting.job, waiting.snapshot.now)
    ]:
        message += (
            f"; {_jobs(lower)} {'has' if len(lower) == 1 else 'have'} a lower priority, but a job is "
            f"preempted only if it has reported a checkpoint or was submitted with {waiting.asking.resize}"
        )
        if any(node.labels is not None for node in waiting.snapshot.nodes):
            message += EVICTS if waiting.job.preempts else EVICTS_NOBODY
    if behind is not None:
        message += f"; job {behind} is ahead of it"
    if known.forbidden:
        message += f"; its placement rules exclude {'; '.join(counted(known.forbidden)[:NAMES_SHOWN_MAX])}"
    return Reason(Code.WAITING_FOR_ROOM, message, evidence, _when(known.ends_at, known.later, waiting.snapshot.now))


def _when(latest: float | None, later: list[tuple[float, JobId]], now: float) -> str:
    if latest is None:
        return "nothing to do; it starts when its turn comes"
    if later and later[0][0] < latest:
        at, job = later[0]
        return f"nothing to do; in {at - now:.0f} s job {job} can be asked to free resources"
    if latest == ENDLESS:
        return "nothing to do; it starts when enough resources are free"  # expected_start says when, if anything does
    return f"nothing to do; by their time limits, all running jobs will have ended in {max(0.0, latest - now):.0f} s"


def _waiting_in_line(waiting: WaitingJob) -> Reason:
    behind = waiting.verdict.behind
    message = (
        f"it wants {waiting.wants}, which is free, but job {behind} is ahead of it in the queue and "
        "would start later if this job started now"
    )
    following = "nothing to do; it starts when its turn comes"
    if waiting.job.shape.time_limit_s is None:
        following = f"give it a time limit ({waiting.asking.more_time}): a job that will end in time can be backfilled"
    return Reason(Code.WAITING_IN_LINE, message, waiting.evidence() | {"behind": behind}, following)


def _waiting_for_width(waiting: WaitingJob) -> Reason:
    job, now = waiting.job, waiting.snapshot.now
    left_s = max(0.0, job.lined_up_at + patience_s(job) - now)
    message = (
        f"it could start now with {waiting.wants}, but would be slower there; running jobs are freeing resources for "
        f"its full width; it waits at most {left_s:.0f} s for them"
    )
    evidence = waiting.evidence() | {"waits_s_max": left_s}
    return Reason(Code.WAITING_FOR_WIDTH, message, evidence, "nothing to do: it starts in a moment")


def _waiting_for_shorter(waiting: WaitingJob) -> Reason:
    left_s = max(0.0, waiting.job.lined_up_at + WAIT_S_MAX - waiting.snapshot.now)
    message = (
        f"it could start now with {waiting.wants}, but it is long, and jobs that end sooner make better use of the "
        f"resources; it waits at most {left_s:.0f} s for them"
    )
    evidence = waiting.evidence() | {"waits_s_max": left_s}
    return Reason(Code.WAITING_FOR_SHORTER, message, evidence, f"nothing to do: it starts within {left_s:.0f} s")


def _user_limit(waiting: WaitingJob) -> Reason:
    user, standing = waiting.job.user, waiting.snapshot.users.get(waiting.job.user, Standing())
    mine = [job for job in waiting.snapshot.holding if job.user == user]
    gpus = waiting.snapshot.gpus_held(user)
    evidence: Evidence = {"user": user, "gpus": gpus, "gpus_max": standing.gpus_max}
    evidence |= {"running": len(mine), "running_max": standing.running_max}
    over = find_over_limit(waiting)
    if over is not None:
        message = f"{over.problem}; waiting will not help"
        return Reason(Code.USER_LIMIT, message, evidence, f"submit it again with {over.lower}")
    if standing.disk is not None and standing.disk.is_over and not waiting.job.has_begun:
        return _no_disk_left(user, standing.disk)
    held = [f"{gpus:g} of at most {number_of(standing.gpus_max, 'GPU')}"] if standing.gpus_max is not None else []
    held += [f"{len(mine)} of at most {standing.running_max} running jobs"] if standing.running_max is not None else []
    message = f"it wants {waiting.wants}; {user} holds {' and '.join(held)}"
    has_gpus = standing.gpus_max is None or gpus + waiting.gpus <= standing.gpus_max
    if has_gpus and (standing.running_max is None or len(mine) < standing.running_max):
        message += ", and the rest is reserved for their jobs that are ahead of it"
    return Reason(Code.USER_LIMIT, message, evidence, "nothing to do; it starts when one of your jobs has ended")


def _no_disk_left(user: str, disk: DiskUse) -> Reason:
    evidence: Evidence = {"user": user, "disk_mib": round(disk.bytes / MIB, 1), "disk_mib_max": disk.bytes_max // MIB}
    evidence |= {"largest": [job for job, _ in disk.largest]}
    message = f"{user} has {disk.in_words}; no more of their jobs start"
    return Reason(Code.USER_LIMIT, message, evidence, f"{disk.advice}; it starts a few seconds later")


def _over_estimate(waiting: WaitingJob) -> Reason:
    used_s, estimate_s = waiting.job.used_s, waiting.job.estimate_s or 0.0
    room = _waiting_for_room(waiting)
    message = (
        f"it has run for {used_s / 3600:.1f} h, longer than its estimate of {estimate_s / 3600:.1f} "
        f"h, so other jobs of the same priority go first; {room.message}"
    )
    evidence = room.evidence | {"ran_s": used_s, "estimate_s": estimate_s}
    return Reason(
        Code.OVER_ESTIMATE,
        message,
        evidence,
        "nothing to do; it starts when its turn comes; next time, give a better --hours",
    )


def _fair_share(waiting: WaitingJob) -> Reason:
    behind, user = waiting.verdict.behind, waiting.job.user
    ahead = waiting.snapshot.jobs_by_id.get(behind or 0, waiting.job)
    used = {one: waiting.snapshot.users.get(one, Standing()).used_gpu_s / 3600 for one in (user, ahead.user)}
    message = (
        f"it wants {waiting.wants}; job {behind} of {ahead.user} is ahead of it: {ahead.user} has "
        f"recently used {used[ahead.user]:.1f} GPU-hours and {user} {used[user]:.1f}; queued jobs count, too"
    )
    evidence = waiting.evidence() | {"behind": behind, "used_gpu_hours": used[user]}
    return Reason(Code.FAIR_SHARE, message, evidence, "nothing to do; it starts when its turn comes")


def _unreachable(waiting: WaitingJob) -> Reason:
    lost = sorted(node.id for node in waiting.snapshot.nodes if not node.is_reachable)
    if not lost:
        return _lost_gpus(waiting)
    message = f"it wants {waiting.wants}, which only fits on unreachable nodes: {', '.join(lost)}"
    following = "restart the worker there; see worker.log"
    return Reason(Code.WORKER_UNREACHABLE, message, {"unreachable_nodes": lost}, following)


def _lost_gpus(waiting: WaitingJob) -> Reason:
    lost = sorted(device.id for node in waiting.snapshot.nodes for device in node.lost)
    message = f"it wants {waiting.wants}, which only fits on GPUs that do not respond: {', '.join(lost)}"
    following = "check the GPUs (nvidia-smi, dmesg); it starts when they respond again"
    return Reason(Code.WORKER_UNREACHABLE, message, {"lost_gpus": lost}, following)


def _not_ready(waiting: WaitingJob) -> Reason:
    lost = sorted(node.id for node in waiting.snapshot.nodes if not node.is_reachable)
    message = f"it wants {waiting.wants}, which only fits on nodes that are not ready: {', '.join(lost)}"
    following = f"check the node (kubectl describe node {lost[0] if lost else 'NODE'}), or add a node"
    return Reason(Code.WORKER_UNREACHABLE, message, {"unreachable_nodes": lost}, following)


def _waiting_for_job(waiting: WaitingJob) -> Reason:
    waits_for = list(waiting.job.waits_for)
    following = f"nothing to do; it can start when that job has ended; see `swell why {waiting.verdict.behind}`"
    return Reason(Code.WAITING_FOR_JOB, f"it starts after {_jobs(waits_for)}", {"after": waits_for}, following)


def _waiting_to_retry(waiting: WaitingJob) -> Reason:
    in_s = max(0.0, (waiting.job.not_before or 0.0) - waiting.snapshot.now)
    if waiting.job.problem:
        following = advice(waiting.job.problem) or "nothing to do; if this lasts, check the cluster"
        return Reason(Code.WAITING_TO_RETRY, f"it is retried in {in_s:.0f} s", {"in_s": in_s}, following)
    message = f"its last attempt ended early; the next one starts in {in_s:.0f} s"
    return Reason(Code.WAITING_TO_RETRY, message, {"in_s": in_s}, f"see why it ended: swell logs {waiting.job.id}")


def _jobs(ids: list[JobId]) -> str:
    shown = ", ".join(str(job) for job in ids[:NAMES_SHOWN_MAX])
    more = len(ids) - NAMES_SHOWN_MAX
    return ("job " if len(ids) == 1 else "jobs ") + shown + (f" and {more} more" if more > 0 else "")


WAITING: WaitingWords = {
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
    Code.WAITING_FOR_WIDTH: _waiting_for_width,
    Code.WAITING_FOR_SHORTER: _waiting_for_shorter,
    Code.NOT_YET_PLANNED: lambda _: NOT_YET_PLANNED,
}

#: The same where the nodes are a cluster's, on which no worker of ours runs.
WAITING_ON_CLUSTER: WaitingWords = {
    **WAITING,
    Code.NO_WORKER: _no_node,
    Code.WORKER_UNREACHABLE: _not_ready,
}
