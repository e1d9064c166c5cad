"""Before each attempt on a cluster the rights of who submitted its job are asked, by all that names them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("job", sa.Column("identity", sa.Text))


def downgrade() -> None:
    op.drop_column("job", "identity")
