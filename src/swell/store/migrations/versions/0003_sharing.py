"""Shared GPUs, many users, doors: what was measured, who used how much, what was opened."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NEW_TABLES = ("usage", "account", "door", "foreign")


def upgrade() -> None:
    op.add_column("job", sa.Column("gpu_memory_mib", sa.Integer))
    op.add_column("job", sa.Column("gpu_peak_mib", sa.Integer))
    op.add_column("job", sa.Column("uid", sa.Integer))
    op.add_column("event", sa.Column("origin", sa.String, nullable=False, server_default=""))
    op.add_column("attempt", sa.Column("since", sa.Text, nullable=False, server_default="{}"))
    op.add_column("attempt", sa.Column("lost_s", sa.Float, nullable=False, server_default="0"))
    _make_usage()
    _make_doors()


def _make_usage() -> None:
    op.create_table(
        "usage",
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("day", sa.String, nullable=False),
        sa.Column("gpu_s", sa.Float, nullable=False),
        sa.Column("cpu_s", sa.Float, nullable=False),
        sa.Column("lost_gpu_s", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("owner", "day"),
    )
    op.create_table(
        "account",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("gpu_s", sa.Float, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def _make_doors() -> None:
    op.create_table(
        "door",
        sa.Column("port", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("opened_at", sa.Float, nullable=False),
    )
    op.create_table(
        "foreign",
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("owner", "name"),
    )


def downgrade() -> None:
    for table in NEW_TABLES:
        op.drop_table(table)
    op.drop_column("attempt", "lost_s")
    op.drop_column("attempt", "since")
    op.drop_column("event", "origin")
    op.drop_column("job", "uid")
    op.drop_column("job", "gpu_peak_mib")
    op.drop_column("job", "gpu_memory_mib")
