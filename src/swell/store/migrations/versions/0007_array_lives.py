"""Tasks that were stopped are counted apart; arrays that have ended can be taken up again."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("job", sa.Column("tasks_stopped", sa.Integer, nullable=False, server_default="0"))
    op.add_column("job", sa.Column("first_attempt", sa.Integer, nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("job", "first_attempt")
    op.drop_column("job", "tasks_stopped")
