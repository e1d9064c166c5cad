"""Which tables are there? The migrations under `migrations/` build exactly these; a test compares."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, String, Table, Text

from swell.model.job import ENDED

ENDED_STATES = [str(state) for state in ENDED]  # as they are in `job.state`
metadata = MetaData()

job = Table(
    "job",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("version", Integer, nullable=False),  # goes up with every change; readers wait for it
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason_code", String),  # null: running or succeeded
    Column("reason_evidence", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("spec", Text, nullable=False),
    Column("environment", String, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("cancel_requested_by", String),  # null: nobody asked
    Column("cancel_grace_s", Float),  # null: as the job's spec says
    Column("attempts", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("width_min", Integer, nullable=False),
    Column("width_max", Integer, nullable=False),
    Column("tasks_total", Integer, nullable=False),
    Column("tasks_running", Integer, nullable=False),
    Column("tasks_succeeded", Integer, nullable=False),
    Column("tasks_failed", Integer, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("training", Text),  # what it has reported; null: nothing
    Column("lost_gpu_seconds", Float, nullable=False, server_default="0"),
    Column("resizes", Integer, nullable=False, server_default="0"),
    Column("preemptions", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),  # of its own; preemptions do not count
    Column("used_s", Float, nullable=False, server_default="0"),  # run time of attempts that have ended
    Column("held_by", String),  # null: nobody asked that it wait
    Column("wanted_width", Integer),  # null: the planner's choice
    Column("queued_at", Float),  # when it last began to wait; null: when it was submitted
    Column("reserved_at", Float),  # null: no room is being made for it
    Column("reserved_until", Float),
    Column("retry_at", Float),  # null: at once
    Column("notice_due", Integer, nullable=False, server_default="0"),
    Column("gpu_memory_mib", Integer),  # what it was seen to need on a GPU it shares; null: what its spec says
    Column("gpu_peak_mib", Integer),  # null: not measured
    Column("uid", Integer),  # as whom its tasks run; null: as the server itself
    Column("manifest", String, nullable=False, server_default=""),  # hash; empty: none
    Column("unplaced", Integer, nullable=False, server_default="0"),  # attempts in a row that could not be placed
    Column("problem", Text, nullable=False, server_default=""),  # why not, in the words of who refused
    Index("job_by_state", "state", "ended_at"),
    Column("stored_bytes", Integer, nullable=False, server_default="0"),  # its share of what its submission brought
    Column("tasks_stopped", Integer, nullable=False, server_default="0"),  # by us; they did not fail
    Column("first_attempt", Integer, nullable=False, server_default="1"),  # of its present life
    Column("identity", Text),  # of a cluster's user who submitted it; null: the server's own token, or a machine's user
    Column("ran_s", Float, nullable=False, server_default="0"),  # of all attempts of all lives that have ended
    Column("running_since", Float),  # null: no task of the present attempt has begun
    Index("job_by_name", "name"),
    Index(  # limits are read from it alone
        "job_by_owner", "owner", "state", "cancel_requested_by", "ended_at", "tasks_total", "stored_bytes"
    ),
    Index("job_by_owner_and_name", "owner", "name"),
    sqlite_autoincrement=True,  # an id is never used again, also after its job was deleted
)

attempt = Table(
    "attempt",
    metadata,
    Column("job_id", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("slots", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("outcome", String),  # null: not ended
    Column("placements", Text, nullable=False),
    Column("resume", Text, nullable=False, server_default="{}"),  # what it was told to go on from
    Column("asked", Text),  # null: nobody asked it to give room back
    Column("since", Text, nullable=False, server_default="{}"),  # of slots it was given later: when
    Column("lost_s", Float, nullable=False, server_default="0"),  # of its time: work that must be done again
    Column("stopping", Text),  # null: nobody has stopped it
    PrimaryKeyConstraint("job_id", "number"),
)

task = Table(
    "task",
    metadata,
    Column("job_id", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("task_index", Integer, nullable=False),
    Column("node", String, nullable=False),
    Column("lane", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("cause", String, nullable=False),
    Column("problem", String, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt", "task_index"),
)

event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("job_id", Integer),  # null: about the server or a node
    Column("kind", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("detail", Text, nullable=False),
    Column("origin", String, nullable=False, server_default=""),  # from where it was asked
    Index("event_by_job", "job_id", "id"),
    sqlite_autoincrement=True,
)

usage = Table(  # what attempts that have ended held, by the day on which they held it; outlives its jobs
    "usage",
    metadata,
    Column("owner", String, nullable=False),
    Column("day", String, nullable=False),  # UTC, as in 2026-11-16
    Column("gpu_s", Float, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("lost_gpu_s", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
    PrimaryKeyConstraint("owner", "day"),
)

account = Table(  # usage that fades with a half-life, for fair share
    "account",
    metadata,
    Column("owner", String, primary_key=True),
    Column("gpu_s", Float, nullable=False),
    Column("at", Float, nullable=False),  # the moment for which gpu_s was worked out
)

door = Table(  # addresses that foreign clients may use without a token
    "door",
    metadata,
    Column("port", Integer, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),  # in whose name it acts
    Column("opened_at", Float, nullable=False),
)

token = Table(  # what users have made to be let in with; of its secret only the hash
    "token",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),  # in whose name it acts
    Column("uid", Integer),  # null: the owner has none on this machine
    Column("scope", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("digest", String, nullable=False),
    Index("token_by_owner", "owner", "name"),
)

foreign = Table(  # what foreign clients asked us to remember of a job, under its name
    "foreign",
    metadata,
    Column("owner", String, nullable=False),
    Column("name", String, nullable=False),
    Column("document", Text, nullable=False),
    PrimaryKeyConstraint("owner", "name"),
)

environment = Table(
    "environment",
    metadata,
    Column("hash", String, primary_key=True),
    Column("body", Text, nullable=False),
)

manifest = Table(  # foreign documents that objects are made from
    "manifest",
    metadata,
    Column("hash", String, primary_key=True),
    Column("body", Text, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("key", String, primary_key=True),
    Column("digest", String, nullable=False),
    Column("job_ids", Text, nullable=False),
    Column("at", Float, nullable=False),
)

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
