"""Who of this machine's users asks, and is it an administrator?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from swell.errors import Denied
from swell.machine.users import User, user_by_name, user_by_uid
from swell.model.identity import Identity
from swell.model.job import JobId
from swell.store import EventRecord

SCOPE_KEY = "swell.caller"


@dataclass(frozen=True, slots=True)
class OthersData:
    """What an administrator has read that is not their own, or somebody else has asked for."""

    owner: str | None  #: None: everybody's
    job: JobId | None = None  #: None: not of one job


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, as the guard made sure of them."""

    user: str
    is_admin: bool  #: may see and change everybody's jobs, and the server itself
    origin: str = ""  #: from where, for the audit: an address, a process
    own: str | None = None  #: whose jobs a name or "all" means; None: everybody's, on a private server
    uid: int | None = None  #: as whom their tasks run; None: as the server itself, which is private
    identity: Identity | None = None  #: as the cluster names them; None: no cluster does
    token: str = ""  #: what they came with, in words, where it opens less than its owner may; empty: nothing like that
    is_pool: bool = False  #: came with a token of the scope `pool`, which opens what pools ask for
    reads: list[OthersData] | None = field(default=None, compare=False)  #: in this request; None: nobody wants to know
    denied: list[OthersData] | None = field(default=None, compare=False)  #: the same: asked for, and not shown

    @property
    def is_operator(self) -> bool:
        """Root on its machine, or who has the token of the server itself: whoever could act as anybody anyway."""
        return self.is_admin and self.uid in (None, 0) and self.identity is None

    @property
    def no_admin(self) -> str:
        """Why they are none, and what to do about it if they could be."""
        if self.token:
            return f"{self.token}; make a token with the scope admin: swell token create NAME --scope admin"
        return f"you are {self.user!r}"

    def may_touch(self, owner: str) -> bool:
        return self.is_admin or owner == self.user

    def may_name(self, owner: str, job: JobId) -> bool:
        """As `may_touch`, of a job that was asked for by its id; who may not is told that there is none."""
        if self.may_touch(owner):
            return True
        if self.denied is not None:
            self.denied.append(OthersData(owner, job))
        return False

    def reads_of(self, owner: str | None, job: JobId | None = None) -> None:
        """Said where it is read, by what was understood of the request. `owner` None: everybody's."""
        if self.reads is not None and self.is_admin and self.own is not None and owner != self.user:
            self.reads.append(OthersData(owner, job))

    def did(self, kind: str, job: JobId | None = None, **detail: Any) -> EventRecord:
        """For the record: what, by whom and from where."""
        return EventRecord(kind, job, self.user, detail, origin=self.origin)


def require_admin(caller: Caller, what: str) -> None:
    if not caller.is_admin:
        raise Denied(f"only an administrator of this machine may {what}; {caller.no_admin}")


async def caller_of(request: Request) -> Caller:  # not a plain function: that is run in a thread of its own
    found = request.scope[SCOPE_KEY]
    assert isinstance(found, Caller)
    return found


Who = Annotated[Caller, Depends(caller_of)]  #: for endpoints: `async def stop(caller: Who)`


REMEMBERED_S = 30.0  # a group's change counts after this; the directory service is not asked for every request
USERS_REMEMBERED_MAX = 10_000


class Box:
    """The users of one machine, as one server for all of them sees them."""

    def __init__(
        self,
        admin_group: str,
        *,
        runtime_folder: Callable[[int], Path],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin_group = admin_group
        self.runtime_folder = runtime_folder  #: where containers of the user with that number are known
        self._monotonic = monotonic
        self._known: dict[int, tuple[Caller, float]] = {}

    def known(self, uid: int, origin: str) -> Caller | None:
        """At once; None: look it up."""
        caller, until = self._known.get(uid, (None, 0.0))
        return replace(caller, origin=origin) if caller is not None and self._monotonic() < until else None

    def find(self, uid: int, origin: str) -> Caller | None:
        """As `look_up`, unless somebody has just done so."""
        return self.known(uid, origin) or self.look_up(uid, origin)

    def look_up(self, uid: int, origin: str) -> Caller | None:
        """May take as long as the machine's directory service does; None: no such user."""
        user = user_by_uid(uid)
        if user is None:
            return None
        caller = Caller(user.name, self._is_admin(user), origin, own=user.name, uid=uid)
        if len(self._known) >= USERS_REMEMBERED_MAX:
            self._known.clear()
        self._known[uid] = caller, self._monotonic() + REMEMBERED_S
        return caller

    def acting_for(self, name: str, origin: str) -> Caller | None:
        """Somebody who acts in a user's name, without the rights of an administrator; None: no such user."""
        user = user_by_name(name)
        return None if user is None else Caller(user.name, False, origin, own=user.name, uid=user.uid)

    def _is_admin(self, user: User) -> bool:
        return user.uid == 0 or user.is_in(self._admin_group)
