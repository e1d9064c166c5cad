"""Is the schema up to date? If not, bring it there, after a backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, inspect

from swell.errors import Rejected
from swell.store.tables import metadata

HEAD = "0010"  # the newest file in migrations/versions; a test compares
VERSIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = (  # as Alembic makes it
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def migrate(engine: Engine) -> None:
    """Alembic is only imported when there is something to migrate: it costs 10 MB and a tenth of a second."""
    found = _version(engine)
    if found == HEAD:
        return
    if found is None:
        _create(engine)
        return
    if found > HEAD:
        raise Rejected(
            f"the state folder was written by a newer Swell (schema {found}, this one knows {HEAD}); "
            "use that version, or another state folder (--state)"
        )
    path = Path(str(engine.url.database))
    back_up(path, path.with_suffix(f".before-{HEAD}"))
    _upgrade(engine)


def back_up(path: Path, copy: Path) -> None:
    """Through SQLite: what was written last is still in the log beside the file, and a plain copy would miss it."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
        return None if row is None else str(row[0])


def _create(engine: Engine) -> None:
    """A new database gets the newest tables at once, as the migrations would build them."""
    with engine.begin() as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(VERSION_TABLE)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (HEAD,))


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(VERSIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
