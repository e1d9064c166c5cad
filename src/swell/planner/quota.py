"""How much more may a user hold?

As with room there are two accounts. What is *held* at this moment, also while it is being given back, bounds what may
start now. What everybody *keeps* in the line (elastic jobs their least width, victims nothing, waiting ones what they
claim or have reserved) bounds who may wait for room at all, and by how much a user's elastic jobs may be wider than
their least.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from swell.model.plan import JobView, Place, Snapshot
from swell.model.resources import gpus_of
from swell.planner.seat import least

EPSILON = 1e-9  # shares of a GPU do not add up exactly


class UserTotals:
    """GPUs and jobs by user."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._card_mib = snapshot.card_mib
        self._users = {user: one for user, one in snapshot.users.items() if one.is_limited}  #: nobody else is counted
        self._gpus: defaultdict[str, float] = defaultdict(float)
        self._jobs: defaultdict[str, int] = defaultdict(int)

    def copy(self) -> UserTotals:
        copied = UserTotals.__new__(UserTotals)
        copied._card_mib, copied._users = self._card_mib, self._users
        copied._gpus, copied._jobs = self._gpus.copy(), self._jobs.copy()
        return copied

    def add(self, job: JobView, places: Iterable[Place], *, is_new: bool = True) -> None:
        if job.user in self._users:
            self._gpus[job.user] += self._sum(places)
            self._jobs[job.user] += is_new

    def remove(self, job: JobView, places: Iterable[Place]) -> None:
        if job.user in self._users:
            self._gpus[job.user] -= self._sum(places)
            self._jobs[job.user] -= 1

    def allows(self, job: JobView) -> bool:
        """One more job, with these tasks."""
        standing = self._users.get(job.user)
        if standing is None:
            return True
        if standing.has_no_disk_left and not job.has_begun:
            return False
        if standing.running_max is not None and self._jobs[job.user] >= standing.running_max:
            return False
        if standing.gpus_max is None:
            return True
        wants = sum(count * gpus_of(resources, self._card_mib) for resources, count in least(job.shape))
        return not wants or wants <= self.spare_gpus(job.user) + EPSILON

    def copies(self, job: JobView) -> float:
        """How many more of an array's tasks."""
        each, spare = gpus_of(job.shape.roles[0][0], self._card_mib), self.spare_gpus(job.user)
        return math.inf if not each or spare == math.inf else max(0.0, (spare + EPSILON) // each)

    def spare_gpus(self, user: str) -> float:
        standing = self._users.get(user)
        if standing is None or standing.gpus_max is None:
            return math.inf
        return standing.gpus_max - self._gpus[user]

    def _sum(self, places: Iterable[Place]) -> float:
        return sum(gpus_of(place.resources, self._card_mib) for place in places)
