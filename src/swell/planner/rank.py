"""Who stands before whom?

Higher priority first. Of one priority those that have kept within their users' estimates stand before those that ran
longer. Then fair share: every user's jobs are lined up one behind the other, and each counts for those behind it
like an hour of running, on top of what its user has used lately (which fades). Whoever has the least before them is
served next, so one who submits 300 jobs at once stands in the way of nobody who submits one. A job counts the same
whether it waits or runs, so starting one changes nobody's place: planning twice changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter

from swell.model.job import JobId, JobState
from swell.model.plan import JobView, Snapshot
from swell.model.resources import gpus_of
from swell.model.usage import CPU_WEIGHT

COUNTS_AS_S = 3600.0  # a job in line or running counts for its user's next ones as if it had run so long


def line_up(snapshot: Snapshot) -> list[JobView]:
    """Those that want something, in the order in which they are served."""
    wanting = [job for job in snapshot.jobs if job.state is JobState.QUEUED or may_change_slots(job)]
    wanting.sort(key=attrgetter("id"))
    keys = fair_keys(snapshot, wanting)
    if keys:
        wanting.sort(key=lambda job: keys[job.id])
    late = {job.id for job in wanting if is_late(job, snapshot.now)}
    if late:
        wanting.sort(key=lambda job: job.id in late)
    wanting.sort(key=attrgetter("priority"), reverse=True)  # stable: plain keys are faster than a tuple
    for job in [job for job in wanting if job.reserved_at is not None and job.state is JobState.QUEUED]:
        _bring_forward(job, wanting)
    return wanting


def rank(job: JobView, now: float) -> int:
    """Who may take whose room: only those of a higher one. Of one priority those that are late stand below."""
    return 2 * job.priority + (not is_late(job, now))


def is_late(job: JobView, now: float) -> bool:
    """Has it run longer than its user said it would? What it measured itself counts more than that guess."""
    if job.estimate_s is None or (job.training is not None and job.training.left is not None):
        return False
    return job.used_s + (0.0 if job.started_at is None else now - job.started_at) > job.estimate_s


def may_change_slots(job: JobView) -> bool:
    return job.shape.is_array and (job.state is JobState.STARTING or job.state is JobState.RUNNING)


def fair_keys(snapshot: Snapshot, wanting: list[JobView]) -> dict[JobId, float]:
    """What stands before each job on its own user's account, in GPU-seconds; empty where only one user waits."""
    if len({job.user for job in wanting}) < 2:
        return {}
    card_mib = snapshot.card_mib
    used: defaultdict[str, float] = defaultdict(float)
    used |= {user: standing.used_gpu_s for user, standing in snapshot.users.items()}
    keys: dict[JobId, float] = {}
    counted = {job.id: job for job in (*wanting, *snapshot.holding) if not job.waits_for}
    for job in sorted(counted.values(), key=lambda job: (-job.priority, job.id)):
        keys[job.id] = used[job.user]
        used[job.user] += COUNTS_AS_S * demand(job, card_mib)
    return keys | {job.id: used[job.user] for job in wanting if job.waits_for}


def demand(job: JobView, card_mib: int) -> float:
    """What it takes at the least, in GPUs."""
    width = min(job.shape.width_max, job.unfinished) if job.shape.is_array else job.shape.width_min
    groups = job.shape.tasks_at(width)
    gpus = sum(count * gpus_of(resources, card_mib) for resources, count in groups)
    return gpus or CPU_WEIGHT * sum(count * resources.cpus_milli for resources, count in groups) / 1000


def _bring_forward(reserved: JobView, line: list[JobView]) -> None:
    """Whoever began to wait after room was promised to it, donors included, stands behind it; and so does whoever could
    not have taken that room, if it was taken from others by a PriorityClass."""
    assert reserved.reserved_at is not None
    place = line.index(reserved)
    for n, job in enumerate(line[:place]):
        is_later = job.lined_up_at > reserved.reserved_at or (reserved.preempts and not job.preempts)
        is_behind = job.state is JobState.QUEUED and is_later
        if is_behind and job.priority == reserved.priority:
            line.insert(n, line.pop(place))
            return
