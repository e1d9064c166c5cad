"""The first schema: jobs, attempts, tasks, events, environments, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason_code", sa.String),
        sa.Column("reason_evidence", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("environment", sa.String, nullable=False),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("cancel_requested_by", sa.String),
        sa.Column("cancel_grace_s", sa.Float),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("width_min", sa.Integer, nullable=False),
        sa.Column("width_max", sa.Integer, nullable=False),
        sa.Column("tasks_total", sa.Integer, nullable=False),
        sa.Column("tasks_running", sa.Integer, nullable=False),
        sa.Column("tasks_succeeded", sa.Integer, nullable=False),
        sa.Column("tasks_failed", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("job_by_state", "job", ["state", "ended_at"])
    op.create_index("job_by_name", "job", ["name"])
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("slots", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("outcome", sa.String),
        sa.Column("placements", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "number"),
    )
    op.create_table(
        "task",
        sa.Column("job_id", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("task_index", sa.Integer, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("lane", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("cause", sa.String, nullable=False),
        sa.Column("problem", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt", "task_index"),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("job_id", sa.Integer),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("event_by_job", "event", ["job_id", "id"])
    op.create_table(
        "environment",
        sa.Column("hash", sa.String, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("job_ids", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )


def downgrade() -> None:
    for name in ("meta", "idempotency", "environment", "event", "task", "attempt", "job"):
        op.drop_table(name)
