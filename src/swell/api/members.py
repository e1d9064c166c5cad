"""Who of a cluster's users asks, and may they create what they submit?

The cluster says who a token belongs to, and what its holder may do; nothing of that is decided here. Tokens are
remembered by their hash, and for a short time: one that was taken back stops working after it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from swell.api.box import Caller
from swell.api.threads import Threads
from swell.errors import Denied
from swell.manifests import Manifest
from swell.model.identity import Identity, ObjectKind

REMEMBERED_S = 60.0
UNKNOWN_REMEMBERED_S = 10.0  # a client that repeats a stale token must not become a load on the API server
TOKENS_REMEMBERED_MAX = 10_000
TOKEN_BYTES_MAX = 16 * 1024  # with many groups in it a token has 4 KiB
REVIEWS_AT_ONCE = 16
REVIEWS_OF_EACH = 4  # whoever sends tokens of their own invention keeps so many threads busy, and no more
ACCOUNT = "system:serviceaccount:"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # what one can be called


class AmbiguousName(Denied):
    """Somebody has a name by which they would be taken for others."""


class Reviewer(Protocol):
    """The cluster's own word. Raises `Unavailable` where it cannot be asked."""

    def who(self, token: str) -> Identity | None:
        """None: nobody's."""

    def may_create(self, identity: Identity, what: ObjectKind) -> bool: ...

    def may_delete(self, identity: Identity, what: ObjectKind) -> bool: ...

    def is_namespace(self, name: str) -> bool:
        """Is there a namespace of that name?"""


class Members:
    """The users of one cluster, as one server for all of them sees them."""

    def __init__(
        self,
        reviewer: Reviewer,
        created: Callable[[Manifest], Iterable[ObjectKind]],
        *,
        owner: str,
        admin_group: str,
        admins: Iterable[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._created = created  #: what becomes of a job
        self._owner = owner  #: whose name belongs to the server's own token, and to nobody of the cluster
        self._admin_group = admin_group
        self._admins = frozenset(admins)
        self._monotonic = monotonic
        self._known: dict[bytes, tuple[Caller | None, float]] = {}
        self._threads = Threads("review", REVIEWS_AT_ONCE, per_user=REVIEWS_OF_EACH)

    def close(self) -> None:
        self._threads.close()

    def administrator(self, origin: str) -> Caller:
        """Whoever has the server's own token."""
        return Caller(self._owner, True, origin, own=self._owner)

    async def caller(self, token: str, origin: str) -> Caller | None:
        """None: the cluster does not know whose this token is."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found, until = self._known.get(key, (None, 0.0))
        if self._monotonic() >= until:
            found = await self._look_up(token, origin)
            self._remember(key, found)
        return None if found is None else replace(found, origin=origin)

    def acting_for(self, name: str, origin: str) -> Caller:
        """Somebody who acts in a user's name: with that user's own rights, without those of groups nobody knows of."""
        return Caller(name, False, origin, own=name, identity=Identity(name, _groups_of(name)))

    async def refuse_creation(self, caller: Caller, manifests: Iterable[Manifest]) -> None:
        """A job runs as what the user could have created themselves; the server's own rights are nobody's detour."""
        for what in sorted({what for one in manifests for what in self._created(one)}, key=str):
            if not await self._may_create(caller, what):
                raise Denied(
                    f"{caller.user!r} may not create a {what}, and Swell creates only what you could create "
                    "yourself; ask for that permission, or name another namespace"
                )

    async def refuse_looking(self, caller: Caller, namespace: str) -> None:
        """What a quota leaves is for those who could use it: they would be told when a pod of theirs is refused."""
        what = ObjectKind("v1", "Pod", namespace)
        if not await self._may_create(caller, what):
            raise Denied(f"{caller.user!r} may not create a {what}, so its quota is not shown; ask for that permission")

    async def refuse_deletion(self, caller: Caller, what: ObjectKind) -> None:
        """What somebody applied with kubectl is deleted for who could delete it with kubectl."""
        if not await self._may(caller, what, self._reviewer.may_delete):
            raise Denied(
                f"{caller.user!r} may not delete a {what}, and Swell deletes only what you could delete yourself"
            )

    async def _may_create(self, caller: Caller, what: ObjectKind) -> bool:
        return await self._may(caller, what, self._reviewer.may_create)

    async def _may(self, caller: Caller, what: ObjectKind, review: Callable[[Identity, ObjectKind], bool]) -> bool:
        identity = caller.identity
        if identity is None:
            return True  # the server's own token
        return await self._threads.run(identity.user, lambda: review(identity, what))

    async def _look_up(self, token: str, origin: str) -> Caller | None:
        """Who it is, is not known yet: an address has its share."""
        if len(token) > TOKEN_BYTES_MAX:
            return None
        address = origin.rpartition(":")[0]
        identity = await self._threads.run(address, lambda: self._reviewer.who(token))
        if identity is None or identity.user == self._owner:
            return None
        await self._refuse_name_of_a_namespace(identity, address)
        is_admin = identity.user in self._admins or self._admin_group in identity.groups
        return Caller(identity.user, is_admin, own=identity.user, identity=identity)

    async def _refuse_name_of_a_namespace(self, identity: Identity, address: str) -> None:
        """What kubectl makes in a namespace counts as of a user of its name, whose jobs nobody else may touch."""
        name = identity.user
        if NAMESPACE.fullmatch(name) is None or not await self._threads.run(address, lambda: self._is_namespace(name)):
            return
        what = ObjectKind("v1", "Pod", name)
        if not await self._threads.run(address, lambda: self._reviewer.may_create(identity, what)):
            raise AmbiguousName(
                f"your name, {name!r}, is that of a namespace in which you may not create pods, and the jobs that "
                "kubectl makes there would be yours; ask an administrator for another name, or for that permission"
            )

    def _is_namespace(self, name: str) -> bool:
        try:
            return self._reviewer.is_namespace(name)
        except Denied:  # a server of somebody who may list no namespaces, which takes in its own one's alone
            return False

    def _remember(self, key: bytes, found: Caller | None) -> None:
        if len(self._known) >= TOKENS_REMEMBERED_MAX:
            self._known.clear()
        lasts_s = UNKNOWN_REMEMBERED_S if found is None else REMEMBERED_S
        self._known[key] = found, self._monotonic() + lasts_s


def _groups_of(name: str) -> tuple[str, ...]:
    """Those that follow from the name alone, as Kubernetes derives them."""
    if not name.startswith(ACCOUNT):
        return ("system:authenticated",)
    namespace = name.removeprefix(ACCOUNT).partition(":")[0]
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
