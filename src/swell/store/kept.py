"""What is kept once for all jobs that have it? Callers' environments and foreign manifests, by their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from swell.errors import NotFound
from swell.store import tables

USED_BY = {tables.environment: tables.job.c.environment, tables.manifest: tables.job.c.manifest}
# On the way of every submission; building a statement costs more than running it.
KEEP = {
    (name, table): dialect.insert(table).on_conflict_do_nothing()
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
    for table in USED_BY
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One of them."""

    hash: str
    size: int  #: in bytes


def keep(connection: Connection, table: Table, documents: Sequence[dict[str, Any]]) -> list[Kept]:
    """Their hashes, whatever the order they were written in."""
    bodies = [json.dumps(document, sort_keys=True) for document in documents]
    digests = [hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest() for body in bodies]
    rows = [{"hash": digest, "body": body} for digest, body in dict(zip(digests, bodies, strict=True)).items()]
    if rows:
        connection.execute(KEEP[connection.dialect.name, table], rows)
    return [Kept(digest, len(body)) for digest, body in zip(digests, bodies, strict=True)]


def read_kept(connection: Connection, table: Table, digest: str) -> dict[str, Any]:
    found = connection.execute(select(table.c.body).where(table.c.hash == digest)).first()
    if found is None:
        raise NotFound(f"there is no {table.name} {digest}")
    document: dict[str, Any] = json.loads(found.body)
    return document


def drop_unused(connection: Connection) -> None:
    """They go with the last job that has them."""
    for table, used in USED_BY.items():
        connection.execute(delete(table).where(table.c.hash.not_in(select(used).distinct())))
