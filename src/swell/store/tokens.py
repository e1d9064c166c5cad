"""Which tokens have users made, and which of them are still good?

Of a token's secret only the hash is here. A token that is revoked is deleted; the events say that it was there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from swell.errors import Conflict, TooMany
from swell.store import tables
from swell.store.accepting import write_events
from swell.store.records import EventRecord

TOKENS_PER_OWNER_MAX = 1000  # addresses of doors included; more are a script that makes them and revokes none
EXPIRED_KEPT_S = 30 * 86400.0  # so that whoever wonders why theirs is refused still finds it in the list


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token, or the address of a door, without its secret."""

    id: str  #: part of the token, and no secret
    name: str
    owner: str  #: in whose name it acts
    uid: int | None  #: of the owner when it was made; None: they have none here
    scope: str  #: what it opens
    created_at: float
    expires_at: float
    digest: str  #: SHA-256 of the secret, in hexadecimal


class TokenStore:
    """Part of the store; futures are done when it is on disk.

    What was found is remembered, because workers show their token with each of their requests, until any token is
    created or revoked. All of that goes through here.
    """

    def __init__(
        self,
        write: Callable[[Callable[[Connection], Any]], Future[Any]],
        rows: Callable[[Select[Any]], Sequence[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._write = write
        self._rows = rows
        self._clock = clock
        self._mutex = threading.Lock()
        self._known: dict[str, TokenRecord] = {}  #: empty while something is being changed
        self._changing = 0  #: changes that may not be on disk yet
        self._changes = 0  #: begun and ended

    def find(self, token_id: str) -> TokenRecord | None:
        """None: there never was one, or it has been revoked."""
        with self._mutex:
            known, before = self._known.get(token_id), self._changes
        if known is not None:
            return known
        rows = self._rows(select(tables.token).where(tables.token.c.id == token_id))
        found = TokenRecord(**rows[0]._mapping) if rows else None
        with self._mutex:
            if found is not None and not self._changing and self._changes == before:
                self._known[token_id] = found
        return found

    def _change(self, work: Callable[[Connection], Any]) -> Future[Any]:
        self._note_change(+1)
        written = self._write(work)
        written.add_done_callback(lambda _: self._note_change(-1))
        return written

    def _note_change(self, changing: int) -> None:
        """What was read before must not be remembered after."""
        with self._mutex:
            self._changing += changing
            self._changes += 1
            self._known.clear()

    def named(self, owner: str, name: str) -> TokenRecord | None:
        """None: the owner has none of that name."""
        is_it = (tables.token.c.owner == owner) & (tables.token.c.name == name)
        rows = self._rows(select(tables.token).where(is_it))
        return TokenRecord(**rows[0]._mapping) if rows else None

    def listing(self, *, owner: str | None) -> list[TokenRecord]:
        """The tokens of one owner, or (None) of everybody; the oldest first."""
        wanted = select(tables.token).order_by(tables.token.c.created_at, tables.token.c.id)
        found = wanted if owner is None else wanted.where(tables.token.c.owner == owner)
        return [TokenRecord(**row._mapping) for row in self._rows(found)]

    def create(self, token: TokenRecord, event: EventRecord) -> Future[None]:
        """Refused where the owner has one of that name, or too many."""

        def write(connection: Connection) -> None:
            connection.execute(delete(tables.token).where(tables.token.c.expires_at < self._clock() - EXPIRED_KEPT_S))
            _refuse_another(connection, token)
            connection.execute(insert(tables.token), asdict(token))
            write_events(connection, [event], self._clock())

        return self._change(write)

    def revoke(self, token_id: str, event: EventRecord) -> Future[None]:
        """Whoever shows it from now on is refused."""

        def write(connection: Connection) -> None:
            connection.execute(delete(tables.token).where(tables.token.c.id == token_id))
            write_events(connection, [event], self._clock())

        return self._change(write)


def _refuse_another(connection: Connection, token: TokenRecord) -> None:
    counted = select(func.count()).select_from(tables.token).where(tables.token.c.owner == token.owner)
    if connection.execute(counted).scalar_one() >= TOKENS_PER_OWNER_MAX:
        raise TooMany(f"{token.owner!r} has {TOKENS_PER_OWNER_MAX} tokens; revoke some first: swell token revoke NAME")
    if connection.execute(counted.where(tables.token.c.name == token.name)).scalar_one():
        raise Conflict(
            f"{token.owner!r} has a token named {token.name!r}; choose another name, or revoke that one first: "
            f"swell token revoke {token.name}"
        )
