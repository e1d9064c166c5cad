"""How is a row written that may be there already?"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]], *, is_added: bool = False) -> None:
    """Replace what is there, or add to it."""
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    keys = [column.name for column in table.primary_key]
    new = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    values = {name: table.c[name] + value for name, value in new.items()} if is_added else new
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=values), rows)
