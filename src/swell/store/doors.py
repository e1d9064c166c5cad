"""Where may foreign clients come in without a token, and what have they asked us to remember?"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from swell.errors import Conflict
from swell.store import tables
from swell.store.accepting import write_events
from swell.store.records import EventRecord

Document = dict[str, Any]
Change = Callable[[Document | None], Document | None]

FOREIGN_MAX = 10_000  # records of one owner; a client that adds without end must stop somewhere
FOREIGN_BYTES_MAX = 16 * 1024 * 1024  # of one owner's records together: lists of them are read whole


@dataclass(frozen=True, slots=True)
class DoorRecord:
    """A port that serves one door without a token."""

    port: int
    name: str
    owner: str  #: in whose name it acts
    opened_at: float


class DoorStore:
    """Part of the store; futures are done when it is on disk."""

    def __init__(
        self,
        write: Callable[[Callable[[Connection], Any]], Future[Any]],
        rows: Callable[[Select[Any]], Sequence[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._write = write
        self._rows = rows
        self._clock = clock

    def opened(self) -> list[DoorRecord]:
        rows = self._rows(select(tables.door).order_by(tables.door.c.port))
        return [DoorRecord(**row._mapping) for row in rows]

    def open(self, door: DoorRecord) -> Future[Any]:
        return self._write(lambda connection: connection.execute(insert(tables.door), asdict(door)))

    def close(self, port: int) -> Future[Any]:
        gone = delete(tables.door).where(tables.door.c.port == port)
        return self._write(lambda connection: connection.execute(gone))

    def foreign(self, owner: str) -> dict[str, Document]:
        """Documents by name."""
        of_owner = select(tables.foreign).where(tables.foreign.c.owner == owner).order_by(tables.foreign.c.name)
        return {row.name: json.loads(row.document) for row in self._rows(of_owner)}

    def foreign_one(self, owner: str, name: str) -> Document | None:
        """None: there is none of that name."""
        is_it = (tables.foreign.c.owner == owner) & (tables.foreign.c.name == name)
        rows = self._rows(select(tables.foreign.c.document).where(is_it))
        return json.loads(rows[0][0]) if rows else None

    def change_foreign(self, owner: str, name: str, change: Change, event: EventRecord) -> Future[Document | None]:
        """What is there (None: nothing) becomes what `change` makes of it (None: nothing); it may refuse by raising.

        The event is written with it, if anything has changed.
        """

        def write(connection: Connection) -> Document | None:
            before, after = _change(connection, owner, name, change)
            if after != before:
                write_events(connection, [event], self._clock())
            return after

        return self._write(write)


def _change(connection: Connection, owner: str, name: str, change: Change) -> tuple[Document | None, Document | None]:
    is_it = (tables.foreign.c.owner == owner) & (tables.foreign.c.name == name)
    found = connection.execute(select(tables.foreign.c.document).where(is_it)).first()
    before = None if found is None else json.loads(found[0])
    after = change(before)
    connection.execute(delete(tables.foreign).where(is_it))
    if after is not None:
        row = {"owner": owner, "name": name, "document": json.dumps(after)}
        _refuse_too_much(connection, owner, len(row["document"]))
        connection.execute(insert(tables.foreign), row)
    return before, after


def _refuse_too_much(connection: Connection, owner: str, more: int) -> None:
    size = func.coalesce(func.sum(func.length(tables.foreign.c.document)), 0)
    counted = select(func.count(), size).where(tables.foreign.c.owner == owner)
    count, there = connection.execute(counted).one()
    if count >= FOREIGN_MAX:
        raise Conflict(f"{FOREIGN_MAX} records are kept for {owner} already; delete some first: DELETE /delete_job")
    if there + more > FOREIGN_BYTES_MAX:
        raise Conflict(
            f"records of {there} bytes are kept for {owner} already, of at most {FOREIGN_BYTES_MAX}; "
            "delete some first: DELETE /delete_job"
        )
