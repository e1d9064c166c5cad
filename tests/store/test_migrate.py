"""The migrations build exactly the tables that the code uses; a newer state folder is refused, not damaged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine
from sqlalchemy.schema import CreateIndex, CreateTable

from store.jobs import accept
from swell.errors import Rejected, Unavailable
from swell.model.attempt import Failure, Stopping
from swell.model.reason import Code
from swell.store import open_store
from swell.store.migrate import HEAD, VERSIONS, back_up
from swell.store.tables import metadata


def config(connection: Connection) -> Config:
    made = Config()
    made.set_main_option("script_location", str(VERSIONS))
    made.attributes["connection"] = connection
    return made


def schema(found: MetaData) -> set[str]:
    """Every table and index as SQL; columns in their order."""
    tables = [table for table in found.tables.values() if table.name != "alembic_version"]
    indices = [index for table in tables for index in table.indexes]
    return {str(CreateTable(table)) for table in tables} | {str(CreateIndex(index)) for index in indices}


def reflected(connection: Connection) -> set[str]:
    found = MetaData()
    found.reflect(connection)
    return schema(found)


def made_from_code() -> set[str]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        return reflected(connection)


def test_the_migrations_build_exactly_the_tables_in_the_code():
    with create_engine("sqlite://").begin() as connection:
        command.upgrade(config(connection), "head")
        assert reflected(connection) == made_from_code()
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
        assert [one for one in differences if "alembic_version" not in str(one)] == []


def test_an_id_is_never_used_again_also_in_migrated_tables():
    with create_engine("sqlite://").begin() as connection:
        command.upgrade(config(connection), "head")
        query = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' ORDER BY name"
        assert [row[0] for row in connection.exec_driver_sql(query)] == ["event", "job"]


def test_the_migrations_go_down_and_up_again():
    with create_engine("sqlite://").begin() as connection:
        command.upgrade(config(connection), "head")
        command.downgrade(config(connection), "base")
        assert reflected(connection) == set()
        command.upgrade(config(connection), "head")
        assert reflected(connection) == made_from_code()


def test_the_code_knows_the_newest_migration_and_there_is_one_line_of_them():
    with create_engine("sqlite://").begin() as connection:
        assert ScriptDirectory.from_config(config(connection)).get_heads() == [HEAD]


def test_a_new_database_is_what_the_migrations_would_have_built(tmp_path, clock):
    open_store(tmp_path / "new.db", clock).close()
    with create_engine(f"sqlite:///{tmp_path}/migrated.db").begin() as connection:
        command.upgrade(config(connection), "head")
        migrated = reflected(connection)
    with create_engine(f"sqlite:///{tmp_path}/new.db").begin() as connection:
        assert reflected(connection) == migrated
        query = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' ORDER BY name"
        assert [row[0] for row in connection.exec_driver_sql(query)] == ["event", "job"]
        command.downgrade(config(connection), "base")
        command.upgrade(config(connection), "head")
        assert reflected(connection) == migrated


def test_opening_makes_the_newest_schema_and_opening_again_leaves_it(tmp_path, clock):
    for _ in range(2):
        open_store(tmp_path / "swell.db", clock).close()
    with closing(sqlite3.connect(tmp_path / "swell.db")) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]


def test_jobs_of_before_manifests_were_kept_have_none(tmp_path, clock):
    path = tmp_path / "swell.db"
    store = open_store(path, clock)
    [job] = accept(store, "a")
    store.close()
    with create_engine(f"sqlite:///{path}").begin() as connection:
        command.downgrade(config(connection), "0003")
    store = open_store(path, clock)
    found = store.job(job)
    store.close()
    assert (found.name, found.manifest, found.unplaced, found.problem) == ("a", "", 0, "")


OPEN_ATTEMPT = "INSERT INTO attempt (job_id, number, width, slots, revision, created_at, placements)"
OVERRUN = {"job": 2, "reserved_mib": 512, "used_mib": 600, "needs_mib": 896}


def test_a_job_that_was_being_stopped_by_what_its_evidence_said_still_is(tmp_path, clock):
    path = tmp_path / "swell.db"
    store = open_store(path, clock)
    jobs = accept(store, "cancelled", "overrun", "of-old")
    store.close()
    told = (
        {"cause": "cancelled by ann", "grace_s": 3.0, "cancelled": "ann"},
        {"cause": "too much", "grace_s": 30.0, "cancelled": None, "fails": "GpuMemoryOverrun", **OVERRUN},
        {},
    )
    with create_engine(f"sqlite:///{path}").begin() as connection:
        command.downgrade(config(connection), "0007")
        for job, evidence in zip(jobs, told, strict=True):
            stopping = "UPDATE job SET state = 'stopping', reason_code = 'Stopping', reason_evidence = ? WHERE id = ?"
            connection.exec_driver_sql(stopping, (json.dumps(evidence), job))
            connection.exec_driver_sql(f"{OPEN_ATTEMPT} VALUES (?, 1, 1, '[]', 1, 1.0, '[]')", (job,))
    store = open_store(path, clock)
    found = [attempt.stopping for attempt in store.open_attempts()]
    store.close()
    assert found == [
        Stopping("cancelled by ann", 3.0, "ann"),
        Stopping("too much", 30.0, None, Failure(Code.GPU_MEMORY_OVERRUN, OVERRUN)),
        Stopping("", 30.0),
    ]


def test_a_job_that_was_given_up_says_by_whom_in_its_own_column(tmp_path, clock):
    path = tmp_path / "swell.db"
    store = open_store(path, clock)
    [job] = accept(store, "a")
    store.close()
    with create_engine(f"sqlite:///{path}").begin() as connection:
        command.downgrade(config(connection), "0007")
        ended = "UPDATE job SET state = 'cancelled', reason_code = 'Cancelled', reason_evidence = ?"
        connection.exec_driver_sql(ended, (json.dumps({"by": "another scheduler"}),))
    store = open_store(path, clock)
    found = store.job(job)
    store.close()
    assert found.cancel_requested_by == "another scheduler"


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path, clock):
    path = tmp_path / "swell.db"
    open_store(path, clock).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("ALTER TABLE job ADD COLUMN colour VARCHAR")
        connection.commit()
    with pytest.raises(Rejected) as caught:
        open_store(path, clock)
    assert str(caught.value) == (
        f"the state folder was written by a newer Swell (schema 9999, this one knows {HEAD}); "
        "use that version, or another state folder (--state)"
    )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
        assert "colour" in [row[1] for row in connection.execute("PRAGMA table_info(job)")]


def test_the_copy_before_a_migration_has_what_is_still_in_the_log(store, tmp_path):
    """A plain copy of the file was 4 kB and empty: after kill -9 everything is still in the write-ahead log."""
    accept(store, "a", "b")
    back_up(tmp_path / "swell.db", tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("SELECT name FROM job").fetchall() == [("a",), ("b",)]


def test_a_file_that_is_no_database_is_refused_with_what_to_do(tmp_path, clock):
    path = tmp_path / "swell.db"
    path.write_bytes(b"this is not a database, it is a shopping list\n" * 100)
    with pytest.raises(Unavailable) as caught:
        open_store(path, clock)
    assert str(caught.value) == (
        f"the database {path} cannot be used: file is not a database; "
        "restore a copy of it, or move it away to start anew"
    )
    assert path.read_bytes().startswith(b"this is not")
