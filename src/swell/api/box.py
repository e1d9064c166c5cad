"""Who of this machine's users asks, and is it an administrator?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from swell.api.caller import Caller
from swell.users import User, user_by_name, user_by_uid

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
