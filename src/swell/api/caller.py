"""Who asks?"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

SCOPE_KEY = "swell.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, as the guard made sure of them."""

    user: str
    is_admin: bool  #: may see and change everybody's jobs, and the server itself
    origin: str = ""  #: from where, for the audit: an address, a process

    def may_touch(self, owner: str) -> bool:
        return self.is_admin or owner == self.user


def caller_of(request: Request) -> Caller:
    """For endpoints: `caller: Annotated[Caller, Depends(caller_of)]`."""
    found = request.scope[SCOPE_KEY]
    assert isinstance(found, Caller)
    return found
