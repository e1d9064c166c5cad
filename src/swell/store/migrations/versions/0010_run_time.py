"""How long a job ran is the sum of its attempts' times; until now it was told as the time since it first started."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

job = sa.table("job", *map(sa.column, ("id", "ran_s", "running_since")))
attempt = sa.table("attempt", *map(sa.column, ("job_id", "started_at", "ended_at")))


def upgrade() -> None:
    op.add_column("job", sa.Column("ran_s", sa.Float, nullable=False, server_default="0"))
    op.add_column("job", sa.Column("running_since", sa.Float))
    own = attempt.c.job_id == job.c.id
    spans = sa.select(sa.func.sum(attempt.c.ended_at - attempt.c.started_at)).where(own).scalar_subquery()
    runs = sa.select(sa.func.max(attempt.c.started_at)).where(own, attempt.c.ended_at.is_(None)).scalar_subquery()
    op.get_bind().execute(sa.update(job).values(ran_s=sa.func.coalesce(spans, 0.0), running_since=runs))


def downgrade() -> None:
    op.drop_column("job", "running_since")
    op.drop_column("job", "ran_s")
