"""What is kept once for all jobs that have it? Callers' environments and foreign manifests, by their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table, delete, select

from swell.errors import NotFound
from swell.store import tables


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]], *, is_added: bool = False) -> None:
    """Replace what is there, or add to it."""
    if not rows:
        return
    statement = insert_of(connection.dialect.name)(table)
    keys = [column.name for column in table.primary_key]
    new = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    values = {name: table.c[name] + value for name, value in new.items()} if is_added else new
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=values), rows)


USED_BY = {tables.environment: tables.job.c.environment, tables.manifest: tables.job.c.manifest}


@cache
def insert_of(dialect: str) -> Callable[[Table], Any]:
    """The `INSERT` of this database, which knows what to do on a conflict; the others' are not imported."""
    module: Any = import_module(f"sqlalchemy.dialects.{dialect}")
    found: Callable[[Table], Any] = module.insert
    return found


@cache
def keep_statement(dialect: str, table: Table) -> Any:
    """On the way of every submission; building a statement costs more than running it."""
    return insert_of(dialect)(table).on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class Kept:
    """A document that is kept once."""

    hash: str
    size: int  #: in bytes


def keep(connection: Connection, table: Table, documents: Sequence[dict[str, Any]]) -> list[Kept]:
    """Store each document once; equal documents have one hash, whatever the order of their fields.

    Everybody's changes wait meanwhile, so an environment that the jobs of one submission share is looked at once.
    """
    bodies = {id(document): json.dumps(document, sort_keys=True) for document in _each_once(documents)}
    kept = {number: Kept(_digest(body), len(body)) for number, body in bodies.items()}
    rows = {kept[number].hash: body for number, body in bodies.items()}
    if rows:
        found = [{"hash": digest, "body": body} for digest, body in rows.items()]
        connection.execute(keep_statement(connection.dialect.name, table), found)
    return [kept[id(document)] for document in documents]


def _each_once(documents: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return {id(document): document for document in documents}.values()


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()


def read_kept(connection: Connection, table: Table, digest: str) -> dict[str, Any]:
    found = connection.execute(select(table.c.body).where(table.c.hash == digest)).first()
    if found is None:
        raise NotFound(f"there is no {table.name} {digest}")
    document: dict[str, Any] = json.loads(found.body)
    return document


def drop_unused(connection: Connection) -> None:
    """Delete the documents that no job uses any more."""
    for table, used in USED_BY.items():
        connection.execute(delete(table).where(table.c.hash.not_in(select(used).distinct())))
