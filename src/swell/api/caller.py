"""Who asks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from swell.errors import Denied
from swell.model.identity import Identity
from swell.model.job import JobId
from swell.store import EventRecord

SCOPE_KEY = "swell.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, as the guard made sure of them."""

    user: str
    is_admin: bool  #: may see and change everybody's jobs, and the server itself
    origin: str = ""  #: from where, for the audit: an address, a process
    own: str | None = None  #: whose jobs a name or "all" means; None: everybody's, on a private server
    uid: int | None = None  #: as whom their tasks run; None: as the server itself, which is private
    identity: Identity | None = None  #: as the cluster names them; None: no cluster does

    @property
    def is_operator(self) -> bool:
        """Root on its machine, or who has the token of the server itself: whoever could act as anybody anyway."""
        return self.is_admin and self.uid in (None, 0) and self.identity is None

    def may_touch(self, owner: str) -> bool:
        return self.is_admin or owner == self.user

    def did(self, kind: str, job: JobId | None = None, **detail: Any) -> EventRecord:
        """For the record: what, by whom and from where."""
        return EventRecord(kind, job, self.user, detail, origin=self.origin)


def require_admin(caller: Caller, what: str) -> None:
    if not caller.is_admin:
        raise Denied(f"only an administrator of this machine may {what}; you are {caller.user!r}")


async def caller_of(request: Request) -> Caller:  # not a plain function: that is run in a thread of its own
    found = request.scope[SCOPE_KEY]
    assert isinstance(found, Caller)
    return found


Who = Annotated[Caller, Depends(caller_of)]  #: for endpoints: `async def stop(caller: Who)`
