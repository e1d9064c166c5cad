"""A database as the code before the last migration would have left it: made by its migrations, with its columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from swell.store.migrate import HEAD, VERSIONS


def version_of(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        [(version,)] = connection.execute("SELECT version_num FROM alembic_version")
        return str(version)


def make_older(database: Path) -> str:
    """Of a server that is down; which version it is now."""
    newest = ScriptDirectory(str(VERSIONS)).get_revision(HEAD)
    assert newest is not None
    before, older = str(newest.down_revision), database.with_suffix(".older")
    _migrate_to(older, before)
    with closing(sqlite3.connect(older)) as connection:
        connection.execute("ATTACH ? AS newer", [str(database)])
        tables = connection.execute(
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT GLOB ?", ["sqlite_*"]
        )
        for (table,) in tables.fetchall():
            if table != "alembic_version":
                columns = ", ".join(f'"{row[1]}"' for row in connection.execute(f"PRAGMA main.table_info('{table}')"))
                connection.execute(f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM newer."{table}"')
        connection.commit()
    older.replace(database)
    return version_of(database)


def _migrate_to(database: Path, version: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(VERSIONS))
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    engine.dispose()
