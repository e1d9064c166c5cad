"""What is kept once for all jobs that have it? Callers' environments and foreign manifests, by their hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, select

from swell.errors import NotFound
from swell.store import tables

USED_BY = {tables.environment: tables.job.c.environment, tables.manifest: tables.job.c.manifest}
# On the way of every submission; building a statement costs more than running it.
SELECT_HASH = {table: select(table.c.hash).where(table.c.hash == bindparam("digest")) for table in USED_BY}


def keep(connection: Connection, table: Table, document: dict[str, Any]) -> str:
    """Its hash, whatever the order it was written in."""
    body = json.dumps(document, sort_keys=True)
    digest = hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()
    if connection.execute(SELECT_HASH[table], {"digest": digest}).first() is None:
        connection.execute(insert(table), {"hash": digest, "body": body})
    return digest


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
