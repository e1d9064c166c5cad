"""What one user has: how much is stored with each job, and their jobs without a look at those of all others."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("job", sa.Column("stored_bytes", sa.Integer, nullable=False, server_default="0"))
    covering = ["owner", "state", "cancel_requested_by", "ended_at", "tasks_total", "stored_bytes"]
    op.create_index("job_by_owner", "job", covering)
    op.create_index("job_by_owner_and_name", "job", ["owner", "name"])


def downgrade() -> None:
    op.drop_index("job_by_owner_and_name", "job")
    op.drop_index("job_by_owner", "job")
    op.drop_column("job", "stored_bytes")
