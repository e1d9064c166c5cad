"""Objects of a cluster: the documents they are made from, and why they could not be placed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("job", sa.Column("manifest", sa.String, nullable=False, server_default=""))
    op.add_column("job", sa.Column("unplaced", sa.Integer, nullable=False, server_default="0"))
    op.add_column("job", sa.Column("problem", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "manifest",
        sa.Column("hash", sa.String, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("manifest")
    op.drop_column("job", "problem")
    op.drop_column("job", "unplaced")
    op.drop_column("job", "manifest")
