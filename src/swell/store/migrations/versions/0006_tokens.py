"""Tokens that users make."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("uid", sa.Integer),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
    )
    op.create_index("token_by_owner", "token", ["owner", "name"])


def downgrade() -> None:
    op.drop_table("token")
