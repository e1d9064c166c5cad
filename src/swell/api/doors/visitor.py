"""Who comes through a door, and which jobs may they touch?"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from swell.api.box import Caller
from swell.api.find import ID, IDS_SHOWN_MAX, ambiguous
from swell.errors import Conflict, Denied, NotFound
from swell.model.job import AttemptId
from swell.store import JobRecord, Store

SCOPE_KEY = "swell.visitor"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person, or a job that uses the address it was given."""

    caller: Caller
    attempt: AttemptId | None = None  #: the job's own; it may touch nothing else. None: a person

    def may_touch(self, job: JobRecord) -> bool:
        return job.id == self.attempt.job if self.attempt else self.caller.may_touch(job.owner)

    def may_name(self, job: JobRecord) -> bool:
        return job.id == self.attempt.job if self.attempt else self.caller.may_name(job.owner, job.id)

    def refuse_jobs(self, what: str) -> None:
        if self.attempt is not None:
            raise Denied(
                f"this address is job {self.attempt.job}'s own, for its reports; {what} needs a user's address"
            )

    def find(self, store: Store, ref: str) -> JobRecord:
        """By name or id; of several with one name the newest that lives, then the newest."""
        found = self._named(store, ref, ended=False) or self._named(store, ref, ended=None)
        if not found:
            raise NotFound(f"there is no job {ref!r}; GET /get_all_jobs lists them")
        self.caller.reads_of(found[0].owner, found[0].id)
        return found[0]

    def find_one(self, store: Store, ref: str) -> JobRecord:
        """For changing: a name must leave no doubt."""
        alive = self._named(store, ref, ended=False)
        if len(alive) > 1:
            raise ambiguous(ref, alive, store.count_named(ref, owner=self._owner, ended=False))
        return self.find(store, ref)

    def knows(self, store: Store, ref: str) -> bool:
        return bool(self._named(store, ref, ended=None))

    @property
    def _owner(self) -> str | None:
        """Whose jobs a name may mean; None: everybody's."""
        return self.caller.user if self.caller.own is None and not self.caller.is_admin else self.caller.own

    def _named(self, store: Store, ref: str, *, ended: bool | None) -> list[JobRecord]:
        """A name means one's own, also to an administrator: jobs of others have their ids. The newest few."""
        if self.attempt is not None:
            own = store.job(self.attempt.job)
            return [own] if ref in (own.name, str(own.id)) and ended in (None, own.state.has_ended) else []
        found = store.jobs_named(ref, owner=self._owner, ended=ended, limit=IDS_SHOWN_MAX)
        if found or not ID.fullmatch(ref):
            return found
        try:
            return [job for job in [store.job(int(ref))] if self.may_name(job) and ended in (None, job.state.has_ended)]
        except NotFound:
            return []

    def present(self, job: JobRecord) -> AttemptId:
        """The attempt that reports are about; what is over, or was not begun, has nothing to report."""
        if job.attempts == 0 or job.state.has_ended:
            raise Conflict(f"job {job.id} ({job.name}) is {job.state}: only a job that runs has something to report")
        return self.attempt or AttemptId(job.id, job.attempts)


async def visitor_of(request: Request) -> Visitor:
    """For endpoints: `visitor: Annotated[Visitor, Depends(visitor_of)]`."""
    found = request.scope[SCOPE_KEY]
    assert isinstance(found, Visitor)
    return found
