"""What jobs report of their training; what is asked of them; reservations, retries and notices."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def job_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("training", sa.Text),
        sa.Column("lost_gpu_seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("resizes", sa.Integer, nullable=False, server_default="0"),
        sa.Column("preemptions", sa.Integer, nullable=False, server_default="0"),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("used_s", sa.Float, nullable=False, server_default="0"),
        sa.Column("held_by", sa.String),
        sa.Column("wanted_width", sa.Integer),
        sa.Column("queued_at", sa.Float),
        sa.Column("reserved_at", sa.Float),
        sa.Column("reserved_until", sa.Float),
        sa.Column("retry_at", sa.Float),
        sa.Column("notice_due", sa.Integer, nullable=False, server_default="0"),
    ]


def attempt_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("resume", sa.Text, nullable=False, server_default="{}"),
        sa.Column("asked", sa.Text),
    ]


def upgrade() -> None:
    for column in job_columns():
        op.add_column("job", column)
    for column in attempt_columns():
        op.add_column("attempt", column)


def downgrade() -> None:
    for column in reversed(job_columns()):
        op.drop_column("job", column.name)
    for column in reversed(attempt_columns()):
        op.drop_column("attempt", column.name)
